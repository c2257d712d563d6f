"""The form of OpenTelemetry's GenAI conventions: messages of typed parts.

https://github.com/open-telemetry/semantic-conventions-genai
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..model import Message, ToolCall
from .kinds import is_reasoning, reasoning_text

__all__ = ["write_messages"]

# Marks an answer that is a refusal; its words are the text.
_REFUSAL = {"type": "refusal"}


def write_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return messages in the conventions' form: each has a role and parts."""
    written = []
    for message in messages:
        parts = [_result(message)] if message.role == "tool" else list(_parts(message))
        fields: dict[str, Any] = {"role": message.role, "parts": parts}
        if message.name and message.role != "tool":
            fields["name"] = message.name
        written.append(fields)
    return written


def _parts(message: Message) -> Iterator[Mapping[str, Any]]:
    """Yield the parts of a message: reasoning, text, other content, calls."""
    for part in message.parts:
        if is_reasoning(part):
            yield _reasoning(part)
    refuses = _REFUSAL in message.parts
    if message.content is not None:
        yield {"type": "refusal" if refuses else "text", "content": message.content}
    for part in message.parts:
        if part != _REFUSAL and not is_reasoning(part):
            yield part
    yield from map(_call, message.tool_calls)


def _call(call: ToolCall) -> Mapping[str, Any]:
    head = {"id": call.id or None, "name": call.name}
    if call.executed_by:
        payload = {"type": call.name, "arguments": call.arguments}
        return {"type": "server_tool_call", **head, "server_tool_call": payload}
    return {"type": "tool_call", **head, "arguments": call.arguments}


def _reasoning(part: Mapping[str, Any]) -> Mapping[str, Any]:
    text = reasoning_text(part)
    return {"type": "reasoning", "content": text} if text else part


def _result(message: Message) -> dict[str, Any]:
    response: Any = message.content
    if message.parts:
        text = [] if message.content is None else [{"type": "text", "text": message.content}]
        response = [*text, *message.parts]
    fields: dict[str, Any] = {"type": "tool_call_response", "id": message.tool_call_id or None}
    if message.name:
        fields["name"] = message.name
    fields["response"] = response
    if message.is_error:
        fields["is_error"] = True
    return fields
