"""Facts about the messages of a list: system prompts, placeholders, and odd messages.

The facts of a history that a later model call repeats are found once (`read_cache`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ...model import Message, Span
from .message_forms import ROLES, SYSTEM_ROLES
from .parts import unknown_kind
from .read_cache import active
from .values import hidden

__all__ = ["FEW_MESSAGES", "MessageFacts", "facts_of", "of_span", "stamped"]


class MessageFacts(NamedTuple):
    """Facts about the messages of a list.

    Attributes:
        prompts: The system prompts.
        has_placeholder: Whether the content of any message is a placeholder.
        has_odd: Whether any message has an unknown role, or a part of an unknown kind.
    """

    prompts: tuple[Message, ...] = ()
    has_placeholder: bool = False
    has_odd: bool = False


def facts_of(messages: Sequence[Message]) -> MessageFacts:
    """Return the facts about some messages, which are never changed."""
    cache = active() if len(messages) >= FEW_MESSAGES else None
    return _extended(None, messages) if cache is None else cache.fold(_KIND, messages, _extended)


_NONE = MessageFacts()
_KIND = "facts"
# Fewer messages are read in less time than it takes to find them.
FEW_MESSAGES = 6


def _extended(known: MessageFacts | None, messages: Sequence[Message]) -> MessageFacts:
    """Return the facts about the messages of a list so far, and further ones."""
    prompts, has_placeholder, has_odd = known or _NONE
    for message in messages:
        role, parts = message.role, message.parts
        if role in SYSTEM_ROLES:
            prompts += (message,)
        has_placeholder = has_placeholder or hidden(message.content)
        has_odd = has_odd or role not in ROLES or (parts != () and any(map(unknown_kind, parts)))
    if known is None and not (prompts or has_placeholder or has_odd):
        return _NONE
    return MessageFacts(prompts, has_placeholder, has_odd)


def stamped(messages: Sequence[Message], span: Span) -> tuple[Message, ...]:
    """Return messages with the ids of the span that holds them; an earlier one may hold them."""
    return tuple([of_span(message, span) for message in messages])


def of_span(message: Message, span: Span) -> Message:
    """Return a message with the ids of the span that holds it."""
    if message.span_id == span.span_id and message.trace_id == span.trace_id:
        return message
    return replace(message, span_id=span.span_id, trace_id=span.trace_id)
