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

DENIED = "Tool execution denied."


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
    """Return a message with its content's parts in a form that all dialects share."""
    content = item.get("content")
    if not isinstance(content, list):
        return item
    parts = [_part(part) for part in content if isinstance(part, Mapping)]
    if item.get("role") == "tool":  # what approves a call is no result of it
        parts = [part for part in parts if part.get("type") == "tool_result"]
        if not parts:
            return {}
    # A provider's own result stands before the text; the answer itself was one text and its calls.
    parts.sort(key=lambda part: part.get("type") == "tool_result")
    return {"role": item.get("role"), "parts": parts}


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = part.get("type")
    if kind == "tool-call":
        return call_part(part)
    if kind != "tool-result":
        return part
    result, failed = _outcome(part)
    return {
        "type": "tool_result",
        "id": part.get("toolCallId"),
        "name": part.get("toolName"),
        "result": result,
        "is_error": failed,
    }


def call_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call of a tool; its arguments are ``args`` until version 4."""
    return {
        "type": "tool_call",
        "id": part.get("toolCallId"),
        "name": part.get("toolName"),
        "arguments": part.get("input", part.get("args")),
    }


def _outcome(part: Mapping[str, Any]) -> tuple[Any, bool]:
    """Return a tool's result and whether it is an error: a typed output, until version 4 plain."""
    output = part.get("output", part.get("result"))
    if not isinstance(output, Mapping) or "type" not in output or "output" not in part:
        return output, part.get("isError") is True
    kind = str(output["type"])
    if kind == "execution-denied":
        return output.get("reason") or DENIED, False
    return output.get("value"), kind.startswith("error")
