"""OTLP/JSON's AnyValue to the attribute values of a Span."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from typing import Any

__all__ = ["InvalidValueError", "any_value", "bytes_value", "double_value", "from_base64"]

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
