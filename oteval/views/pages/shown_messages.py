"""The messages of a page, cut so that the page stays small however long the messages are.

A page has room for some texts. Each message takes as much of it as its texts need, up to a limit.
With no room left, the other messages are shown with their first words. A cut message has a link to
the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import escape

from ...base.text import counted
from ...model import Message, Trajectory
from ..report.details import message_details
from ..text import indented, is_cut, shorten

__all__ = [
    "LONGEST",
    "PART_MESSAGES",
    "compact",
    "conversation_part",
    "shown_messages",
    "whole_text",
]

LONGEST = 6000
"""The most characters of a text."""
_ROOM, _IMAGE_ROOM = 160_000, 300_000  # characters of HTML
_SHORTEST = 200
# The most calls and parts of a message, and of a message that finds no room.
_MOST, _LEAST = 60, 3
_LONGEST_LINE = 160
PART_MESSAGES = 200
"""The messages of a part."""
_LONGEST_NAME = 300  # characters


def shown_messages(
    messages: Sequence[Message], first: int
) -> tuple[tuple[Mapping[str, Any], ...], frozenset[int]]:
    """Messages to show on one page, and the numbers of the messages that are shown in part.

    They are as `message_details` has them; ``more_calls`` counts the calls that are left out.

    Args:
        messages: The messages.
        first: The number of the first one.
    """
    items: list[Mapping[str, Any]] = []
    whole_indexes: set[int] = set()
    room, image_room = _ROOM, _IMAGE_ROOM
    for at, message in enumerate(messages, first):
        most = _MOST if room > 0 else _LEAST
        calls, parts = message.tool_calls[:most], message.parts[:most]
        left_out = len(message.tool_calls) - len(calls)
        texts = 1 + len(calls) + len(parts)
        longest = max(_SHORTEST, min(LONGEST, room // (texts if texts < 3 else 2 * texts)))
        shortened = replace(message, tool_calls=calls, parts=parts)
        fields = compact(message_details(at, shortened, longest))
        fields, images = _without_large_images(fields, image_room)
        image_room -= images
        if left_out:
            fields["more_calls"] = counted(left_out, "more call")
        room -= _size(fields)
        items.append(fields)
        if left_out or len(parts) < len(message.parts) or _is_cut(fields):
            whole_indexes.add(at)
    return tuple(items), frozenset(whole_indexes)


def compact(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message with the short arguments of its calls on one line."""
    if "calls" not in message:
        return dict(message)
    return {**message, "calls": [_compact_call(call) for call in message["calls"]]}


def _compact_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    text = str(call.get("arguments", ""))
    # Only JSON is indented in this way, and its strings have no line ends.
    if len(text) > _LONGEST_LINE or not text.startswith(("{\n", "[\n")):
        return call
    return {**call, "arguments": " ".join(line.strip() for line in text.splitlines())}


def _without_large_images(message: dict[str, Any], room: int) -> tuple[dict[str, Any], int]:
    """A message without the images that find no room, and the room that its other images take."""
    used = 0
    parts = []
    for part in message.get("parts", ()):
        size = len(part.get("image", ""))
        if size > room - used:
            parts.append({"kind": part["kind"], "text": f"an image of {size * 3 // 4:,} bytes"})
        else:
            parts.append(part)
            used += size
    return ({**message, "parts": parts} if parts else message), used


def _texts(message: Mapping[str, Any]) -> list[str]:
    return [
        message.get("text", ""),
        *(call.get("arguments", "") for call in message.get("calls", ())),
        *(part.get("text", "") for part in message.get("parts", ())),
    ]


def _size(message: Mapping[str, Any]) -> int:
    """About how many characters of HTML a message takes."""
    return sum(len(escape(text)) for text in _texts(message))


def _is_cut(message: Mapping[str, Any]) -> bool:
    return any(map(is_cut, _texts(message)))


def whole_text(message: Message) -> str:
    """A message as text, complete."""
    pieces = [message.content or ""]
    for call in message.tool_calls:
        pieces.append(f"→ {call.name}\n{indented(call.arguments)}")
    pieces += [indented(part) for part in message.parts]
    return "\n\n".join(piece for piece in pieces if piece) + "\n"


@dataclass(frozen=True, slots=True)
class ConversationPart:
    """A part of the conversation, and its place among the parts.

    Attributes:
        first: The number of the conversation's first message.
        last: The number after its last message.
        shown_from: The number of the first message of this part.
        parts: The first messages of all parts, if there are several.
        messages: The messages of this part.
        partial: The numbers of the messages that are shown in part.
        tools: The names of the tools whose results are in this part, by the ids of calls.
    """

    first: int
    last: int
    shown_from: int
    parts: tuple[int, ...]
    messages: tuple[Mapping[str, Any], ...]
    partial: frozenset[int]
    tools: Mapping[str, str]


def conversation_part(run: Trajectory, first: int, *, is_whole: bool) -> ConversationPart:
    """The part that begins with a message; the first part if none does."""
    conversation = run.messages if is_whole else run.own_messages
    start = 0 if is_whole else run.new_from
    end = start + len(conversation)
    parts = tuple(range(start, end, PART_MESSAGES)) if len(conversation) > PART_MESSAGES else ()
    begin = first if first in parts else start
    messages = conversation[begin - start : begin - start + PART_MESSAGES]
    page_messages, partial = shown_messages(messages, begin)
    return ConversationPart(
        first=start,
        last=end,
        shown_from=begin,
        parts=parts,
        messages=page_messages,
        partial=partial,
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
