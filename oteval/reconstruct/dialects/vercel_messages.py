"""Messages in the Vercel AI SDK's own form: contents of typed parts, as models are given them.

Calls have ``input`` (until version 4 ``args``). Results have a typed ``output``, which says whether
it is an error (until version 4 ``result`` and ``isError``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model import Message, Span
from ..content import from_messages
from ..values import hidden

__all__ = ["call_part", "messages_of"]


def messages_of(value: Any, span: Span, role: str = "user") -> list[Message]:
    """Return the messages of a parsed value in the SDK's own form; a text alone is one message.

    Args:
        value: A list of messages, a single one, or a text.
        span: The span that holds it.
        role: Who says what names no role.
    """
    if isinstance(value, str):
        return [] if hidden(value) else from_messages(value, span, role)
    items = value if isinstance(value, list) else [value]
    return from_messages(
        [_message(item) for item in items if isinstance(item, Mapping)], span, role
    )


def _message(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message with its results last.

    A provider's own result stands before the text; the answer itself was one text and its calls.
    """
    content = item.get("content")
    if item.get("role") != "assistant" or not isinstance(content, list):
        return item
    return {**item, "content": sorted(content, key=_is_result)}


def _is_result(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "tool-result"


def call_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call of a tool; its arguments are ``args`` until version 4."""
    return {
        "type": "tool_call",
        "id": part.get("toolCallId"),
        "name": part.get("toolName"),
        "arguments": part.get("input", part.get("args")),
    }
