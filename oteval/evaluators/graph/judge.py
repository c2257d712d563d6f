"""Language models as judges of graph trajectories.

The judge is shown the **thread**: for each turn its input, the nodes that ran, and its result. A
prompt has it as ``{thread}``; ``{inputs}``, ``{outputs}`` and ``{reference_outputs}`` (a thread as
well) may be used too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from ...errors import InputError
from ...jsontext import dumps
from ..judge.evaluator import AsyncJudgeEvaluator, JudgeEvaluator, Prepare
from ..judge.factory import as_async, make_evaluator
from ..judge.making import Options, Question
from ..judge.prompts import GRAPH_TRAJECTORY_ACCURACY_PROMPT
from ..judge.rendering import plain
from ..messages import field
from .forms import read_turns, unwrapped

__all__ = [
    "create_async_graph_trajectory_llm_as_judge",
    "create_graph_trajectory_llm_as_judge",
    "thread_of",
]

Thread = list[dict[str, Any]]


def create_graph_trajectory_llm_as_judge(
    *,
    prompt: Any = GRAPH_TRAJECTORY_ACCURACY_PROMPT,
    model: str | None = None,
    system: str | None = None,
    feedback_key: str = "graph_trajectory_accuracy",
    judge: Any = None,
    continuous: bool = False,
    choices: Sequence[float] | None = None,
    use_reasoning: bool = True,
    few_shot_examples: Iterable[Mapping[str, Any]] | None = None,
    output_schema: Any = None,
    **options: Unpack[Options],
) -> JudgeEvaluator:
    """Create an evaluator that asks a language model about a graph trajectory.

    ``outputs`` and ``reference_outputs`` may be in any form of `oteval.evaluators.graph.forms`.
    ``inputs``, a list or a dict with the list under ``inputs``, has one entry a turn; without it
    those of ``outputs`` are shown. Anything else as ``inputs`` is shown apart from the thread.

    Args:
        prompt: As for `create_llm_as_judge`, with ``{thread}``.
        model: As there.
        system: As there.
        feedback_key: As there.
        judge: As there.
        continuous: As there.
        choices: As there.
        use_reasoning: As there.
        few_shot_examples: As there.
        output_schema: As there.
        **options: As there.

    Returns:
        The evaluator. Called with what is no graph trajectory it raises `InputError`.

    Raises:
        ConfigError: An argument is wrong; the text names it and says what to write.
    """
    return make_evaluator(
        Question(
            prompt=prompt,
            model=model,
            system=system,
            feedback_key=feedback_key,
            judge=judge,
            continuous=continuous,
            choices=choices,
            use_reasoning=use_reasoning,
            few_shot_examples=few_shot_examples,
            output_schema=output_schema,
        ),
        _prepare(prompt),
        _text,
        **options,
    )


def create_async_graph_trajectory_llm_as_judge(
    *,
    prompt: Any = GRAPH_TRAJECTORY_ACCURACY_PROMPT,
    model: str | None = None,
    system: str | None = None,
    feedback_key: str = "graph_trajectory_accuracy",
    judge: Any = None,
    continuous: bool = False,
    choices: Sequence[float] | None = None,
    use_reasoning: bool = True,
    few_shot_examples: Iterable[Mapping[str, Any]] | None = None,
    output_schema: Any = None,
    **options: Unpack[Options],
) -> AsyncJudgeEvaluator:
    """Create a coroutine function that does what `create_graph_trajectory_llm_as_judge`'s does.

    Args:
        prompt: As there.
        model: As there.
        system: As there.
        feedback_key: As there.
        judge: As there; it may be asynchronous.
        continuous: As there.
        choices: As there.
        use_reasoning: As there.
        few_shot_examples: As there.
        output_schema: As there.
        **options: As there.

    Returns:
        The evaluator; its ``evaluator`` attribute holds the configuration.

    Raises:
        ConfigError: An argument is wrong; the text names it and says what to write.
    """
    return as_async(
        make_evaluator(
            Question(
                prompt=prompt,
                model=model,
                system=system,
                feedback_key=feedback_key,
                judge=judge,
                continuous=continuous,
                choices=choices,
                use_reasoning=use_reasoning,
                few_shot_examples=few_shot_examples,
                output_schema=output_schema,
            ),
            _prepare(prompt),
            _text,
            is_async=True,
            **options,
        )
    )


def _prepare(prompt: Any) -> Prepare:
    def prepare(
        outputs: Any, reference_outputs: Any, inputs: Any, extra: Mapping[str, Any]
    ) -> dict[str, Any]:
        said = _by_turn(inputs)
        thread = thread_of(outputs, "outputs", said)
        # What stands in the thread need not be told twice.
        told = said is not None and prompt == GRAPH_TRAJECTORY_ACCURACY_PROMPT
        has_reference = reference_outputs is not None and reference_outputs != ""
        reference = thread_of(reference_outputs, "reference_outputs") if has_reference else None
        return {
            **extra,
            "inputs": None if told else inputs,
            "outputs": [{key: turn[key] for key in turn if key != "input"} for turn in thread],
            "thread": thread,
            "reference_outputs": reference,
        }

    return prepare


def _by_turn(inputs: Any) -> list[Any] | None:
    inner = inputs["inputs"] if isinstance(inputs, Mapping) and "inputs" in inputs else inputs
    return list(inner) if isinstance(inner, (list, tuple)) else None


def thread_of(value: Any, place: str, inputs: Sequence[Any] | None = None) -> Thread:
    """Return what a judge is shown of a graph trajectory.

    Args:
        value: The graph trajectory in any form.
        place: What error messages call it.
        inputs: What went in, one entry a turn; None takes the trajectory's own.

    Returns:
        For each turn ``input`` and ``result``, where they are known, and ``nodes``.

    Raises:
        InputError: The value is no graph trajectory, or its inputs or results are not as many as
            its turns.
    """
    turns = read_turns(value, place)
    own = field(unwrapped(value, place), "inputs") or field(value, "inputs")
    said = _column("inputs" if inputs is not None else f"{place}.inputs", inputs or own, turns)
    results = _column(f"{place}.results", field(unwrapped(value, place), "results"), turns)
    thread: Thread = []
    for i, nodes in enumerate(turns):
        turn: dict[str, Any] = {"nodes": nodes}
        if said:
            turn = {"input": plain(said[i]), **turn}
        if results:
            turn["result"] = plain(results[i])
        thread.append(turn)
    return thread


def _column(place: str, values: Any, turns: Sequence[Any]) -> Sequence[Any]:
    if not isinstance(values, (list, tuple)) or not values:
        return ()
    if len(values) != len(turns):
        raise InputError(f"{place} has {len(values)} entries for {len(turns)} turns of steps")
    return values


def _text(value: Any) -> str:
    """Return a thread in words, for prompts that are shown no block of data."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(_is_turn(turn) for turn in value):
        return dumps(plain(value))
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
