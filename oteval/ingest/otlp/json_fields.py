"""Single fields of OTLP/JSON; one of a wrong shape becomes a problem and its default.

Each function takes the parsed value (None where the field is absent or null), what to call it in
a problem, and the list that problems are added to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .decoded import shown
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
    "kind_of",
]

Object = Mapping[str, Any]

_TRACE_ID = re.compile(r"[0-9a-f]{32}").fullmatch
_SPAN_ID = re.compile(r"[0-9a-f]{16}").fullmatch
_NO_TRACE = "0" * 32
_NO_SPAN = "0" * 16


def as_object(raw: Any, what: str, problems: list[str]) -> Object:
    """Return the object; an empty one where there is none."""
    if isinstance(raw, dict):
        return raw
    if raw is not None:
        problems.append(f"{what} is {kind_of(raw)} instead of an object; left out")
    return {}


def as_objects(raw: Any, what: str, problems: list[str]) -> list[Object]:
    """Return the objects of a list; what is none is a problem."""
    if raw is None:
        return []
    if not isinstance(raw, list):
        problems.append(f"{what} is {kind_of(raw)} instead of a list; left out")
        return []
    out: list[Object] = [item for item in raw if isinstance(item, dict)]
    if len(out) < len(raw):
        problems.append(f"{len(raw) - len(out)} of {what} are no objects; left out")
    return out


def kind_of(raw: Any) -> str:
    """Return what a JSON value is, in words."""
    names: dict[type, str] = {dict: "an object", list: "a list", str: "text", type(None): "null"}
    return names.get(type(raw), f"the value {shown(raw)}")


def as_text(raw: Any, what: str, problems: list[str]) -> str:
    """Return the text, "" where there is none."""
    if isinstance(raw, str):
        return raw
    if raw is not None:
        problems.append(f"{what} is {kind_of(raw)} instead of text; left out")
    return ""


def as_integer(raw: Any, what: str, limit: int, problems: list[str]) -> int:
    """Return a number from 0 to `limit`, 0 where there is none."""
    if raw is None:
        return 0
    try:
        value = int(raw)
        whole = raw.__class__ is not float or value == raw
        if 0 <= value <= limit and whole and raw.__class__ is not bool:
            return value
    except (OverflowError, TypeError, ValueError):
        pass
    problems.append(f"{what} {shown(raw)} is no number from 0 to {limit}; taken as 0")
    return 0


def as_enum(raw: Any, what: str, names: Mapping[str, int], limit: int, problems: list[str]) -> int:
    """Return the number of an enumeration that is written as a number or by name."""
    if raw is None:
        return 0
    if isinstance(raw, str) and raw in names:
        return names[raw]
    return as_integer(raw, what, limit, problems)


def as_trace_id(raw: Any) -> str | None:
    """Return the id in hex, "" for none, None for something that is no trace id."""
    if isinstance(raw, str) and _TRACE_ID(raw):
        return raw if raw != _NO_TRACE else ""
    return _odd_id(raw, _TRACE_ID)


def as_span_id(raw: Any) -> str | None:
    """Return the id in hex, "" for none, None for something that is no span id."""
    if isinstance(raw, str) and _SPAN_ID(raw):
        return raw if raw != _NO_SPAN else ""
    return _odd_id(raw, _SPAN_ID)


def _odd_id(raw: Any, fullmatch: Callable[[str], object]) -> str | None:
    """Return an id in upper-case hex or base64; "" for none, None otherwise."""
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
