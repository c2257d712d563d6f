"""The messages of a page, cut so that the page stays small however long the messages are.

A page has room for some texts. Each message takes as much of it as its texts need, up to a limit.
With no room left, the other messages are shown with their first words. A cut message has a link to
the whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import escape

from ...base.jsontext import dumps
from ...base.text import counted
from ...model import Message
from ..report.details import message_details

__all__ = ["LONGEST", "ShownMessages", "compact", "shown_messages", "whole_text"]

LONGEST = 6000
"""The most characters of a text."""
_ROOM, _IMAGE_ROOM = 160_000, 300_000  # characters of HTML
_SHORTEST = 200
# The most calls and parts of a message, and of a message that finds no room.
_MOST, _LEAST = 60, 3
_LONGEST_LINE = 160


@dataclass(frozen=True, slots=True)
class ShownMessages:
    """Messages to show.

    Attributes:
        items: The messages as `message_details` has them; ``more_calls`` counts the calls left out.
        whole: The numbers of the messages that are shown in part.
    """

    items: tuple[Mapping[str, Any], ...]
    whole: frozenset[int]


def shown_messages(messages: Sequence[Message], first: int) -> ShownMessages:
    """Return messages to show on one page.

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
    return ShownMessages(tuple(items), frozenset(whole_indexes))


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
    return any(text.endswith((" more characters)", " more character)")) for text in _texts(message))


def whole_text(message: Message) -> str:
    """A message as text, complete."""
    pieces = [message.content or ""]
    for call in message.tool_calls:
        pieces.append(f"→ {call.name}\n{_indented(call.arguments)}")
    pieces += [_indented(part) for part in message.parts]
    return "\n\n".join(piece for piece in pieces if piece) + "\n"


def _indented(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        return dumps(value)
