"""The outputs of a target: their JSON form, which is stored and shown, and their trajectory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from ..evaluators import to_messages
from ..model import Message, SpanRef, Trajectory
from ..serialization import to_jsonable

__all__ = ["json_form", "trajectory_of"]


def json_form(value: Any) -> Any:
    """Return a value as JSON values, with messages of any framework in OpenAI's form."""
    return to_jsonable(value, _convert_messages)


def _convert_messages(value: Any) -> Any:
    if isinstance(value, Trajectory):
        return [message.as_dict() for message in value.own_messages]
    if isinstance(value, Message):
        return value.as_dict()
    is_plain = isinstance(value, (Mapping, list, tuple, set, frozenset))
    if not is_plain and (hasattr(value, "tool_calls") or hasattr(value, "response_metadata")):
        try:  # LangChain's messages
            return to_messages([value])[0].as_dict()
        except InputError:
            pass
    return value


def trajectory_of(outputs: Any, trajectory_id: str) -> Trajectory | None:
    """Return the trajectory in a target's outputs; None if they hold no messages.

    Args:
        outputs: A trajectory, a list of messages, or a dict with ``messages`` or ``trajectory``.
        trajectory_id: The id of a trajectory that is made from messages.
    """
    if isinstance(outputs, Trajectory):
        return outputs
    if not isinstance(outputs, (list, Mapping)) or not outputs:
        return None
    if isinstance(outputs, Mapping) and isinstance(outputs.get("trajectory"), Trajectory):
        trajectory: Trajectory = outputs["trajectory"]
        return trajectory
    try:
        messages = to_messages(outputs)
    except InputError:
        return None
    return Trajectory(trajectory_id, SpanRef("", ""), tail=tuple(messages))
