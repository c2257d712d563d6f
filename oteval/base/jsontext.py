"""Reading, writing and comparing JSON.

Two values are equal if their canonical texts are equal: the order of keys is irrelevant, ``1``
equals ``1.0``, and ``1``, ``true`` and ``"1"`` are all different. The comparison is exact: integers
of any size, NaN, the infinities and lone surrogates (halves of a UTF-16 pair) equal only
themselves.

`loads` and `dumps` exchange standard JSON in UTF-8 with the outside. `loads_exact` and
`dumps_exact` preserve compared values exactly, such as the arguments of tool calls.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from itertools import chain
from typing import Any

import orjson

__all__ = [
    "call_hash",
    "canonical",
    "dumps",
    "dumps_exact",
    "encodable",
    "escaped",
    "flat_objects",
    "loads",
    "loads_exact",
    "restore",
    "to_jsonable",
]

_MAX_DEPTH = 254  # the limit of orjson when it writes
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
_SURROGATE = re.compile("[\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
# orjson writes every whole float with ".0" or an exponent. Its other output is canonical.
_WHOLE_FLOAT = re.compile(r"[0-9](?:\.0|[eE])", re.ASCII)
# orjson reads integers of more than 64 bits as floats: they have 20 digits, or 19 after a minus.
# A number follows a space, a colon, a comma or a bracket; the digits of an id follow a quote.
_CLASSES = bytes(
    ord("0") if chr(code) in "0123456789" else ord(" ") if chr(code) in " \t\r\n:,[" else code
    for code in range(256)
)
_LONG_INTEGER, _LONG_NEGATIVE = b" " + b"0" * 20, b" -" + b"0" * 19
_LONG_DIGITS = b"0" * 19
# Python refuses to convert larger integers to decimal text; they are written in hexadecimal.
_MAX_BITS = 14_000
_FLAT = frozenset({str, int, type(None)})
_NO_FLOATS = _FLAT | {bool}


def loads(text: str | bytes) -> Any:
    """Parse JSON text, with integers of any size.

    Lone surrogates, which UTF-8 cannot encode, become U+FFFD.

    Raises:
        ValueError: The text is not valid JSON, an integer has more than 4,300 digits, or the
            nesting is deeper than 254 levels.
    """
    is_shallow = len(text) <= 2 * _MAX_DEPTH or _brackets(text) <= _MAX_DEPTH
    if is_shallow and not _has_long_integer(text):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass
    value, is_standard = _parsed(text)
    if is_standard:
        return value
    return json.loads(encodable(json.dumps(value, ensure_ascii=False)))


def loads_exact(text: str | bytes) -> Any:
    """Parse JSON text like `loads`, but keep lone surrogates.

    Raises:
        ValueError: The text is not valid JSON, or exceeds a limit of `loads`.
    """
    return _parsed(text)[0]


def _parsed(text: str | bytes) -> tuple[Any, bool]:
    """The parsed value, and whether orjson parsed it, which rejects lone surrogates."""
    try:
        value, is_standard = _read(text)
    except RecursionError:
        raise ValueError(f"nested more than {_MAX_DEPTH} levels deep") from None
    if len(text) > _MAX_DEPTH and _brackets(text) > _MAX_DEPTH and _too_deep(value):
        raise ValueError(f"nested more than {_MAX_DEPTH} levels deep")
    return value, is_standard


def _read(text: str | bytes) -> tuple[Any, bool]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text), False
    # orjson reads long integers as floats: an object without floats need not be searched for them.
    if type(value) is dict and _NO_FLOATS.issuperset(map(type, value.values())):
        return value, True
    return (json.loads(text), False) if _has_long_integer(text) else (value, True)


def _brackets(text: str | bytes) -> int:
    if isinstance(text, bytes):
        return text.count(b"[") + text.count(b"{")
    return text.count("[") + text.count("{")


def _too_deep(value: Any) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:
        pass  # for this or another reason
    else:
        return False
    level = [value]
    for _ in range(_MAX_DEPTH + 1):
        level = [
            inner
            for container in level
            if isinstance(container, (dict, list))
            for inner in (container.values() if isinstance(container, dict) else container)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True


def restore(text: str | bytes) -> Any:
    """Parse JSON text that `dumps` or `dumps_exact` wrote, without limits."""
    return _read(text)[0]


def _has_long_integer(text: str | bytes) -> bool:
    """Whether a text has so many consecutive digits that orjson may read them as a float."""
    if len(text) < len(_LONG_DIGITS):
        return False
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    # 19 digits in a row put three at every sixth byte; most texts have no three digits there.
    if b"000" not in data[::6].translate(_CLASSES):
        return False
    classes = data.translate(_CLASSES)
    if _LONG_DIGITS not in classes:
        return False
    classes = b" " + classes
    return _LONG_INTEGER in classes or _LONG_NEGATIVE in classes


def dumps(value: Any) -> str:
    """Return compact JSON text, with keys in their order and non-ASCII characters unescaped.

    The text is standard JSON and valid UTF-8: NaN and the infinities become null, lone surrogates
    become U+FFFD, and objects that JSON cannot represent become text.
    """
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):
        pass
    try:
        return encodable(_written(value, _standard))
    except RecursionError:  # json goes deeper, and reports a value that contains itself
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
        return encodable(text)


def dumps_exact(value: Any) -> str:
    r"""JSON text that `restore` reads as an identical value.

    It differs from the text of `dumps` in two points. NaN and the infinities are written as ``NaN``
    and ``Infinity``, and lone surrogates as escapes (``\\ud83d``).
    """
    try:
        text = orjson.dumps(value, str, orjson.OPT_NON_STR_KEYS).decode()
        if "null" not in text or _all_finite(value):
            return text
    except (TypeError, ValueError):
        pass
    return escaped(_written(value, float))


def _all_finite(value: Any) -> bool:
    """Whether a value certainly contains neither NaN nor an infinity."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_all_finite, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_all_finite, value))
    return value is None or isinstance(value, (str, int))


def encodable(text: str) -> str:
    """Return text with lone surrogates, which UTF-8 cannot encode, replaced by U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def escaped(text: str) -> str:
    """Return text with lone surrogates replaced by JSON escapes, and surrogate pairs joined.

    Different texts have different results, unless one of them contains such an escape literally.
    """
    if _SURROGATE.search(text) is None:
        return text
    joined = _PAIR.sub(lambda match: _joined(match[0]), text)
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", joined)


def _joined(pair: str) -> str:
    return pair.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def canonical(value: Any) -> str:
    """The text that all equal values share: with sorted keys, and 1.0 written as 1."""
    try:
        text = orjson.dumps(value, str, _OPTIONS).decode()
        if type(value) is str:
            return text
    except (TypeError, ValueError):
        text = ""
    if text and _WHOLE_FLOAT.search(text) is None and ("null" not in text or _all_finite(value)):
        return text
    return escaped(_written(value, _whole, sort_keys=True))


def flat_objects(texts: Sequence[str]) -> list[dict[str, Any]] | None:
    """Parse JSON texts into objects that are equal exactly if their canonical texts are.

    Returns:
        The objects; None unless all texts are objects whose values are strings, integers of at
        most 64 bits or null.
    """
    try:
        values = [*map(orjson.loads, texts)]
        # Larger integers are read as floats; true equals 1, and lists may contain either.
        is_flat = _FLAT.issuperset(map(type, chain.from_iterable(map(dict.values, values))))
    except (orjson.JSONDecodeError, TypeError):
        return None
    return values if is_flat else None


def _written(value: Any, number: Callable[[float], Any], *, sort_keys: bool = False) -> str:
    """JSON text of values that orjson rejects: large integers, depth, lone surrogates."""
    plain = _plain(value, number)
    return json.dumps(plain, ensure_ascii=False, sort_keys=sort_keys, separators=(",", ":"))


def _plain(value: Any, number: Callable[[float], Any]) -> Any:
    """A value as JSON's types.

    Args:
        value: The value.
        number: Converts floats.
    """
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() < _MAX_BITS else f"an integer: {value:#x}"
    if isinstance(value, dict):
        return {_key(key): _plain(item, number) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, number) for item in value]
    return _plain(_of_object(value), number)


def _whole(value: float) -> float | int:
    return int(value) if value.is_integer() else float(value)


def _standard(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    try:
        (text,) = orjson.loads(orjson.dumps({key: 0}, option=orjson.OPT_NON_STR_KEYS))
    except (TypeError, ValueError):
        return str(key)
    return str(text)


def _of_object(value: Any) -> Any:
    """A date, a dataclass and the like as orjson converts them; other objects as text."""
    try:
        return orjson.loads(orjson.dumps(value, str, orjson.OPT_NON_STR_KEYS))
    except (TypeError, ValueError):
        return str(value)


def call_hash(name: str, arguments: Any) -> int:
    """A 63-bit hash that is equal for tool calls with equal names and arguments."""
    data = escaped(f"{name}\0{canonical(arguments)}").encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") >> 1


def to_jsonable(value: Any, convert: Callable[[Any], Any] | None = None) -> Any:
    """A value as JSON values: pydantic models and dataclasses as dicts, tuples as lists.

    A value without a JSON form becomes its text.

    Args:
        value: The value. It is copied, so that the result shares nothing with it.
        convert: Called first with each value that is not a scalar, to replace values that need a
            special form. It returns all others unchanged.
    """
    return restore(dumps_exact(_plain_value(value, convert)))


def _plain_value(value: Any, convert: Callable[[Any], Any] | None) -> Any:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if convert is not None:
        value = convert(value)
    if isinstance(value, Mapping):
        return {str(key): _plain_value(item, convert) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain_value(item, convert) for item in value]
    # Looked up on the class: mocks and lazy proxies have attributes of any name.
    if callable(getattr(type(value), "model_dump", None)):
        return _plain_value(value.model_dump(mode="json"), convert)
    if is_dataclass(value) and not isinstance(value, type):
        return _plain_value(asdict(value), convert)
    return value
