"""Typed access to fields of parsed JSON; an invalid value is replaced by a default.

Each function takes the parsed value (None if the field is absent or null), the name of the field,
and the list of problems. If the value is invalid, the function adds a problem to the list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from oteval.base.text import counted

from .decoded import short_repr
from .json_values import from_base64

__all__ = [
    "Object",
    "as_enum",
    "as_integer",
    "as_object",
    "as_objects",
    "as_span_id",
    "as_text",
    "as_trace_id",
    "json_kind",
    "not_objects",
]

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
