"""The run of a target: as it was observed, as its outputs show it, or with a gap for its calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ...base.jsontext import canonical
from ...model import ANSWER_ONLY, Gap, Message, Trajectory, normal_text
from .observation import Observation, whole_runs

__all__ = ["answer_message", "hides_calls", "observed_id", "observed_trajectory", "unobserved_gaps"]


def observed_trajectory(
    returned: Trajectory | None, outputs: Any, observation: Observation
) -> Trajectory | None:
    """The trajectory of a target's call: the observed agent run, with the answer that it returned.

    Returned messages replace the observed run if they show all of its calls, and others. A run that
    was not observed, or not as one, has a gap for its calls, unless its messages were returned.

    Args:
        returned: The trajectory in the outputs, as by `trajectory_of`.
        outputs: The outputs.
        observation: The observation of the call.
    """
    if returned is not None and returned.id in {run.id for run in observation.trajectories}:
        return returned
    runs = whole_runs(observation.trajectories)
    is_answer = returned is None or hides_calls(returned.gaps)
    if len(runs) != 1 and is_answer:
        if returned is None or ANSWER_ONLY not in returned.gaps:
            return returned
        return replace(returned, gaps=unobserved_gaps(observation))
    answer = outputs if isinstance(outputs, str) else _answer_of(returned)
    if is_answer:
        return _answering(runs[0], answer)
    assert returned is not None
    observed, shown = _calls(runs), _calls([returned])
    if len(runs) == 1 and not shown - observed:
        return _answering(runs[0], answer)
    if not observed - shown:
        return returned
    unseen = ", ".join(sorted({name for name, _ in observed - shown}))
    gap = replace(ANSWER_ONLY, detail=f"the target made calls that it did not return: {unseen}")
    return replace(returned, gaps=(*returned.gaps, gap))


def observed_id(trajectory: Trajectory | None, observation: Observation) -> str:
    """The id of the stored trajectory that shows a run; "" if there is none."""
    ids = [run.id for run in observation.trajectories]
    if trajectory is not None and trajectory.id in ids:
        return trajectory.id
    return next((run.id for run in whole_runs(observation.trajectories)), "")


def hides_calls(gaps: Iterable[Gap]) -> bool:
    """Whether gaps are those of a run of which only the answer is known."""
    return any(gap.code == ANSWER_ONLY.code for gap in gaps)


def answer_message(outputs: Any) -> tuple[Message, ...]:
    """The text that a target returned as its answer; nothing for other outputs."""
    return (Message("assistant", outputs),) if isinstance(outputs, str) else ()


def unobserved_gaps(observation: Observation) -> tuple[Gap, ...]:
    """The gap of a run of which only the answer is known, with the reason."""
    runs = whole_runs(observation.trajectories)
    if runs:
        agents = ", ".join(run.agent or "an agent without a name" for run in runs)
        reason = (
            f"the target ran {len(runs)} agents ({agents}): mark it with @oteval.agent, or return "
            "the Trajectory of one"
        )
    elif observation.missing:
        reason = f"the target was not observed: {observation.missing}; return all messages"
    else:
        return (ANSWER_ONLY,)
    return (replace(ANSWER_ONLY, detail=reason),)


def _answer_of(returned: Trajectory | None) -> str | None:
    last = returned.messages[-1] if returned is not None and returned.messages else None
    return last.content if last is not None and last.role == "assistant" else None


def _answering(run: Trajectory, answer: str | None) -> Trajectory:
    """A run whose last answer is the one that the target returned."""
    last = run.messages[-1]
    is_answer = last.role == "assistant" and not last.tool_calls
    if answer is None or (is_answer and normal_text(last.content or "") == normal_text(answer)):
        return run
    if is_answer and run.tail:
        return replace(run, tail=(*run.tail[:-1], replace(last, content=answer)))
    return replace(run, tail=(*run.tail, Message("assistant", answer)))


def _calls(runs: Iterable[Trajectory]) -> Counter[tuple[str, str]]:
    """The tool calls of runs: their names and arguments."""
    return Counter(
        (call.name, canonical(call.arguments))
        for run in runs
        for message in run.messages
        for call in message.tool_calls
    )
