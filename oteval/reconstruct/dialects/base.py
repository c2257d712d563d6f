"""What a dialect is: how to recognise its spans, and how to read one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ... import semconv
from ...model import Gap, LogRecord, Message, Span, Usage
from ..gaps import gap
from ..readings import Reading
from ..values import hidden, parse, text_of

__all__ = [
    "Dialect",
    "Logs",
    "attribute_gaps",
    "error_text",
    "integer",
    "model_failure",
    "result_text",
    "revealed",
    "usage",
]

Logs = Sequence[LogRecord]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way of writing agents, model calls and tool calls in spans.

    Attributes:
        name: Its name in output and documentation.
        claims: Whether a span, with the log records in its context, is written in it.
        read: What such a span says.
    """

    name: str
    claims: Callable[[Span, Logs], bool]
    read: Callable[[Span, Logs], Reading]


# More than any count can be; sums of it still are 64-bit numbers.
_MAX_COUNT = 1 << 48


def integer(value: Any) -> int:
    """Return a count, such as of tokens; 0 where there is none or it cannot be."""
    try:
        count = int(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0
    return count if 0 <= count < _MAX_COUNT else 0


def usage(attributes: Mapping[str, Any], *cached_keys: str) -> Usage:
    """Return the tokens one model call reports."""
    return Usage(
        integer(semconv.first(attributes, semconv.TOKENS_IN)),
        integer(semconv.first(attributes, semconv.TOKENS_OUT)),
        integer(semconv.first(attributes, cached_keys)),
        1,
    )


def attribute_gaps(span: Span, keys: Sequence[str], switch: str) -> list[Gap]:
    """Return the gaps that a span's attributes show by themselves.

    Args:
        span: The span.
        keys: The attributes that hold content.
        switch: What turns a placeholder into content.
    """
    gaps = []
    if span.dropped_attributes:
        gaps.append(gap("attributes_dropped", span.span_id, count=span.dropped_attributes))
    for key in keys:
        value = span.attributes.get(key)
        if hidden(value):
            gaps.append(gap("redacted", span.span_id, key=key, switch=switch))
        elif value is not None and parse(value).truncated:
            gaps.append(gap("content_truncated", span.span_id, key=key))
    return gaps


def model_failure(span: Span) -> list[Gap]:
    """Return the gap of a model call that failed."""
    if not span.is_error:
        return []
    return [gap("model_call_failed", span.span_id, reason=error_text(span))]


def revealed(
    messages: Sequence[Message], span: Span, switch: str, gaps: list[Gap]
) -> tuple[Message, ...]:
    """Return messages with None for content that is a placeholder, noting the gap.

    Args:
        messages: The messages as read.
        span: The span that holds them.
        switch: What turns a placeholder into content.
        gaps: Where the gap is noted.
    """
    if not any(hidden(message.content) for message in messages):
        return tuple(messages)
    gaps.append(gap("redacted", span.span_id, key="the content of messages", switch=switch))
    return tuple(replace(m, content=None) if hidden(m.content) else m for m in messages)


def error_text(span: Span) -> str:
    """Return why a span failed: its exception's message, its status, or its error type."""
    for event in span.events:
        message = event.attributes.get("exception.message")
        if event.name == "exception" and message:
            return str(message)
    if span.status_message and not span.status_message.startswith("Traceback"):
        return span.status_message
    kind = span.attributes.get("error.type")
    return str(kind) if kind else "no reason is given"


def result_text(span: Span, value: Any) -> str | None:
    """Return a tool's result as text; of a failed run without one, its error."""
    if value is not None and not hidden(value):
        return text_of(value)
    return f"Error: {error_text(span)}" if span.is_error else None
