"""What an experiment is made of: a system to run, or sessions that have been run already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError, InputError
from ..evaluators import to_messages
from ..model import Dataset, Example, SpanRef, Trajectory, example_id
from ..selection import Selection
from ..store import Store
from .datasets import CASE_KEY, asked, dataset_of, is_question_known, make_dataset
from .plain import trajectory_in

__all__ = ["Plan", "Task", "plan_of"]


@dataclass(frozen=True)
class Task:
    """One run to be had.

    Attributes:
        example: The example.
        repetition: Which repetition, from 0.
        session: The run as it was, where it has been.
    """

    example: Example
    repetition: int
    session: Trajectory | None = None


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    Attributes:
        dataset: The examples.
        tasks: A task for each run.
        target: What makes outputs of inputs; None where the sessions are there.
        repetitions: The most often that an example is run.
    """

    dataset: Dataset
    tasks: Sequence[Task]
    target: Callable[..., Any] | None
    repetitions: int


def plan_of(target: Any, data: Any, repetitions: int, store: Store) -> Plan:
    """Return what an experiment has to do.

    Args:
        target: A function from inputs to outputs, or a LangChain runnable; a list of
            trajectories or sessions; or a `Selection` of stored ones.
        data: The examples, in any form of `dataset_of`; without, every session is one.
        repetitions: How often each example is run.
        store: Where datasets and trajectories are.

    Raises:
        ConfigError: The target is nothing of that, or its sessions do not fit the examples.
        InputError: There is nothing to run.
    """
    if repetitions < 1:
        raise ConfigError(f"num_repetitions is {repetitions}; it must be 1 or more")
    if isinstance(target, Selection):
        return _plan(list(store.trajectories.read(target)), data, store)
    invoke = getattr(target, "invoke", None)
    if callable(invoke) and not isinstance(target, Trajectory):
        target = invoke  # a LangChain runnable, or a graph of LangGraph's
    if callable(target):
        if data is None:
            raise ConfigError("data is missing: a function needs examples to run on")
        dataset = dataset_of(data, store)
        tasks = [Task(example, n) for example in dataset.examples for n in range(repetitions)]
        return Plan(dataset, tasks, target, repetitions)
    if isinstance(target, Trajectory):
        target = [target]
    if isinstance(target, Iterable) and not isinstance(target, (str, bytes, Mapping)):
        found = [_session(one, f"sessions[{at}]") for at, one in enumerate(target)]
        return _plan(found, data, store)
    raise ConfigError(
        f"the target is {type(target).__name__}: give a function, a list of sessions, "
        "a Selection, or two experiments"
    )


def _session(one: Any, place: str) -> Trajectory:
    """Return a session as a trajectory; a dict may hold an id beside its messages."""
    if isinstance(one, Trajectory):
        return one
    try:
        messages = to_messages(one, place)
    except InputError:
        found = trajectory_in(one, "")
        if found is None:
            raise
        return found
    attributes = {}
    if isinstance(one, Mapping):
        case = next((one[key] for key in (CASE_KEY, "id") if one.get(key) is not None), None)
        attributes = {} if case is None else {CASE_KEY: str(case)}
    return Trajectory("", SpanRef("", ""), tail=tuple(messages), attributes=attributes)


def _plan(sessions: Sequence[Trajectory], data: Any, store: Store) -> Plan:
    if not sessions:
        raise InputError("there are no sessions to evaluate; oteval trajectories lists them")
    dataset = dataset_of(data, store) if data is not None else _own_dataset(sessions)
    known = {example.id: example for example in dataset.examples}
    names = _placed(sessions, dataset) if data is not None else _names(sessions)
    counts: Counter[str] = Counter()
    tasks = []
    for name, session in zip(names, sessions, strict=True):
        tasks.append(Task(known[name], counts[name], session))
        counts[name] += 1
    return Plan(dataset, tasks, None, max(counts.values()))


def _names(sessions: Sequence[Trajectory]) -> list[str]:
    """Return the example that each session is a run of: its case, or else what it was given.

    A session without a case and without a captured question is an example of its own: what the
    traces do not hold makes no two sessions alike.
    """
    return [_name(session, at) for at, session in enumerate(sessions)]


def _name(session: Trajectory, at: int) -> str:
    case = session.attributes.get(CASE_KEY)
    if case is not None:
        return str(case)
    if is_question_known(session.own_messages):
        return example_id(asked(session.own_messages))
    messages = [message.as_dict() for message in session.messages]
    return session.id or example_id({"session": at, "messages": messages})


def _own_dataset(sessions: Sequence[Trajectory]) -> Dataset:
    """Return a dataset of what the sessions were given; equal ones are one example."""
    examples: dict[str, Example] = {}
    for name, session in zip(_names(sessions), sessions, strict=True):
        if name not in examples:
            examples[name] = Example(name, asked(session.own_messages))
    return make_dataset(examples.values(), "sessions", "sessions")


def _placed(sessions: Sequence[Trajectory], dataset: Dataset) -> list[str]:
    """Return the example that each session belongs to: by its case, its inputs, or its place."""
    known = {example.id for example in dataset.examples}
    by_inputs = {example_id(example.inputs): example.id for example in dataset.examples}
    found = [name if name in known else by_inputs.get(name) for name in _names(sessions)]
    if all(found):
        return [name for name in found if name]
    if not any(found) and len(sessions) == len(dataset.examples):
        return [example.id for example in dataset.examples]
    at = found.index(None)
    raise ConfigError(
        f"sessions[{at}] belongs to no example of {dataset.name}: "
        f"its {CASE_KEY!r} or its first messages must be those of one"
    )
