"""Check spans that were read from a backend's own form.

OTLP's decoders check their input. Other APIs return JSON that may contain any value.
"""

from __future__ import annotations

import re
from typing import Any

from ...model import Span

__all__ = ["require_valid"]

_TRACE_ID = re.compile(r"(?!0+$)[0-9a-f]{32}").fullmatch
_SPAN_ID = re.compile(r"(?!0+$)[0-9a-f]{16}").fullmatch
_MAX_TIME = (1 << 63) - 1


def require_valid(span: Span) -> None:
    """Check the types and ranges of a span's fields.

    Raises:
        ValueError: A field has another type, or is out of range; the message names it.
    """
    ids = (("trace id", _TRACE_ID, span.trace_id), ("span id", _SPAN_ID, span.span_id))
    for name, matches, value in ids:
        _require(isinstance(value, str) and matches(value), name, value)
    is_parent = isinstance(span.parent_id, str) and (not span.parent_id or _SPAN_ID(span.parent_id))
    _require(is_parent, "parent's id", span.parent_id)
    for name, text in (("name", span.name), ("status", span.status_message), ("scope", span.scope)):
        _require(isinstance(text, str), name, text)
    for name, time_ns in (("start", span.start_ns), ("end", span.end_ns)):
        _require(0 <= time_ns <= _MAX_TIME, name, time_ns)
    for event in span.events:
        _require(isinstance(event.name, str), "event's name", event.name)
        _require(0 <= event.time_ns <= _MAX_TIME, "event's time", event.time_ns)


def _require(is_valid: Any, name: str, value: Any) -> None:
    if not is_valid:
        raise ValueError(f"{name} {str(value)[:40]!r}")
