"""The fields of spans that other systems describe: ids, times, and checks of all fields.

Ids must be the same in both directions, because scores go back to the spans that were read. So an
id is kept if it has the right form; else it is derived from the other id alone. OTLP's decoders
check their input; other APIs return JSON that may contain any value.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

from ...base.times import datetime_of, ns_of_iso
from ...model import Span

__all__ = ["dashed_uuid", "iso_of", "ns_of", "require_valid", "span_id_of", "trace_id_of"]

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_HEX = {size: re.compile(rf"[0-9a-f]{{{size}}}").fullmatch for size in (16, 32)}
_FRACTION = re.compile(r"\.(\d+)")
_NS_DIGITS = 9
_TRACE_ID = re.compile(r"(?!0+$)[0-9a-f]{32}").fullmatch
_SPAN_ID = re.compile(r"(?!0+$)[0-9a-f]{16}").fullmatch
_MAX_TIME = (1 << 63) - 1


def trace_id_of(text: Any) -> str:
    """32 hex digits: the id itself, the digits of a UUID, or a hash of any other text."""
    return _hex_of(text, 32)


def span_id_of(text: Any) -> str:
    """16 hex digits: the id itself, the last digits of a UUID, or a hash of any other text.

    The first half of a UUID of version 7 is a time, which spans of one trace may share.
    """
    return _hex_of(text, 16)


def dashed_uuid(trace_id: str) -> str:
    """The UUID with the digits of a trace id."""
    parts = (trace_id[:8], trace_id[8:12], trace_id[12:16], trace_id[16:20], trace_id[20:])
    return "-".join(parts)


def _hex_of(text: object, digits: int) -> str:
    if not isinstance(text, str) or not text:
        raise ValueError(f"id {text!r}")
    lower = text.lower()
    if _HEX[digits](lower):
        return lower
    if _UUID(lower):
        return lower.replace("-", "")[-digits:]
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=digits // 2).hexdigest()


def ns_of(text: str) -> int:
    """An ISO time in nanoseconds; a time without a zone is UTC.

    Raises:
        ValueError: The text is not an ISO time.
    """
    match = _FRACTION.search(text)
    digits = match[1][:_NS_DIGITS].ljust(_NS_DIGITS, "0") if match else "0"
    return ns_of_iso(_FRACTION.sub("", text, count=1)) + int(digits)


def iso_of(ns: int) -> str:
    """A time in nanoseconds as ISO text in UTC, with microseconds, rounded down."""
    return datetime_of(ns).isoformat(timespec="microseconds").replace("+00:00", "Z")


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
