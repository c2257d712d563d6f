"""Messages as JSON values, and back; lossless, unlike OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model import Message, ToolCall

__all__ = ["message_fields", "message_of"]


def message_fields(message: Message) -> dict[str, Any]:
    """Return a message's fields that are not their default; `message_of` reads them."""
    found: dict[str, Any] = {"role": message.role}
    if message.content is not None:
        found["content"] = message.content
    for name in ("tool_call_id", "name", "is_error", "span_id", "trace_id"):
        if value := getattr(message, name):
            found[name] = value
    if message.parts:
        found["parts"] = list(message.parts)
    if message.tool_calls:
        found["tool_calls"] = [_call_fields(call) for call in message.tool_calls]
    return found


def _call_fields(call: ToolCall) -> dict[str, Any]:
    return {
        "name": call.name,
        "arguments": call.arguments,
        "id": call.id,
        "span_id": call.span_id,
        "start_ns": call.start_ns,
        "end_ns": call.end_ns,
    }


def message_of(found: Mapping[str, Any]) -> Message:
    """Return the message of `message_fields`."""
    calls = tuple(ToolCall(**call) for call in found.get("tool_calls", ()))
    parts = tuple(found.get("parts", ()))
    return Message(**{**found, "tool_calls": calls, "parts": parts})
