"""A prompt's variables, of what an evaluator is called with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...jsontext import dumps
from ..messages import to_messages

__all__ = ["as_given", "as_trajectories", "trajectory_text"]


def as_given(
    outputs: Any, reference_outputs: Any, inputs: Any, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the variables of a judge of anything: what the evaluator is called with."""
    return {"inputs": inputs, "outputs": outputs, "reference_outputs": reference_outputs, **extra}


def as_trajectories(
    outputs: Any, reference_outputs: Any, inputs: Any, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the variables of a judge of trajectories: each side as OpenAI messages."""
    has_reference = reference_outputs is not None and reference_outputs != ""
    return {
        **extra,
        "inputs": inputs,
        "outputs": _messages(outputs, "outputs"),
        "reference_outputs": (
            _messages(reference_outputs, "reference_outputs") if has_reference else None
        ),
    }


def _messages(value: Any, place: str) -> list[dict[str, Any]]:
    return [message.as_dict() for message in to_messages(value, place)]


def trajectory_text(value: Any) -> str:
    """Return a trajectory in words: a paragraph for each message, a line for each call."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return dumps(value)
    return "\n\n".join(_message_text(message) for message in value)


def _message_text(message: Any) -> str:
    if not isinstance(message, Mapping) or "role" not in message:
        return dumps(message)
    content = message.get("content")
    said = content if isinstance(content, str) else dumps(content) if content else ""
    name = f" {message['name']}" if message.get("name") else ""
    failed = " (failed)" if message.get("is_error") else ""
    lines = [f"{message['role']}{name}{failed}: {said}".rstrip()]
    for call in message.get("tool_calls") or ():
        function = call.get("function", {})
        lines.append(f"  calls {function.get('name')}({function.get('arguments')})")
    return "\n".join(lines)
