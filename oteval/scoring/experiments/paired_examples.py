"""Pair the runs of experiments by the user's questions.

Examples with equal ids are the same. So are examples with one question
(`oteval.model.experiment`), so that experiments pair after the system prompt has changed. Examples
with two different explicit ids stay apart. If several examples of a dataset have one question, they
pair in their order. If sessions have one question, they are repetitions of one example.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...model import Dataset, Example
from .results import ExperimentResults, ResultRow

__all__ = ["SESSIONS", "RunGroup", "paired_rows", "run_groups", "with_common_examples"]

SESSIONS = "sessions"
"""The name of the dataset that consists of the sessions of an experiment."""


@dataclass(frozen=True)
class RunGroup:
    """The runs of one example in two experiments.

    Attributes:
        id: The id of the example; for sessions that both experiments have, of the session.
        before: The runs of the first experiment.
        now: The runs of the second.
    """

    id: str
    before: list[ResultRow] = field(default_factory=list)
    now: list[ResultRow] = field(default_factory=list)


def with_common_examples(results: Sequence[ExperimentResults]) -> list[ExperimentResults]:
    """The experiments, with equal ids for examples with one question.

    Args:
        results: The experiments that are compared.
    """
    joined = [_with_repetitions(experiment) for experiment in results]
    first = joined[:1]
    return first + [
        _renamed(experiment, _counterparts(first[0].dataset, experiment.dataset))
        for experiment in joined[1:]
    ]


def paired_rows(
    results: Sequence[ExperimentResults],
) -> dict[tuple[str, int], tuple[ResultRow, ...]]:
    """The runs that all experiments have, by example and repetition.

    Args:
        results: The experiments, as `with_common_examples` returns them.
    """
    sides = [
        {(row.example.id, row.run.repetition): row for row in experiment_rows}
        for experiment_rows in results
    ]
    return {
        key: tuple(side[key] for side in sides)
        for key in (sides[0] if sides else ())
        if all(key in side for side in sides)
    }


def run_groups(
    results: tuple[ExperimentResults, ExperimentResults],
    paired: tuple[ExperimentResults, ExperimentResults],
) -> list[RunGroup]:
    """The runs of two experiments by example.

    Sessions with one question stay apart if both experiments have them: each was repeated.

    Args:
        results: The experiments.
        paired: The same, as `with_common_examples` returns them.
    """
    own_ids = [{row.example.id for row in side} for side in results]
    shared = own_ids[0] & own_ids[1]
    groups: dict[str, RunGroup] = {}
    for own, joined, name in zip(results, paired, ("before", "now"), strict=True):
        for own_row, row in zip(own, joined, strict=True):
            group_id = own_row.example.id if own_row.example.id in shared else row.example.id
            getattr(groups.setdefault(group_id, RunGroup(group_id)), name).append(row)
    return list(groups.values())


def _with_repetitions(results: ExperimentResults) -> ExperimentResults:
    """An experiment where sessions with one question are repetitions of one example."""
    if results.dataset.name != SESSIONS:
        return results
    first_of: dict[str, Example] = {}
    counterparts = {
        example.id: first_of.setdefault(example.case, example)
        for example in results.dataset.examples
        if not example.has_own_id
    }
    joined = _renamed(results, counterparts)
    if joined is results:
        return results
    counts: Counter[str] = Counter()
    rows = []
    for row in joined.rows:
        rows.append(replace(row, run=replace(row.run, repetition=counts[row.example.id])))
        counts[row.example.id] += 1
    return replace(joined, rows=tuple(rows))


def _counterparts(first: Dataset, second: Dataset) -> Mapping[str, Example]:
    """The examples of the first dataset for the examples of the second that have other ids."""
    shared = {example.id for example in first.examples}
    shared.intersection_update(example.id for example in second.examples)
    counterparts: dict[str, Example] = {}
    theirs = _by_case(second, shared)
    for case, ours in _by_case(first, shared).items():
        pair = [ours, theirs.get(case, [])]
        if sum(example.has_own_id for side in pair for example in side) > 1:
            pair = [[example for example in side if not example.has_own_id] for side in pair]
        counterparts.update(
            {counterpart.id: example for example, counterpart in zip(*pair, strict=False)}
        )
    return counterparts


def _by_case(dataset: Dataset, shared: Collection[str]) -> Mapping[str, list[Example]]:
    """The examples without shared ids, in order, by their question."""
    by_case: dict[str, list[Example]] = {}
    for example in dataset.examples:
        if example.id not in shared:
            by_case.setdefault(example.case, []).append(example)
    return by_case


def _renamed(results: ExperimentResults, counterparts: Mapping[str, Example]) -> ExperimentResults:
    """An experiment with some examples replaced, by the ids of the old examples."""
    if all(name == example.id for name, example in counterparts.items()):
        return results
    examples = {
        example.id: counterparts.get(example.id, example) for example in results.dataset.examples
    }
    rows = []
    for row in results.rows:
        example = examples[row.example.id]
        rows.append(replace(row, example=example, run=replace(row.run, example_id=example.id)))
    unique = {example.id: example for example in examples.values()}
    dataset = replace(results.dataset, examples=tuple(unique.values()))
    return replace(results, dataset=dataset, rows=tuple(rows))
