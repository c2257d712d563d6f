"""Facts about the messages of a list: system prompts, placeholders, odd messages and glued calls.

The facts of a history that later model calls repeat are computed once (`read_cache`).

A **glued** call is several calls that an instrumentation wrongly joined when it read a stream. Some
servers stream parallel calls without an index. Two calls of ``get_weather`` are then recorded as
the call ``get_weatherget_weather`` with ``{"city": "Paris"}{"city": "Tokyo"}`` as its arguments.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from ..model import Message, ToolCall
from .forms import ROLES, SYSTEM_ROLES
from .kinds import is_missing_text, unknown_kind
from .read_cache import active
from .values import hidden

__all__ = [
    "FEW_MESSAGES",
    "MessageFacts",
    "facts_of",
    "is_glued",
    "is_without_content",
    "separated",
]


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


_DECODER = json.JSONDecoder()
_ID_PREFIX = 4


def is_glued(call: ToolCall) -> bool:
    """Whether a call's arguments are the arguments of several calls, one after another."""
    arguments = call.arguments
    if not isinstance(arguments, str) or not arguments.startswith("{"):
        return False
    return len(_objects(arguments)) > 1


def _objects(text: str) -> list[Any]:
    """The objects that a text consists of; none if it contains anything else."""
    objects = []
    position = 0
    while position < len(text):
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return []
        if not isinstance(value, dict):
            return []
        objects.append(value)
        while position < len(text) and text[position].isspace():
            position += 1
    return objects


def separated(call: ToolCall, names: Collection[str]) -> list[ToolCall]:
    """The calls that a glued call consists of; none if its name does not separate them.

    Args:
        call: The call.
        names: The names of the tools that the model was offered.
    """
    arguments = _objects(call.arguments)
    count = len(arguments)
    tools = _pieces(call.name, count, names)
    if not tools:
        return []
    ids = _equal_pieces(call.id, count)
    heads = {piece[:_ID_PREFIX] for piece in ids}
    ids = ids if len(heads) == 1 else [call.id, *[""] * (count - 1)]
    triples = zip(tools, arguments, ids, strict=True)
    return [ToolCall(name, values, call_id) for name, values, call_id in triples]


def _equal_pieces(text: str, count: int) -> list[str]:
    """A text in equal pieces; none if it cannot be divided so."""
    size, remainder = divmod(len(text), count)
    return [] if remainder or not size else [text[i : i + size] for i in range(0, len(text), size)]


def _pieces(name: str, count: int, names: Collection[str]) -> Sequence[str]:
    """The names of tools that a glued name consists of."""
    if count == 1:
        return [name] if name in names else []
    equal = _equal_pieces(name, count)
    if equal and len(set(equal)) == 1:
        return equal
    for first in names:
        remainder = name.removeprefix(first)
        if remainder != name and (further := _pieces(remainder, count - 1, names)):
            return [first, *further]
    return []
