"""Facts about the messages of a list: system prompts, placeholders, and odd messages.

The facts of a history that later model calls repeat are computed once (`read_cache`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..model import Message
from .forms import ROLES, SYSTEM_ROLES
from .glued_calls import is_glued
from .kinds import is_missing_text, unknown_kind
from .read_cache import active
from .values import hidden

__all__ = ["FEW_MESSAGES", "MessageFacts", "facts_of", "is_without_content"]


class MessageFacts(NamedTuple):
    """Facts about the messages of a list.

    Attributes:
        prompts: The system prompts.
        has_placeholder: Whether the content of any message is a placeholder.
        has_odd: Whether any message has an unknown role, a part of an unknown kind, no content, or
            several calls in one.
    """

    prompts: tuple[Message, ...] = ()
    has_placeholder: bool = False
    has_odd: bool = False


def facts_of(messages: Sequence[Message]) -> MessageFacts:
    """The facts about some messages, which are never changed."""
    if not messages:
        return _NONE
    cache = active() if len(messages) >= FEW_MESSAGES else None
    return (
        _extended(earlier=None, messages=messages)
        if cache is None
        else cache.fold(_KIND, messages, _extended)
    )


_NONE = MessageFacts()
_KIND = "facts"
# Reading fewer messages takes less time than looking them up.
FEW_MESSAGES = 6


def _extended(earlier: MessageFacts | None, messages: Sequence[Message]) -> MessageFacts:
    """The facts about the earlier and the further messages of a list."""
    prompts, has_placeholder, has_odd = earlier or _NONE
    for message in messages:
        role, content, parts = message.role, message.content, message.parts
        if role in SYSTEM_ROLES:
            prompts += (message,)
        has_placeholder = has_placeholder or (content is not None and hidden(content))
        if has_odd or (content and role in ROLES and not parts and not message.tool_calls):
            continue  # most messages are a text
        has_odd = role not in ROLES or any(map(is_glued, message.tool_calls))
        if parts or not content:
            has_odd = has_odd or any(map(unknown_kind, parts)) or is_without_content(message)
    if earlier is None and not (prompts or has_placeholder or has_odd):
        return _NONE
    return MessageFacts(prompts, has_placeholder, has_odd)


def is_without_content(message: Message) -> bool:
    """Whether a message lacks its content, for example because the emitter left it out.

    Answers and prompts may be empty; a user's message never is. A tool's result may still be in the
    span of the tool.
    """
    if message.parts:
        return any(map(is_missing_text, message.parts))
    if message.content or message.tool_calls or message.role == "tool":
        return False
    return message.content is None or message.role == "user"
