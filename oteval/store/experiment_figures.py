"""Figures of the newest experiments, with their runs and feedback, counted in SQL.

Outputs, comments and inputs are not read. The newest run of each example and repetition counts, and
the newest call of each evaluator on a run.

Tables: ``experiments``, ``runs``, ``feedback`` and ``pair_votes`` are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import duckdb

from .query import first_row, wanted
from .scores import HAS_UNKNOWN_COST, REPORTED_COST

__all__ = ["ExperimentFigures", "ExperimentState", "KeyCounts", "ListedExperiment"]

_LISTED = """
    SELECT experiment_id, name, kind, coalesce(description, ''), coalesce(dataset, ''),
        coalesce(dataset_version, ''), coalesce(repetitions, 1), coalesce(expected, 0),
        coalesce(created_ns, 0), compared
    FROM experiments ORDER BY created_ns DESC, rowid DESC LIMIT ?
"""
_LISTED_FIELDS = (
    *("id", "name", "kind", "description", "dataset", "dataset_version", "repetitions"),
    *("expected", "created_ns", "compared"),
)
_NEWEST_RUNS = """
    newest_runs AS (
        SELECT experiment_id, run_id, example_id, error FROM runs
        SEMI JOIN wanted USING (experiment_id)
        QUALIFY row_number() OVER (
            PARTITION BY experiment_id, example_id, repetition ORDER BY seq DESC
        ) = 1
    )
"""
_RUNS = f"""
    WITH {_NEWEST_RUNS}
    SELECT experiment_id, count(*), count(*) FILTER (error <> '') FROM newest_runs
    GROUP BY experiment_id
"""  # noqa: S608
_VOTES = """
    SELECT experiment_id, count(*) FROM (
        SELECT experiment_id FROM pair_votes SEMI JOIN wanted USING (experiment_id)
        QUALIFY rank() OVER (
            PARTITION BY experiment_id, evaluator, example_id, repetition, shown
            ORDER BY time_ns DESC
        ) = 1
    ) GROUP BY experiment_id
"""
# A call may return several keys, all with the cost of the call.
_KEYS = f"""
    WITH {_NEWEST_RUNS},
    newest AS (
        SELECT *, {REPORTED_COST} AS cost, {HAS_UNKNOWN_COST} AS has_unknown_cost
        FROM feedback s SEMI JOIN wanted USING (experiment_id)
        QUALIFY rank() OVER (
            PARTITION BY experiment_id, run_id, evaluator ORDER BY time_ns DESC
        ) = 1
    ),
    by_example AS (
        SELECT f.experiment_id, f.evaluator, f.key, min(f.seq) AS first,
            count(*) FILTER (status = 'ok') AS evaluated,
            count(*) FILTER (status = 'ok' AND passed) AS passed,
            count(*) FILTER (status = 'ok' AND NOT passed) AS failed,
            count(*) FILTER (status = 'error') AS errors,
            count(*) FILTER (status = 'not_evaluated') AS not_evaluated,
            avg(passed::INTEGER) FILTER (status = 'ok') AS share,
            avg(score) FILTER (status = 'ok' AND isfinite(score)) AS mean,
            sum(cost) FILTER (cost >= 0 AND isfinite(cost)) AS cost,
            count(*) FILTER (has_unknown_cost) AS unpriced
        FROM newest f JOIN newest_runs USING (experiment_id, run_id)
        GROUP BY f.experiment_id, f.evaluator, f.key, example_id
    )
    SELECT experiment_id, evaluator, key, sum(evaluated)::BIGINT, sum(passed)::BIGINT,
        sum(failed)::BIGINT, sum(errors)::BIGINT, sum(not_evaluated)::BIGINT,
        coalesce(fsum(share), 0), coalesce(fsum(1 - share), 0), avg(mean), sum(cost),
        sum(unpriced)::BIGINT
    FROM by_example GROUP BY experiment_id, evaluator, key
    ORDER BY experiment_id, min(first), evaluator, key
"""  # noqa: S608


class ExperimentState(NamedTuple):
    """The size of a store's experiments; it changes when rows are added.

    Attributes:
        experiments: The number of experiments.
        runs: The number of the newest run.
        feedback: The number of the newest feedback.
        votes: The number of the newest vote.
    """

    experiments: int
    runs: int
    feedback: int
    votes: int


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """The feedback of one key in an experiment.

    Attributes:
        evaluator: The evaluator.
        key: The key.
        evaluated: How many runs have a verdict.
        passed: How many of them passed.
        failed: How many of them failed.
        errors: How many runs made the evaluator fail.
        not_evaluated: How many runs could not be evaluated.
        passed_share: The sum of the examples' shares of passes, over examples with a verdict.
        failed_share: The sum of their shares of fails.
        mean: The mean of the examples' mean scores; None without scores.
        cost: The reported cost in US dollars; None if no feedback reports any.
        unpriced: How much feedback has an unknown cost.
    """

    evaluator: str
    key: str
    evaluated: int
    passed: int
    failed: int
    errors: int
    not_evaluated: int
    passed_share: float
    failed_share: float
    mean: float | None
    cost: float | None
    unpriced: int


@dataclass(frozen=True, slots=True)
class ListedExperiment:
    """An experiment with its counts.

    Attributes:
        id: Its unique id.
        name: Its name.
        kind: ``experiment`` or ``comparison``.
        description: A description for people.
        dataset: The name of the dataset.
        dataset_version: The version of the dataset.
        repetitions: The number of runs of each example.
        expected: The number of runs once it is complete.
        created_ns: When it was made (ns since the epoch).
        compared: The names of the compared experiments, for a comparison.
        runs: The number of its runs.
        errors: How many of them failed.
        votes: The number of votes, for a comparison.
        keys: The counts of each key.
    """

    id: str
    name: str
    kind: str
    description: str
    dataset: str
    dataset_version: str
    repetitions: int
    expected: int
    created_ns: int
    compared: tuple[str, ...] = ()
    runs: int = 0
    errors: int = 0
    votes: int = 0
    keys: tuple[KeyCounts, ...] = ()


class ExperimentFigures:
    """Counts the runs and the feedback of experiments."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def state(self) -> ExperimentState:
        """The size of the experiments."""
        row = first_row(
            self._connection,
            "SELECT (SELECT count(*) FROM experiments), "
            "(SELECT coalesce(max(seq), 0) FROM runs), "
            "(SELECT coalesce(max(seq), 0) FROM feedback), "
            "(SELECT coalesce(max(seq), 0) FROM pair_votes)",
        )
        assert row is not None
        return ExperimentState(*map(int, row))

    def names(self, most: int) -> list[tuple[str, str]]:
        """The names and datasets of the newest experiments that are not comparisons."""
        return self._connection.execute(
            "SELECT name, coalesce(dataset, '') FROM experiments WHERE kind = 'experiment' "
            "ORDER BY created_ns DESC, rowid DESC LIMIT ?",
            [most],
        ).fetchall()

    def newest(self, most: int) -> list[ListedExperiment]:
        """The newest experiments with their counts, the newest first.

        Args:
            most: The number of experiments to return at most.
        """
        rows = self._connection.execute(_LISTED, [most]).fetchall()
        experiment_fields = [dict(zip(_LISTED_FIELDS, row, strict=True)) for row in rows]
        listed = [
            ListedExperiment(**{**fields, "compared": tuple(fields["compared"] or ())})
            for fields in experiment_fields
        ]
        with wanted(self._connection, "experiment_id", [experiment.id for experiment in listed]):
            runs = {row[0]: row[1:] for row in self._connection.execute(_RUNS).fetchall()}
            votes = dict(self._connection.execute(_VOTES).fetchall())
            keys: dict[str, list[KeyCounts]] = {}
            for name, *counts in self._connection.execute(_KEYS).fetchall():
                keys.setdefault(name, []).append(KeyCounts(*counts))
        return [
            replace(
                experiment,
                runs=runs.get(experiment.id, (0, 0))[0],
                errors=runs.get(experiment.id, (0, 0))[1],
                votes=votes.get(experiment.id, 0),
                keys=_with_errors(keys.get(experiment.id, ())),
            )
            for experiment in listed
        ]


def _with_errors(all_counts: Sequence[KeyCounts]) -> tuple[KeyCounts, ...]:
    """Return keys with the errors of their evaluator.

    A failed evaluator has only its name as key. Its failure counts for the keys that it returned
    for other runs.
    """
    with_verdicts: dict[str, list[KeyCounts]] = {}
    only_errors: dict[str, list[KeyCounts]] = {}
    for counts in all_counts:
        by_evaluator = with_verdicts if counts.evaluated or counts.not_evaluated else only_errors
        by_evaluator.setdefault(counts.evaluator, []).append(counts)
    listed = []
    for counts in all_counts:
        if counts.evaluator not in with_verdicts:
            listed.append(counts)
        elif counts.evaluated or counts.not_evaluated:
            failures = only_errors.get(counts.evaluator, ())
            errors = counts.errors + sum(failure.errors for failure in failures)
            listed.append(replace(counts, errors=errors))
    return tuple(listed)
