"""The outputs of a target: their JSON form, which is stored and shown, and their trajectory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from datetime import date, time
from enum import Enum
from numbers import Number
from pathlib import PurePath
from typing import Any
from uuid import UUID

from ...base.errors import InputError, NotFound
from ...base.jsontext import to_jsonable
from ...evaluators import gaps_beside, is_message, passed_run, to_messages
from ...model import ANSWER_ONLY, Message, Run, Trajectory, Usage
from ...store import Store
from .observation import Observation
from .observed_runs import hides_calls, observed_trajectory, unobserved_gaps

__all__ = [
    "facts_of",
    "json_form",
    "output_form",
    "trajectory_of",
    "trajectory_of_run",
]

# Values whose text is the value; numbers may be from numpy and `decimal`.
_PRINTED = (Number, Enum, PurePath, UUID, date, time)


def json_form(value: Any) -> Any:
    """A value as JSON values, with messages of any framework in OpenAI's form."""
    return to_jsonable(value, _convert_messages)


def output_form(value: Any) -> Any:
    """The outputs of a target as JSON values.

    Raises:
        InputError: A value has no JSON form, such as a stream that was not read. Python's text for
            it is not the answer of the target.
    """
    return to_jsonable(value, _convert_output)


def _convert_output(value: Any) -> Any:
    converted = _convert_messages(value)
    kind = type(converted)
    is_known = (
        isinstance(converted, (Mapping, list, tuple, set, frozenset, *_PRINTED))
        or callable(getattr(kind, "model_dump", None))
        or (is_dataclass(converted) and not isinstance(converted, type))
    )
    if is_known:
        return converted
    if isinstance(getattr(converted, "messages", None), (list, tuple)):
        return {"messages": converted.messages}
    raise InputError(
        f"the target returned a {kind.__name__}, which has no JSON form; "
        "return a text, messages, or a dict (of a stream, its joined parts)"
    )


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
    """The trajectory in a target's outputs; None if they contain no messages.

    Args:
        outputs: A trajectory, a list of messages, or a dict with ``messages`` or, without
            messages, ``trajectory``. Or one message, the answer, if nothing else of the run is
            known. A dict may also have ``agent``, ``service``, ``models``, ``finish_reasons``,
            ``tools``, ``usage`` and ``gaps``, in the form of `Trajectory.as_dict`.
        trajectory_id: The id of a trajectory that is made from messages.
    """
    if isinstance(outputs, Trajectory):
        return outputs
    if is_message(outputs):
        return passed_run(outputs, run_id=trajectory_id)
    if not isinstance(outputs, (list, Mapping)) or not outputs:
        return None
    fields = outputs if isinstance(outputs, Mapping) else {}
    inner = fields.get("trajectory")
    if isinstance(inner, Trajectory):
        return inner
    # The JSON form of a trajectory is a list; beside messages, the list contains something else.
    is_json_form = isinstance(inner, list) and fields.get("messages") is None
    try:
        messages = {**fields, "messages": inner} if is_json_form else outputs
        run = passed_run(messages, run_id=trajectory_id)
    except InputError:
        return None
    return replace(run, **_facts(fields))


def trajectory_of_run(run: Run, store: Store | None = None) -> Trajectory | None:
    """The trajectory of a stored run; None without messages.

    Args:
        run: The run.
        store: The store with the trajectory of an observed run; without it, only the outputs and
            facts of the run count.
    """
    if run.trajectory is not None:
        return run.trajectory
    trajectory = trajectory_of(run.outputs, run.id)
    if trajectory is not None and run.facts:
        trajectory = replace(trajectory, gaps=gaps_beside(run.facts), **_facts(run.facts))
    if store is None or not run.trajectory_id or hides_calls(gaps_beside(run.facts)):
        return trajectory
    try:
        stored = store.trajectories.get(run.trajectory_id)
    except NotFound:
        return trajectory
    return observed_trajectory(trajectory, run.outputs, Observation(trajectories=[stored]))


def facts_of(trajectory: Trajectory | None, observation: Observation) -> dict[str, Any]:
    """The facts about a run that its messages do not show, for `Run.facts`.

    Args:
        trajectory: The run's trajectory.
        observation: The observation of the target's call, for the reason of a missing trajectory.
    """
    if trajectory is None:
        gaps = unobserved_gaps(observation)
        return {"gaps": [gap.as_dict() for gap in gaps]} if gaps != (ANSWER_ONLY,) else {}
    facts: dict[str, Any] = {
        "agent": trajectory.agent,
        "service": trajectory.service,
        "models": list(trajectory.models),
        "finish_reasons": list(trajectory.finish_reasons),
        "usage": trajectory.usage.as_dict() if trajectory.usage != Usage() else None,
        "gaps": [gap.as_dict() for gap in trajectory.gaps],
    }
    return {name: value for name, value in facts.items() if value}


def _facts(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """The facts about a run in its outputs, as fields of a trajectory."""
    names = ("agent", "service")
    facts: dict[str, Any] = {
        name: outputs[name] for name in names if isinstance(outputs.get(name), str)
    }
    for name in ("models", "finish_reasons"):
        texts = outputs.get(name)
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            facts[name] = tuple(texts)
    usage = outputs.get("usage")
    counts = Usage().as_dict().keys()
    if isinstance(usage, Mapping) and usage.keys() == counts:
        facts["usage"] = Usage(**{name: int(usage[name]) for name in counts})
    return facts
