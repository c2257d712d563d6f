"""The parts of a long conversation that the page of a run shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...model import Message, Trajectory
from ..text import shorten
from .shown_messages import ShownMessages, shown_messages

__all__ = ["PART_MESSAGES", "ConversationPart", "conversation_part"]

PART_MESSAGES = 200
"""The messages of a part."""
_LONGEST_NAME = 300  # characters


@dataclass(frozen=True, slots=True)
class ConversationPart:
    """A part of the conversation, and its place among the parts.

    Attributes:
        first: The number of the conversation's first message.
        last: The number after its last message.
        shown_from: The number of the first message of this part.
        parts: The first messages of all parts, if there are several.
        messages: The messages of this part.
        tools: The names of the tools whose results are in this part, by the ids of calls.
    """

    first: int
    last: int
    shown_from: int
    parts: tuple[int, ...]
    messages: ShownMessages
    tools: Mapping[str, str]


def conversation_part(run: Trajectory, first: int, *, is_whole: bool) -> ConversationPart:
    """The part that begins with a message; the first part if none does."""
    conversation = run.messages if is_whole else run.own_messages
    start = 0 if is_whole else run.new_from
    end = start + len(conversation)
    parts = tuple(range(start, end, PART_MESSAGES)) if len(conversation) > PART_MESSAGES else ()
    begin = first if first in parts else start
    messages = conversation[begin - start : begin - start + PART_MESSAGES]
    return ConversationPart(
        first=start,
        last=end,
        shown_from=begin,
        parts=parts,
        messages=shown_messages(messages, begin),
        tools=_answered_tools(run, messages),
    )


def _answered_tools(run: Trajectory, messages: Sequence[Message]) -> Mapping[str, str]:
    """The names of the tools whose results are among some messages, by the ids of calls."""
    answered = {message.tool_call_id for message in messages}
    calls = (call for message in run.messages for call in message.tool_calls)
    return {
        shorten(call.id, _LONGEST_NAME): shorten(call.name, _LONGEST_NAME)
        for call in calls
        if call.id and call.id in answered
    }
