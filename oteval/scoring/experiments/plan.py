"""The plan of an experiment: run a target on examples, or take sessions that ran already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...base.errors import ConfigError, InputError
from ...evaluators import passed_run
from ...model import (
    CASE_ATTRIBUTES,
    Dataset,
    Example,
    Selection,
    Trajectory,
    example_id,
    first_attribute,
    turn_case_id,
)
from ...store import Store
from .datasets import CASE_KEY, dataset_of, has_question, inputs_of, make_dataset
from .outputs import trajectory_of
from .paired_examples import SESSIONS

__all__ = ["Plan", "RunTask", "plan_of"]


@dataclass(frozen=True)
class RunTask:
    """One run of an experiment.

    Attributes:
        example: The example.
        repetition: Which repetition, from 0.
        session: The run itself, if it exists already.
    """

    example: Example
    repetition: int
    session: Trajectory | None = None


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment.

    Attributes:
        dataset: The examples.
        tasks: A task for each run.
        target: The function that is run; None for sessions.
        repetitions: The most runs of one example.
    """

    dataset: Dataset
    tasks: Sequence[RunTask]
    target: Callable[..., Any] | None
    repetitions: int


def plan_of(target: Any, data: Any, repetitions: int, store: Store) -> Plan:
    """The plan of an experiment.

    Args:
        target: A function from inputs to outputs, or a LangChain runnable; a list of
            trajectories or sessions; or a `Selection` of stored trajectories.
        data: The examples, in any form of `dataset_of`. Without them, every session is an example.
        repetitions: How often each example is run.
        store: The store with the datasets and trajectories.

    Raises:
        ConfigError: The target has none of these types, or its sessions do not match the examples.
        InputError: There is nothing to run.
    """
    if repetitions < 1:
        raise ConfigError(f"num_repetitions is {repetitions}; it must be 1 or more")
    if isinstance(target, Selection):
        return _plan_of_sessions(list(store.trajectories.read(target)), data, store)
    invoke = getattr(target, "invoke", None)
    if callable(invoke) and not isinstance(target, Trajectory):
        target = invoke  # a LangChain runnable, or a LangGraph graph
    if callable(target):
        if data is None:
            raise ConfigError("data is missing; a function needs examples to run on")
        dataset = dataset_of(data, store)
        tasks = [RunTask(example, n) for example in dataset.examples for n in range(repetitions)]
        return Plan(dataset, tasks, target, repetitions)
    if isinstance(target, Trajectory):
        target = [target]
    if isinstance(target, Iterable) and not isinstance(target, (str, bytes, Mapping)):
        sessions = [_session(session, f"sessions[{at}]") for at, session in enumerate(target)]
        return _plan_of_sessions(sessions, data, store)
    raise ConfigError(
        f"the target is {type(target).__name__}; pass a function, a list of sessions, "
        "a Selection, or two experiments"
    )


def _session(session: Any, source: str) -> Trajectory:
    """A session as a trajectory; a dict may have an id besides its messages."""
    if isinstance(session, Trajectory):
        return session
    trajectory = trajectory_of(session, "") or passed_run(session, source)
    if not isinstance(session, Mapping):
        return trajectory
    case = next((session[key] for key in (CASE_KEY, "id") if session.get(key) is not None), None)
    return trajectory if case is None else replace(trajectory, attributes={CASE_KEY: str(case)})


def _plan_of_sessions(sessions: Sequence[Trajectory], data: Any, store: Store) -> Plan:
    if not sessions:
        raise InputError("no sessions to evaluate; oteval trajectories lists stored ones")
    if data is None:
        dataset = _dataset_of_sessions(sessions)
        names = _example_ids(sessions)
    else:
        dataset = dataset_of(data, store)
        names = _match_examples(sessions, dataset)
    examples = {example.id: example for example in dataset.examples}
    counts: Counter[str] = Counter()
    tasks = []
    for name, session in zip(names, sessions, strict=True):
        tasks.append(RunTask(examples[name], counts[name], session))
        counts[name] += 1
    return Plan(dataset, tasks, target=None, repetitions=max(counts.values()))


def _example_ids(sessions: Sequence[Trajectory]) -> list[str]:
    """The example of each session: its case, or else a hash of the question.

    A session without a case and without a captured question is an example by itself: missing
    questions do not make two sessions equal.
    """
    return [_example_id(session, at) for at, session in enumerate(sessions)]


def _example_id(session: Trajectory, at: int) -> str:
    if case := first_attribute(session, CASE_ATTRIBUTES):
        return case
    if has_question(session.own_messages):
        return turn_case_id(inputs_of(session.own_messages), session.turn)
    messages = [message.as_dict() for message in session.messages]
    return session.id or example_id({"session": at, "messages": messages})


def _dataset_of_sessions(sessions: Sequence[Trajectory]) -> Dataset:
    """A dataset of the sessions' inputs; sessions with one question are one example."""
    examples: dict[str, Example] = {}
    for name, session in zip(_example_ids(sessions), sessions, strict=True):
        if name not in examples:
            examples[name] = Example(name, inputs_of(session.own_messages))
    return make_dataset(examples.values(), SESSIONS, SESSIONS)


def _match_examples(sessions: Sequence[Trajectory], dataset: Dataset) -> list[str]:
    """The example of each session, matched by case, else by inputs, question or position."""
    ids = {example.id: example.id for example in dataset.examples}
    by_inputs = {example_id(example.inputs): example.id for example in reversed(dataset.examples)}
    by_case = {example.case: example.id for example in reversed(dataset.examples)}
    matches = []
    for name, session in zip(_example_ids(sessions), sessions, strict=True):
        inputs = inputs_of(session.own_messages)
        match = ids.get(name) or by_inputs.get(example_id(inputs)) or by_case.get(name)
        # An example does not show its turn unless its id does.
        matches.append(match or by_case.get(turn_case_id(inputs, 1)))
    if all(matches):
        return [name for name in matches if name]
    if not any(matches) and len(sessions) == len(dataset.examples):
        return [example.id for example in dataset.examples]
    at = matches.index(None)
    raise ConfigError(
        f"sessions[{at}] matches no example of {dataset.name}; "
        f"its {CASE_KEY!r} or its question must match an example"
    )
