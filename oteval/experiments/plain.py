"""What users' functions return, as the JSON values that are stored and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from ..errors import InputError
from ..evaluators import to_messages
from ..jsontext import dumps_exact, restore
from ..model import Message, SpanRef, Trajectory

__all__ = ["plain", "trajectory_in"]


def plain(value: Any) -> Any:
    """Return a value as JSON has it: messages in OpenAI's form, models and dataclasses as dicts.

    What has no such form becomes its text.
    """
    return restore(dumps_exact(_plain(value)))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Trajectory):
        return [message.as_dict() for message in value.own_messages]
    if isinstance(value, Message):
        return value.as_dict()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if hasattr(value, "tool_calls") or hasattr(value, "response_metadata"):  # LangChain's
        try:
            return to_messages([value])[0].as_dict()
        except InputError:
            pass
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return _plain(dump(mode="json"))
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    return value


def trajectory_in(outputs: Any, name: str) -> Trajectory | None:
    """Return the trajectory that outputs are or hold; None where they hold no messages.

    Args:
        outputs: A trajectory, messages, or a dict with ``messages``.
        name: The id of one that is made of messages.
    """
    if isinstance(outputs, Trajectory):
        return outputs
    if not isinstance(outputs, (list, Mapping)) or not outputs:
        return None
    if isinstance(outputs, Mapping) and isinstance(outputs.get("trajectory"), Trajectory):
        found: Trajectory = outputs["trajectory"]
        return found
    try:
        messages = to_messages(outputs)
    except InputError:
        return None
    return Trajectory(name, SpanRef("", ""), tail=tuple(messages))
