"""JSON text: how oteval writes it, and the one form by which it compares values.

Two values are equal when their canonical texts are: key order does not count, ``1`` equals
``1.0``, and ``1``, ``true`` and ``"1"`` all differ.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import orjson

__all__ = [
    "call_hash",
    "canonical",
    "canonical_object",
    "dumps",
    "encodable",
    "equal_objects",
    "loads",
    "restore",
]

_MAX_DEPTH = 254  # orjson's own limit when it writes
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
_SURROGATE = re.compile("[\ud800-\udfff]")
# orjson writes every whole float with ".0" or an exponent; all else is canonical already.
_WHOLE_FLOAT = re.compile(r"[0-9](?:\.0|[eE])", re.ASCII)


def loads(text: str | bytes) -> Any:
    """Return the value of a JSON text from outside.

    Integers of more than 64 bits become floats. Lone surrogates, which no UTF-8 text can hold,
    become U+FFFD.

    Raises:
        ValueError: The text is not valid JSON, or is nested more than 254 levels deep, which
            Python's recursion would not survive everywhere.
    """
    try:
        value = _parsed(text)
        if _brackets(text) > _MAX_DEPTH:
            orjson.dumps(value)
    except (RecursionError, TypeError):
        raise ValueError(f"nested more than {_MAX_DEPTH} levels deep") from None
    return value


def _brackets(text: str | bytes) -> int:
    if isinstance(text, bytes):
        return text.count(b"[") + text.count(b"{")
    return text.count("[") + text.count("{")


def _parsed(text: str | bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(_encodable(json.loads(text)), parse_int=_integer)


def _integer(digits: str) -> int | float:
    value = int(digits)
    return value if -(1 << 63) <= value < 1 << 64 else float(digits)


def restore(text: str) -> Any:
    """Return the value of a JSON text that `dumps` wrote."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def dumps(value: Any) -> str:
    """Return compact JSON text that keeps key order and non-ASCII characters."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):
        return _encodable(value).decode()


def _encodable(value: Any, *, sort_keys: bool = False) -> bytes:
    """Return the JSON text of what orjson does not take: big integers, depth, lone surrogates."""
    text = json.dumps(
        value, ensure_ascii=False, sort_keys=sort_keys, separators=(",", ":"), default=str
    )
    return encodable(text).encode()


def encodable(text: str) -> str:
    """Return text with U+FFFD for every half of a surrogate pair, which UTF-8 cannot hold."""
    return _SURROGATE.sub("\ufffd", text)


def canonical(value: Any) -> str:
    """Return the one text of all equal values: keys sorted, and 1.0 written as 1."""
    try:
        text = orjson.dumps(value, str, _OPTIONS).decode()
    except (TypeError, ValueError):
        text = ""
    if text and _WHOLE_FLOAT.search(text) is None:
        return text
    return _encodable(_plain(value), sort_keys=True).decode()


def canonical_object(text: str) -> str | None:
    """Return what `canonical` returns for the object that a JSON text spells out, in one step.

    Returns:
        The canonical text; None where the text is no plain object and `canonical` is needed.
    """
    try:
        value = orjson.loads(text)
        if type(value) is not dict:
            return None
        found = orjson.dumps(value, None, _OPTIONS).decode()
    except (orjson.JSONDecodeError, TypeError):
        return None
    # Whole floats, and integers too big for orjson, end in ".0" or have an exponent.
    if ".0" in found or ("e" in found and _WHOLE_FLOAT.search(found)):
        return None
    return found


def equal_objects(one: str, two: str) -> bool | None:
    """Return whether two JSON texts spell out equal objects, as their canonical texts would tell.

    Returns:
        The answer; None where they are no plain objects, or it takes `canonical` to tell.
    """
    # To Python, true equals 1.
    if "true" in one or "false" in one or "true" in two or "false" in two:
        return None
    try:
        left, right = orjson.loads(one), orjson.loads(two)
        return bool(left == right) if type(left) is dict and type(right) is dict else None
    except (orjson.JSONDecodeError, RecursionError):
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def call_hash(name: str, arguments: Any) -> int:
    """Return a 63-bit hash that two tool calls share when name and arguments are equal."""
    text = f"{name}\0{canonical(arguments)}"
    data = encodable(text).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") >> 1
