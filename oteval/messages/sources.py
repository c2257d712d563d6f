"""The span that a message was read from: its ids, on each message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..model import Message, SpanRef

__all__ = ["NO_SOURCE", "MessageSource", "of_span", "stamped"]


class MessageSource(Protocol):
    """The ids that the messages of a list get: a span's ids, or the empty ids of `NO_SOURCE`."""

    @property
    def trace_id(self) -> str:
        """The id of the trace, or ""."""

    @property
    def span_id(self) -> str:
        """The id of the span, or ""."""


NO_SOURCE = SpanRef("", "")
"""The source of messages that were not read from a span."""


def stamped(messages: Sequence[Message], source: MessageSource) -> tuple[Message, ...]:
    """Return messages with the ids of their source; they may have the ids of an earlier source."""
    return tuple([of_span(message, source) for message in messages])


def of_span(message: Message, source: MessageSource) -> Message:
    """A message with the ids of its source."""
    if message.span_id == source.span_id and message.trace_id == source.trace_id:
        return message
    content, calls, parts = message.content, message.tool_calls, message.parts
    # `replace` takes four times as long, and each call of a model repeats the messages before it.
    return Message(
        *(message.role, content, calls, message.tool_call_id, message.name, message.is_error),
        *(parts, source.span_id, source.trace_id, message.is_outcome_recorded),
    )
