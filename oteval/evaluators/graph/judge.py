"""Judges of graph trajectories.

The judge sees the **thread**: the input, the nodes and the result of each turn. A prompt contains
it as ``{thread}``, and may also contain ``{inputs}``, ``{outputs}`` and ``{reference_outputs}``
(a thread as well).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from ...base.errors import InputError
from ...base.jsontext import dumps
from ...messages import field_of
from ..judge.evaluator import AsyncJudgeEvaluator, JudgeEvaluator, as_async
from ..judge.factory import make_judge, show_options
from ..judge.options import JudgeOptions
from ..judge.prompt import to_json
from ..judge.prompts import GRAPH_TRAJECTORY_ACCURACY_PROMPT
from .forms import read_turns, unwrapped

__all__ = [
    "create_async_graph_trajectory_llm_as_judge",
    "create_graph_trajectory_llm_as_judge",
    "thread_of",
]

Thread = list[dict[str, Any]]


@show_options(JudgeOptions)
def create_graph_trajectory_llm_as_judge(
    *,
    prompt: Any = GRAPH_TRAJECTORY_ACCURACY_PROMPT,
    feedback_key: str = "graph_trajectory_accuracy",
    **options: Unpack[JudgeOptions],
) -> JudgeEvaluator:
    """Create an evaluator that asks a language model about a graph trajectory.

    ``outputs`` and ``reference_outputs`` may have any form of `oteval.evaluators.graph.forms`.
    ``inputs``, a list or a dict with the list under ``inputs``, has one entry for each turn;
    without it, the judge sees the inputs in ``outputs``. Any other ``inputs`` are shown separately
    from the thread. The evaluator raises `InputError` for outputs that are not a graph trajectory.

    Args:
        prompt: As for `create_llm_as_judge`, with ``{thread}``.
        feedback_key: The name of the score.
        **options: See `JudgeOptions`.

    Raises:
        ConfigError: An option is wrong; the message names it and the remedy.
    """
    return _make_judge(prompt, feedback_key, options)


@show_options(JudgeOptions)
def create_async_graph_trajectory_llm_as_judge(
    *,
    prompt: Any = GRAPH_TRAJECTORY_ACCURACY_PROMPT,
    feedback_key: str = "graph_trajectory_accuracy",
    **options: Unpack[JudgeOptions],
) -> AsyncJudgeEvaluator:
    """Create the asynchronous form of the evaluator of `create_graph_trajectory_llm_as_judge`."""
    return as_async(_make_judge(prompt, feedback_key, options, is_async=True))


def _make_judge(
    prompt: Any, feedback_key: str, options: JudgeOptions, *, is_async: bool = False
) -> JudgeEvaluator:
    return make_judge(
        prompt,
        feedback_key,
        options,
        partial(_make_variables, prompt),
        _text,
        # As in agentevals, whose example of a prompt shows it without a value.
        optional=("reference_outputs",),
        is_async=is_async,
    )


def _make_variables(
    prompt: Any, outputs: Any, reference_outputs: Any, inputs: Any, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """The variables of a prompt about a graph trajectory."""
    turn_inputs = _by_turn(inputs)
    thread = thread_of(outputs, "outputs", turn_inputs)
    # The thread shows the inputs already.
    is_shown = turn_inputs is not None and prompt == GRAPH_TRAJECTORY_ACCURACY_PROMPT
    has_reference = reference_outputs is not None and reference_outputs != ""
    reference = thread_of(reference_outputs, "reference_outputs") if has_reference else None
    return {
        **extra,
        "inputs": None if is_shown else inputs,
        "outputs": [{key: turn[key] for key in turn if key != "input"} for turn in thread],
        "thread": thread,
        "reference_outputs": reference,
    }


def _by_turn(inputs: Any) -> list[Any] | None:
    inner = inputs["inputs"] if isinstance(inputs, Mapping) and "inputs" in inputs else inputs
    return list(inner) if isinstance(inner, (list, tuple)) else None


def thread_of(value: Any, name: str, inputs: Sequence[Any] | None = None) -> Thread:
    """A graph trajectory as a judge sees it.

    Args:
        value: The graph trajectory in any form.
        name: Its name in error messages.
        inputs: The inputs, one entry per turn; None takes the trajectory's own.

    Returns:
        For each turn ``nodes``, and ``input`` and ``result`` if known.

    Raises:
        InputError: The value cannot be read as a graph trajectory, or the numbers of its inputs,
            results and turns differ.
    """
    turns = read_turns(value, name)
    own = field_of(unwrapped(value, name), "inputs") or field_of(value, "inputs")
    inputs_name = f"{name}.inputs" if inputs is None else "inputs"
    turn_inputs = _column(inputs_name, inputs or own, turns)
    results = _column(f"{name}.results", field_of(unwrapped(value, name), "results"), turns)
    thread: Thread = []
    for i, nodes in enumerate(turns):
        turn: dict[str, Any] = {"nodes": nodes}
        if turn_inputs:
            turn = {"input": to_json(turn_inputs[i]), **turn}
        if results:
            turn["result"] = to_json(results[i])
        thread.append(turn)
    return thread


def _column(name: str, values: Any, turns: Sequence[Any]) -> Sequence[Any]:
    if not isinstance(values, (list, tuple)) or not values:
        return ()
    if len(values) != len(turns):
        raise InputError(f"{name} has {len(values)} entries for {len(turns)} turns of steps")
    return values


def _text(value: Any) -> str:
    """A thread in words, for prompts without blocks of data."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(_is_turn(turn) for turn in value):
        return dumps(to_json(value))
    return "\n\n".join(_turn_text(number, turn) for number, turn in enumerate(value, 1))


def _is_turn(value: Any) -> bool:
    return isinstance(value, Mapping) and "nodes" in value


def _turn_text(number: int, turn: Mapping[str, Any]) -> str:
    lines = [f"Turn {number}"]
    if "input" in turn:
        lines.append(f"  input: {dumps(turn['input'])}")
    lines.append(f"  nodes: {' -> '.join(turn['nodes']) or '(none)'}")
    if "result" in turn:
        lines.append(f"  result: {dumps(turn['result'])}")
    return "\n".join(lines)
