"""Read the parts of a span that all dialects share: usage, errors, arguments, missing content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...messages import as_list, hidden, parse
from ...model import (
    ANSWERED,
    DAMAGED_CONTENT_GAPS,
    Gap,
    Span,
    Usage,
    count_of,
    normal_finish_reason,
    semconv,
    span_tokens,
)
from ..gaps import gap
from .flat_lists import FEW_KEYS, named

__all__ = [
    "NO_INPUT",
    "NO_OUTPUT",
    "attribute_gaps",
    "call_arguments",
    "error_text",
    "finish_reasons",
    "integer",
    "is_whole",
    "missing_side",
    "model_failure",
    "not_captured",
    "only_argument",
    "parsed_unless_cut",
    "usage",
    "visible",
    "was_cut",
]

_CUT = "error"


def integer(value: Any) -> int:
    """A count, such as an index, or 0 if the value is missing or invalid."""
    return count_of(value) or 0


def usage(attributes: Mapping[str, Any]) -> Usage:
    """The tokens that the span of a model call reports."""
    is_long = len(attributes) > FEW_KEYS
    return span_tokens(attributes, named(attributes).keys if is_long else None).usage


def visible(span: Span, key: str) -> Any:
    """The value of an attribute; None if it is missing, or a placeholder for hidden content."""
    value = span.attributes.get(key)
    return None if hidden(value) else value


def attribute_gaps(
    span: Span, keys: Sequence[str], switch: str, content: Mapping[str, Any] | None = None
) -> list[Gap]:
    """The gaps of a span's attributes: dropped, redacted or cut.

    Args:
        span: The span.
        keys: The attributes with content.
        switch: The setting that makes the emitter write the content.
        content: The attributes, if events and log records add to the span's own.
    """
    content = span.attributes if content is None else content
    gaps = []
    if span.dropped_attributes:
        gaps.append(gap("attributes_dropped", span.span_id, count=span.dropped_attributes))
    for key in keys:
        value = content.get(key)
        if value is None:
            continue
        if hidden(value):
            gaps.append(gap("redacted", span.span_id, key=key, switch=switch))
        elif parse(value).truncated:
            gaps.append(gap("content_truncated", span.span_id, key=key))
    return gaps


def is_whole(gaps: Sequence[Gap]) -> bool:
    """Whether the gaps of a model call leave its messages complete."""
    return not gaps or all(gap.code == "model_call_failed" for gap in gaps)


def model_failure(span: Span) -> list[Gap]:
    """The gap of a model call that failed.

    A client may stop reading a stream once it has the finish reason. Instrumentations end such a
    span with an error, but the model has answered.
    """
    if not span.is_error or _has_finished(span):
        return []
    return [gap("model_call_failed", span.span_id, reason=error_text(span))]


def _has_finished(span: Span) -> bool:
    """Whether a span reports that the model finished its answer."""
    reasons = finish_reasons(span)
    return bool(reasons) and ANSWERED.issuperset(reasons)


def was_cut(span: Span) -> bool:
    """Whether a span reports that an error ended the model's answer.

    The partial answer does not belong to the conversation: the client retries or gives up.
    """
    return span.is_error and _CUT in finish_reasons(span)


def finish_reasons(span: Span) -> list[str]:
    """The finish reasons in a span's attributes, one for each answer."""
    reasons = semconv.first(span.attributes, semconv.FINISH_REASONS)
    if isinstance(reasons, str):
        reasons = as_list(parse(reasons).value) if reasons[:1] in ("[", '"') else [reasons]
    if not isinstance(reasons, (list, tuple)):
        return []
    return [normal_finish_reason(str(reason)) for reason in reasons if reason]


def error_text(span: Span) -> str:
    """Why a span failed: its exception's message, its status, or its error type."""
    for event in span.events:
        message, kind = (event.attributes.get(f"exception.{key}") for key in ("message", "type"))
        if event.name == "exception" and (message or kind):
            # The text of a KeyError is only the key.
            error_class = str(kind or "").rpartition(".")[2]
            is_told = message and (" " in str(message) or not error_class)
            return str(message) if is_told else f"{error_class}: {message or ''}".removesuffix(": ")
    if span.status_message and not span.status_message.startswith("Traceback"):
        return span.status_message
    kind = span.attributes.get("error.type")
    return str(kind) if kind else "no reason is given"


NO_INPUT = "input of the model call"
NO_OUTPUT = "output of the model call"
_OUTPUT_WORDS = ("output", "response", "completion")


def not_captured(
    span: Span, messages_by_key: Mapping[str, Any], switch: str, gaps: Sequence[Gap]
) -> list[Gap]:
    """The gap of a model call whose messages are missing or unreadable.

    Args:
        span: The span.
        messages_by_key: The messages that were read, by the attribute that should contain them.
        switch: The setting that makes the emitter write content.
        gaps: The call's other gaps; if one of them explains the loss, no gap is returned.
    """
    missing = [key for key, messages in messages_by_key.items() if not messages]
    if not missing or any(g.code in DAMAGED_CONTENT_GAPS for g in gaps):
        return []
    for key in missing:
        if parse(span.attributes.get(key)).value not in (None, "", [], {}):
            reason = "it holds no messages"
            return [gap("content_unreadable", span.span_id, key=key, reason=reason)]
    lost = [any(word in key.lower() for word in _OUTPUT_WORDS) for key in missing]
    return missing_side(span, switch, sent=all(lost), received=not any(lost))


def missing_side(span: Span, switch: str, *, sent: object, received: object) -> list[Gap]:
    """The gap of a model call whose input or output is missing.

    Args:
        span: The span.
        switch: The setting that makes the emitter write content.
        sent: True if the input is known.
        received: True if the output is known, or the call failed.
    """
    if sent and received:
        return []
    missing = "message content"
    if sent or received:
        missing = NO_OUTPUT if sent else NO_INPUT
    return [gap("content_not_captured", span.span_id, missing=missing, switch=switch)]


def parsed_unless_cut(value: Any) -> Any:
    """The parsed value of an attribute; JSON that was cut stays text."""
    parsed = parse(value)
    return value if parsed.truncated else parsed.value


def call_arguments(arguments: Any) -> Any:
    """The arguments of a traced function, with ``args`` and ``kwargs`` as one value."""
    if not isinstance(arguments, Mapping) or not {"args", "kwargs"} & set(arguments):
        return arguments
    positional, keywords = _signature(arguments)
    return (
        {**keywords, "args": positional}
        if keywords and positional
        else keywords or positional or {}
    )


def only_argument(arguments: Any) -> Any:
    """A traced function's only argument, or None if it has none or several."""
    if not isinstance(arguments, Mapping):
        return arguments
    if {"args", "kwargs"} & set(arguments):
        positional, keywords = _signature(arguments)
        values = [*positional, *keywords.values()]
    else:
        values = [arguments] if {"messages", "role"} & set(arguments) else list(arguments.values())
    return values[0] if len(values) == 1 else None


def _signature(arguments: Mapping[str, Any]) -> tuple[list[Any], Mapping[str, Any]]:
    """The positional and the named arguments of a traced function."""
    positional, keywords = arguments.get("args"), arguments.get("kwargs")
    return (
        positional if isinstance(positional, list) else [],
        keywords if isinstance(keywords, Mapping) else {},
    )
