"""The runs of a report, stored or from experiments, and the ways to group stored runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import combinations

import pyarrow as pa

from ...base.errors import ConfigError
from ...model import (
    CASE_ATTRIBUTES,
    GROUPS,
    Experiment,
    Run,
    RunValues,
    Score,
    Selection,
    Trajectory,
    Vote,
    first_attribute,
    group_text,
    question_of,
)
from ...scoring import (
    Comparison,
    ExperimentResults,
    load_experiment,
    paired_rows,
    pairs_of,
    with_common_examples,
)
from ...store import RunExpression, RunFunction, RunGroups, Store
from ..run_changes import ShownComparison, shown_comparison
from ..run_texts import case_key, question_line
from ..text import clean, one_line
from .model import PairwiseExample, PairwiseSummary, ReportRun, RunVerdict

__all__ = [
    "BY",
    "comparisons_of",
    "experiment_runs",
    "from_experiments",
    "from_keys",
    "grouping",
    "pairwise_of",
    "run_groups",
]

_PAGE = 500
NONE = "(none)"


def _by_time(form: str) -> RunFunction:
    """The grouping by the time when runs began, which is the same for an hour."""

    def group(values: RunValues) -> str:
        try:
            return datetime.fromtimestamp(values("hour") // 10**9, UTC).strftime(form)
        except (OverflowError, ValueError, OSError):
            return ""

    return _named(group, "hour")


def _by_column(name: str) -> RunFunction:
    return _named(partial(group_text, name), name)


def _named(group: Callable[[RunValues], str], column: str) -> RunFunction:
    """A grouping that puts runs without a name into the group `NONE`."""
    return RunFunction((column,), lambda values: group(values) or NONE, pa.string())


# Ways to group runs for a comparison, in addition to `attributes.KEY`.
BY: dict[str, RunFunction] = {
    **{name: _by_column(name) for name in GROUPS},
    "day": _by_time("%Y-%m-%d"),
    "hour": _by_time("%Y-%m-%d %H:00"),
    "week": _by_time("%G-W%V"),
}


def grouping(by: str) -> RunFunction:
    """The function that returns a run's group.

    Raises:
        ConfigError: It is neither a name of `BY` nor ``attributes.KEY``.
    """
    if by in BY:
        return BY[by]
    key = by.removeprefix("attributes.")
    if key == by or not key:
        raise ConfigError(f"--by {by!r}: there are {', '.join(BY)}, attributes.KEY")
    return _by_column(by)


def run_groups(group: RunFunction | RunExpression, case: str = "") -> RunGroups:
    """How to compare stored runs.

    Args:
        group: Returns a run's group.
        case: The attribute that names a run's case; by default ``test.case.id``, else the
            question. A run without either has a row to itself.
    """
    return RunGroups(group, (case,) if case else CASE_ATTRIBUTES)


def from_keys(store: Store, keys: pa.Table, groups: RunGroups | None = None) -> Iterator[ReportRun]:
    """Yield some stored trajectories with the newest score of each evaluator.

    Args:
        store: The store.
        keys: A table of `Trajectories.keys`.
        groups: How they are compared; None for one group.
    """
    scores = store.scores.of(keys["trajectory_id"].to_pylist())
    attributes = groups.case_attributes if groups else CASE_ATTRIBUTES
    for trajectory in store.trajectories.at(keys):
        group = groups.group.of(trajectory) if groups else ""
        yield _stored_run(trajectory, scores[trajectory.id], group, attributes)


def _stored_run(
    trajectory: Trajectory, scores: Sequence[Score], group: str, case_attributes: Sequence[str]
) -> ReportRun:
    case_name = first_attribute(trajectory, case_attributes)
    return ReportRun(
        id=trajectory.id,
        group=group,
        case=case_key(trajectory, case_attributes),
        label=question_line(trajectory) or case_name or trajectory.agent or trajectory.id,
        verdicts=tuple(map(RunVerdict.of, scores)),
        trajectory=trajectory,
        start_ns=trajectory.start_ns,
        end_ns=trajectory.end_ns,
    )


def from_experiments(
    store: Store, names: Sequence[str]
) -> tuple[list[Experiment], list[ReportRun]]:
    """Return experiments and their runs, each experiment a group.

    Args:
        store: The store, its trajectories up to date.
        names: The experiments' names, ids or prefixes; the first is the baseline.

    Raises:
        NotFound: An experiment does not exist.
        ConfigError: An experiment is named twice, or is a comparison, which has no runs.
    """
    experiments = [store.experiments.get(name) for name in names]
    if len({experiment.id for experiment in experiments}) < len(experiments):
        raise ConfigError(f"--experiments {' '.join(names)}: the same experiment twice")
    items: list[ReportRun] = []
    for experiment in experiments:
        if experiment.kind == "comparison":
            compared = " --experiments ".join(experiment.compared)
            raise ConfigError(
                f"{experiment.name} is a comparison; name the experiments it compares: "
                f"--experiments {compared}"
            )
    for results in _compared(store, [experiment.name for experiment in experiments]):
        items += _items(store, results)
    return experiments, items


def comparisons_of(
    store: Store, experiments: Sequence[Experiment], evaluators: Sequence[str] = ()
) -> list[tuple[ShownComparison, Comparison | None]]:
    """The changes of each experiment against the first.

    Args:
        store: The store.
        experiments: The experiments, the baseline first.
        evaluators: The figures to compare; all when empty.
    """
    results = [
        _with_figures(load_experiment(experiment.name, store), evaluators)
        for experiment in experiments
    ]
    return [shown_comparison(results[0], other) for other in results[1:]]


def _with_figures(results: ExperimentResults, keys: Sequence[str]) -> ExperimentResults:
    if not keys:
        return results
    rows = [
        replace(row, feedback=tuple(entry for entry in row.feedback if entry.key in keys))
        for row in results
    ]
    return replace(results, rows=tuple(rows))


def _compared(store: Store, names: Sequence[str]) -> list[ExperimentResults]:
    """The results of experiments; examples with the same question have the same id."""
    return with_common_examples([load_experiment(name, store) for name in names])


def _items(store: Store, results: ExperimentResults) -> Iterator[ReportRun]:
    names = [row.run.trajectory_id for row in results if row.run.trajectory_id]
    yield from experiment_runs(results, _trajectories(store, names))


def experiment_runs(
    results: ExperimentResults, trajectories: Mapping[str, Trajectory]
) -> Iterator[ReportRun]:
    """Yield the runs of an experiment.

    Args:
        results: The experiment.
        trajectories: The stored trajectories of its runs by id, as far as they are known.
    """
    for row in results:
        run = row.run
        stored = trajectories.get(run.trajectory_id)
        rebuilt = None if stored else run.trajectory
        yield ReportRun(
            id=run.id,
            group=results.name,
            case=run.example_id,
            label=_label(run),
            verdicts=tuple(map(RunVerdict.of, row.feedback)),
            trajectory=stored or rebuilt,
            inputs=run.inputs,
            outputs=None if rebuilt else run.outputs,
            error=run.error,
            start_ns=run.start_ns,
            end_ns=run.end_ns,
            repetition=run.repetition,
        )


def _label(run: Run) -> str:
    return one_line(question_of(run.inputs)) or run.example_id


def _trajectories(store: Store, ids: Sequence[str]) -> dict[str, Trajectory]:
    trajectories: dict[str, Trajectory] = {}
    for start in range(0, len(ids), _PAGE):
        page = Selection(ids=tuple(ids[start : start + _PAGE]))
        trajectories.update(
            {trajectory.id: trajectory for trajectory in store.trajectories.read(page)}
        )
    return trajectories


def pairwise_of(store: Store, experiments: Sequence[Experiment]) -> list[PairwiseSummary]:
    """The results of stored pairwise comparisons between some experiments.

    The figures are the same as in ``oteval pairwise``, for the later experiment against the
    earlier.
    """
    if len(experiments) < 2:
        return []
    summaries: list[PairwiseSummary] = []
    for row in store.experiments.list():
        names = [
            experiment.name
            for experiment in experiments
            if experiment.name in (row["compared"] or ())
        ]
        if row["kind"] == "comparison" and len(names) > 1:
            votes = store.experiments.votes(row["experiment_id"])
            # The votes name the examples of the first experiment that still exists.
            existing = [name for name in row["compared"] if store.experiments.find(name)]
            compared = {side.name: side for side in _compared(store, existing)}
            for base, other in combinations(names, 2):
                summaries += _pairwise((compared[base], compared[other]), votes)
    return summaries


def _pairwise(
    compared: tuple[ExperimentResults, ExperimentResults], votes: Sequence[Vote]
) -> Iterator[PairwiseSummary]:
    """Yield the result of the votes on two experiments, for each question."""
    base, other = names = compared[0].name, compared[1].name
    paired_runs = {
        key: (second.run, first.run) for key, (first, second) in paired_rows(compared).items()
    }
    side = {row.run.id: side_results.name for side_results in compared for row in side_results}
    about = [vote for vote in votes if {side.get(run) for run in vote.shown} >= set(names)]
    labels = {row.example.id: _label(row.run) for row in compared[0]}
    for pair in pairs_of((other, base), paired_runs, about):
        evaluators = {vote.evaluator for vote in about if vote.key == pair.key}
        by_place: dict[tuple[str, int], list[Vote]] = {}
        for vote in about:
            if vote.evaluator in evaluators:
                by_place.setdefault((vote.example_id, vote.repetition), []).append(vote)
        duels = [_duel(labels, example_votes, side, names) for example_votes in by_place.values()]
        low, high = pair.interval or (0.0, 1.0)
        yield PairwiseSummary(
            key=clean(pair.key),
            names=(clean(base), clean(other)),
            wins=(pair.wins_b, pair.wins_a),
            ties=pair.ties,
            errors=pair.errors,
            share=pair.win_rate,
            low=low,
            high=high,
            p_value=pair.p_adjusted,
            flip_rate=pair.flip_rate,
            first_rate=pair.first_rate,
            duels=tuple(sorted(duels, key=lambda d: (d.winner is not None, not d.is_flipped))),
        )


def _duel(
    labels: Mapping[str, str],
    votes: Sequence[Vote],
    side: Mapping[str, str],
    names: tuple[str, str],
) -> PairwiseExample:
    """The result for one example; answers that change with the order are a tie."""
    answers: list[tuple[tuple[str, ...], tuple[float, ...]]] = []
    preferred: list[str] = []
    notes: list[str] = []
    for vote in votes:
        chosen = [(side[run], at) for at, run in enumerate(vote.shown) if side.get(run) in names]
        shown_names = tuple(name for name, _ in chosen)
        scores = tuple(vote.scores[at] for _, at in chosen) if vote.status == "ok" else ()
        answers.append((tuple(map(clean, shown_names)), scores))
        notes += [vote.comment] if vote.comment else []
        if scores:
            best = max(scores)
            preferred.append("" if best == min(scores) else shown_names[scores.index(best)])
    agreed = len(set(preferred)) == 1
    failed = len(preferred) < len(votes)
    example, repetition = votes[0].example_id, votes[0].repetition
    again = f" (repetition {repetition + 1})" if repetition else ""
    runs = [run for run in votes[0].shown if side.get(run) in names]
    return PairwiseExample(
        case=clean(labels.get(example, example) + again),
        runs=tuple(sorted(runs, key=lambda run: side[run] != names[0])),
        asked=tuple(answers),
        winner=None if failed else clean(preferred[0]) if agreed else "",
        is_flipped=len(preferred) > 1 and not agreed,
        note=clean("\n".join(dict.fromkeys(notes))),
    )
