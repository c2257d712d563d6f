"""Typed access to fields of parsed JSON; an invalid value is replaced by a default.

Each function takes the parsed value (None if the field is absent or null), the name of the field,
and the list of problems. If the value is invalid, the function adds a problem to the list.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from oteval.base.text import counted

from .decoded import short_repr

__all__ = [
    "InvalidValueError",
    "Object",
    "any_value",
    "as_enum",
    "as_integer",
    "as_object",
    "as_objects",
    "as_span_id",
    "as_text",
    "as_trace_id",
    "bytes_value",
    "double_value",
    "from_base64",
    "json_kind",
    "not_objects",
]

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}").fullmatch
_INT64 = 2**63


class InvalidValueError(ValueError):
    """A value is not an AnyValue. The message continues a sentence that begins with its name."""


def any_value(raw: Any) -> Any:
    """The Python value of an AnyValue.

    Args:
        raw: The parsed JSON; None and ``{}`` are the empty value.

    Raises:
        InvalidValueError: It is not an AnyValue.
    """
    try:
        return _any_value(raw)
    except RecursionError:
        raise InvalidValueError("is nested too deeply") from None


def bytes_value(data: bytes) -> dict[str, str]:
    """Return bytes as an attribute value of a Span."""
    return {"bytesValue": base64.b64encode(data).decode()}


def from_base64(text: str) -> bytes:
    """Decode standard or URL-safe base64, with or without padding.

    Raises:
        ValueError: The text is not base64.
    """
    padded = text.replace("-", "+").replace("_", "/").rstrip("=")
    padded += "=" * (-len(padded) % 4)
    return base64.b64decode(padded, validate=True)


def double_value(number: float) -> float | dict[str, str]:
    """A double, finite or not, as an attribute value of a Span."""
    if math.isfinite(number):
        return number
    if math.isnan(number):
        return {"doubleValue": "NaN"}
    return {"doubleValue": "Infinity" if number > 0 else "-Infinity"}


def _any_value(raw: Any) -> Any:
    if isinstance(raw, dict):
        for kind, value in raw.items():
            if value is None:
                continue
            reader = _READERS.get(kind)
            if reader is None:
                raise InvalidValueError(f"has a value of the unknown kind {str(kind)[:40]!r}")
            return reader(value)
        return None
    if raw is None:
        return None
    raise InvalidValueError("has a value without a kind, such as stringValue")


def _string(raw: Any) -> str:
    if isinstance(raw, str):
        return raw
    raise InvalidValueError("has a stringValue that is not text")


def _bool(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    raise InvalidValueError("has a boolValue that is neither true nor false")


def _int(raw: Any) -> int:
    value: int | None = None
    if isinstance(raw, str):
        value = int(raw) if _INTEGER(raw) else None
    elif isinstance(raw, int) and not isinstance(raw, bool):
        value = raw
    elif isinstance(raw, float) and raw.is_integer():
        value = int(raw)
    if value is None or not -_INT64 <= value < _INT64:
        raise InvalidValueError("has an intValue that is not a 64-bit integer")
    return value


def _double(raw: Any) -> float | dict[str, str]:
    if isinstance(raw, (int, float, str)) and not isinstance(raw, bool):
        try:
            return double_value(float(raw))
        except (OverflowError, ValueError):
            pass
    raise InvalidValueError("has a doubleValue that is not a number")


def _array(raw: Any) -> list[Any]:
    return [_any_value(item) for item in _values(raw, "arrayValue")]


def _kvlist(raw: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for item in _values(raw, "kvlistValue"):
        if not isinstance(item, dict) or not isinstance(item.get("key", ""), str):
            raise InvalidValueError("has a kvlistValue with an entry without a key")
        out[item.get("key", "")] = _any_value(item.get("value"))
    return out


def _values(raw: Any, kind: str) -> list[Any]:
    values = raw.get("values") if isinstance(raw, dict) else raw
    if values is None:
        return []
    if isinstance(values, list) and values is not raw:
        return values
    raise InvalidValueError(f"has a {kind} without a list of values")


def _bytes(raw: Any) -> dict[str, str]:
    if isinstance(raw, str):
        try:
            return bytes_value(from_base64(raw))
        except ValueError:
            pass
    raise InvalidValueError("has a bytesValue that is not base64")


_READERS: dict[str, Callable[[Any], Any]] = {
    "stringValue": _string,
    "string_value": _string,
    "boolValue": _bool,
    "bool_value": _bool,
    "intValue": _int,
    "int_value": _int,
    "doubleValue": _double,
    "double_value": _double,
    "arrayValue": _array,
    "array_value": _array,
    "kvlistValue": _kvlist,
    "kvlist_value": _kvlist,
    "bytesValue": _bytes,
    "bytes_value": _bytes,
}


Object = Mapping[str, Any]

_TRACE_ID = re.compile(r"[0-9a-f]{32}").fullmatch
_SPAN_ID = re.compile(r"[0-9a-f]{16}").fullmatch
_NO_TRACE = "0" * 32
_NO_SPAN = "0" * 16


def as_object(raw: Any, name: str, problems: list[str]) -> Object:
    """An object; an empty object by default."""
    if isinstance(raw, dict):
        return raw
    if raw is not None:
        problems.append(f"{name} is {json_kind(raw)} instead of an object; left out")
    return {}


def as_objects(raw: Any, name: str, problems: list[str]) -> list[Object]:
    """The elements of a list that are objects."""
    if raw is None:
        return []
    if not isinstance(raw, list):
        problems.append(f"{name} is {json_kind(raw)} instead of a list; left out")
        return []
    out: list[Object] = [item for item in raw if isinstance(item, dict)]
    if len(out) < len(raw):
        problems.append(f"{not_objects(len(raw) - len(out), name)}; left out")
    return out


def not_objects(count: int, name: str) -> str:
    """The problem that some elements of a list are not objects."""
    verb = "is not an object" if count == 1 else "are not objects"
    return f"{counted(count, 'element')} of {name} {verb}"


def json_kind(raw: Any) -> str:
    """The type of a JSON value in words, such as "a list"."""
    names: dict[type, str] = {dict: "an object", list: "a list", str: "text", type(None): "null"}
    return names.get(type(raw), f"the value {short_repr(raw)}")


def as_text(raw: Any, name: str, problems: list[str]) -> str:
    """A string; "" by default."""
    if isinstance(raw, str):
        return raw
    if raw is not None:
        problems.append(f"{name} is {json_kind(raw)} instead of text; left out")
    return ""


def as_integer(raw: Any, name: str, limit: int, problems: list[str]) -> int:
    """A whole number from 0 to `limit`; 0 by default."""
    if raw is None:
        return 0
    try:
        value = int(raw)
        is_whole = raw.__class__ is not float or value == raw
        if 0 <= value <= limit and is_whole and raw.__class__ is not bool:
            return value
    except (OverflowError, TypeError, ValueError):
        pass
    problems.append(f"{name} {short_repr(raw)} is not a number from 0 to {limit}; taken as 0")
    return 0


def as_enum(raw: Any, name: str, names: Mapping[str, int], limit: int, problems: list[str]) -> int:
    """The number of an enumeration value, possibly written by name; 0 by default."""
    if raw is None:
        return 0
    if isinstance(raw, str) and raw in names:
        return names[raw]
    return as_integer(raw, name, limit, problems)


def as_trace_id(raw: Any) -> str | None:
    """A trace id in lower-case hex; "" if it is missing or all zeros, None if invalid."""
    if isinstance(raw, str) and _TRACE_ID(raw):
        return raw if raw != _NO_TRACE else ""
    return _normalized_id(raw, _TRACE_ID)


def as_span_id(raw: Any) -> str | None:
    """A span id in lower-case hex; "" if it is missing or all zeros, None if invalid."""
    if isinstance(raw, str) and _SPAN_ID(raw):
        return raw if raw != _NO_SPAN else ""
    return _normalized_id(raw, _SPAN_ID)


def _normalized_id(raw: Any, fullmatch: Callable[[str], object]) -> str | None:
    """An id that is written in upper-case hex or base64, as in `as_trace_id`."""
    if raw is None or raw == "":
        return ""
    if not isinstance(raw, str):
        return None
    text = raw.lower()
    if not fullmatch(text):
        try:
            text = from_base64(raw).hex()
        except ValueError:
            return None
    if not fullmatch(text):
        return None
    return text if text.strip("0") else ""
