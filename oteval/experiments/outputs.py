"""The outputs of a target: their JSON form, which is stored and shown, and their trajectory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from ..evaluators import to_messages
from ..evaluators.messages import is_message
from ..evaluators.passed_run import gaps_beside
from ..model import Gap, Message, SpanRef, Trajectory, Usage
from ..serialization import to_jsonable

__all__ = ["ANSWER_ONLY", "json_form", "trajectory_of"]

ANSWER_ONLY = Gap(
    "calls_not_captured",
    "the target returned only its answer, so that the run may have made calls; return all "
    "messages, or a Trajectory such as that of oteval.capture()",
)
"""The gap of a run of which only the answer is known."""


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
        outputs: A trajectory, a list of messages, or a dict with ``messages`` or ``trajectory``; or
            one message, the answer, of a run that is not known otherwise.
            A dict may also have ``agent``, ``service``, ``models``, ``usage`` and ``gaps``, in
            the form of `Trajectory.as_dict`.
        trajectory_id: The id of a trajectory that is made from messages.
    """
    if isinstance(outputs, Trajectory):
        return outputs
    if is_message(outputs):
        answer = to_messages(outputs)
        return Trajectory(trajectory_id, SpanRef("", ""), tail=answer, gaps=(ANSWER_ONLY,))
    if not isinstance(outputs, (list, Mapping)) or not outputs:
        return None
    if isinstance(outputs, Mapping) and isinstance(outputs.get("trajectory"), Trajectory):
        trajectory: Trajectory = outputs["trajectory"]
        return trajectory
    try:
        messages = to_messages(outputs)
    except InputError:
        return None
    facts = _facts(outputs) if isinstance(outputs, Mapping) else {}
    return Trajectory(trajectory_id, SpanRef("", ""), tail=tuple(messages), **facts)


def _facts(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about a run in its outputs, as fields of a trajectory."""
    names = ("agent", "service")
    found: dict[str, Any] = {
        name: outputs[name] for name in names if isinstance(outputs.get(name), str)
    }
    models, usage = outputs.get("models"), outputs.get("usage")
    if isinstance(models, list) and all(isinstance(one, str) for one in models):
        found["models"] = tuple(models)
    counts = Usage().as_dict().keys()
    if isinstance(usage, Mapping) and usage.keys() == counts:
        found["usage"] = Usage(**{name: int(usage[name]) for name in counts})
    found["gaps"] = gaps_beside(outputs)
    return found
