"""Experiments with their runs, feedback and votes, and their figures, counted in SQL.

Tables: ``experiments``, ``runs``, ``feedback`` and ``pair_votes``. Rows are appended. The views
``current_runs``, ``current_feedback`` and ``current_pair_votes`` have the newest rows.

`ExperimentFigures` reads no outputs, comments and inputs. The newest run of each example and
repetition counts, and the newest call of each evaluator on a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from ..base.errors import NotFound
from ..base.jsontext import dumps, dumps_exact, restore
from ..model import Experiment, Feedback, Run, Vote
from .arrow_rows import table_of
from .memory import fetch
from .query import first_row, insert, next_number, rows_of, transaction, wanted
from .scores import HAS_UNKNOWN_COST, REPORTED_COST

__all__ = [
    "ExperimentFigures",
    "ExperimentState",
    "Experiments",
    "KeyCounts",
    "ListedExperiment",
]

_TEXT, _BIG, _INT = pa.string(), pa.int64(), pa.int32()
_RUNS = pa.schema(
    [
        *[(name, _TEXT) for name in ("run_id", "experiment_id", "example_id")],
        ("repetition", _INT),
        *[(name, _TEXT) for name in ("outputs", "error", "trajectory_id", "facts")],
        *[(name, _BIG) for name in ("start_ns", "end_ns", "seq")],
    ]
)
_FEEDBACK = pa.schema(
    [
        *[(n, _TEXT) for n in ("experiment_id", "run_id", "evaluator", "version", "key", "status")],
        ("score", pa.float64()),
        ("passed", pa.bool_()),
        *[(name, _TEXT) for name in ("label", "comment", "metadata")],
        *[(name, _BIG) for name in ("latency_ns", "time_ns", "seq")],
    ]
)
_VOTES = pa.schema(
    [
        *[(n, _TEXT) for n in ("experiment_id", "evaluator", "version", "key", "example_id")],
        ("repetition", _INT),
        ("shown", pa.list_(_TEXT)),
        ("scores", pa.list_(pa.float64())),
        *[(name, _TEXT) for name in ("status", "comment", "metadata")],
        *[(name, _BIG) for name in ("latency_ns", "time_ns", "seq")],
    ]
)


class Experiments:
    """The experiments of a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def add(self, experiment: Experiment) -> None:
        """Store the description of an experiment."""
        self._connection.execute(
            f"INSERT INTO experiments VALUES ({', '.join('?' * 12)})",  # noqa: S608
            [
                *(experiment.id, experiment.name, experiment.prefix, experiment.description),
                *(dumps(dict(experiment.metadata)), experiment.dataset),
                *(experiment.dataset_version, experiment.repetitions, experiment.expected),
                *(experiment.kind, list(experiment.compared), experiment.created_ns),
            ],
        )

    def find(self, name: str) -> Experiment | None:
        """The experiment with a name, or None."""
        experiments = self._read("WHERE name = ?", [name])
        return experiments[0] if experiments else None

    def newest(self, prefix: str) -> Experiment | None:
        """The newest experiment that was named after a prefix, or None."""
        experiments = self._read("WHERE prefix = ?", [prefix])
        return experiments[0] if experiments else None

    def get(self, name: str) -> Experiment:
        """The experiment with a name or id, or the newest one of a prefix.

        Raises:
            NotFound: No experiment has this name, id or prefix.
        """
        experiment = self.find(name) or self.newest(name)
        if experiment is None:
            by_id = self._read("WHERE experiment_id = ?", [name])
            if not by_id:
                raise NotFound(f"no experiment {name!r}; oteval experiments lists them")
            experiment = by_id[0]
        return experiment

    def read(self) -> list[Experiment]:
        """All experiments and comparisons, newest first."""
        return self._read("", [])

    def _read(self, clause: str, values: Sequence[Any]) -> list[Experiment]:
        table = fetch(
            self._connection,
            f"SELECT * FROM experiments {clause} ORDER BY created_ns DESC, rowid DESC",  # noqa: S608
            list(values),
        )
        return [_experiment(row) for row in rows_of(table)]

    def write(
        self,
        experiment_id: str,
        runs: Sequence[Run] = (),
        feedback: Sequence[Feedback] = (),
        votes: Sequence[Vote] = (),
    ) -> None:
        """Append runs, feedback and votes of an experiment in one transaction."""
        if not (runs or feedback or votes):
            return
        with transaction(self._connection):
            self._append("runs", _RUNS, [_run_row(run) for run in runs])
            feedback_rows = [_feedback_row(experiment_id, verdict) for verdict in feedback]
            self._append("feedback", _FEEDBACK, feedback_rows)
            self._append("pair_votes", _VOTES, [_vote_row(vote) for vote in votes])

    def _append(self, name: str, schema: pa.Schema, rows: Sequence[list[Any]]) -> None:
        if not rows:
            return
        start = next_number(self._connection, name)
        numbered = [[*row, start + at] for at, row in enumerate(rows)]
        insert(self._connection, name, table_of(numbered, schema))

    def runs(self, experiment_id: str) -> list[Run]:
        """The newest run of each example and repetition, with the inputs of the example."""
        table = fetch(
            self._connection,
            """
            SELECT r.*, e.inputs FROM current_runs r
            JOIN experiments x ON x.experiment_id = r.experiment_id
            LEFT JOIN examples e
            ON e.version = x.dataset_version AND e.example_id = r.example_id
            WHERE r.experiment_id = ? ORDER BY e.position, r.repetition, r.seq
            """,
            [experiment_id],
        )
        return [_run(row) for row in rows_of(table)]

    def feedback(self, experiment_id: str) -> list[Feedback]:
        """The feedback from the newest call of each evaluator on each run."""
        table = fetch(
            self._connection,
            "SELECT * FROM current_feedback WHERE experiment_id = ? ORDER BY seq",
            [experiment_id],
        )
        return [_feedback(row) for row in rows_of(table)]

    def votes(self, experiment_id: str) -> list[Vote]:
        """The newest vote on each question of a comparison."""
        table = fetch(
            self._connection,
            "SELECT * FROM current_pair_votes WHERE experiment_id = ? ORDER BY seq",
            [experiment_id],
        )
        return [_vote(row) for row in rows_of(table)]

    def list(self) -> list[dict[str, Any]]:
        """All experiments, oldest first, with their numbers of runs, errors and votes."""
        rows = self._connection.execute(
            """
            WITH r AS (
                SELECT experiment_id, count(*) AS runs, count(*) FILTER (error <> '') AS errors
                FROM current_runs GROUP BY experiment_id
            ), v AS (
                SELECT experiment_id, count(*) AS votes FROM current_pair_votes
                GROUP BY experiment_id
            )
            SELECT e.name, e.experiment_id, e.kind, e.description, e.dataset, e.dataset_version,
                e.repetitions, e.expected, coalesce(r.runs, 0), coalesce(r.errors, 0),
                coalesce(v.votes, 0), e.compared, e.created_ns
            FROM experiments e LEFT JOIN r USING (experiment_id) LEFT JOIN v USING (experiment_id)
            ORDER BY e.created_ns, e.name
            """
        ).fetchall()
        names = (
            *("name", "experiment_id", "kind", "description", "dataset", "dataset_version"),
            *("repetitions", "expected", "runs", "errors", "votes", "compared", "created_ns"),
        )
        return [dict(zip(names, row, strict=True)) for row in rows]


def _experiment(row: Mapping[str, Any]) -> Experiment:
    fields = {name: row[name] for name in row if name not in ("experiment_id", "metadata")}
    fields["compared"] = tuple(row["compared"] or ())
    return Experiment(row["experiment_id"], metadata=restore(row["metadata"]), **fields)


def _run_row(run: Run) -> list[Any]:
    facts = dumps(dict(run.facts)) if run.facts else None
    columns = {"run_id": run.id, "outputs": dumps_exact(run.outputs), "facts": facts}
    names = [name for name in _RUNS.names if name != "seq"]
    return [columns.get(name, getattr(run, name, None)) for name in names]


def _run(row: Mapping[str, Any]) -> Run:
    names = ("experiment_id", "example_id", "repetition", "error", "trajectory_id")
    inputs = row["inputs"]
    return Run(
        row["run_id"],
        **{name: row[name] for name in names},
        inputs=None if inputs is None else restore(inputs),
        outputs=restore(row["outputs"]),
        start_ns=row["start_ns"],
        end_ns=row["end_ns"],
        facts=restore(row["facts"]) if row["facts"] else {},
    )


def _feedback_row(experiment_id: str, feedback: Feedback) -> list[Any]:
    columns = {"experiment_id": experiment_id, "metadata": dumps(dict(feedback.metadata))}
    names = [name for name in _FEEDBACK.names if name != "seq"]
    return [columns.get(name, getattr(feedback, name, None)) for name in names]


def _feedback(row: Mapping[str, Any]) -> Feedback:
    names = [n for n in _FEEDBACK.names if n not in ("experiment_id", "metadata", "seq")]
    fields = {name: row[name] for name in names}
    return Feedback(**fields, metadata=restore(row["metadata"]))


def _vote_row(vote: Vote) -> list[Any]:
    columns = {
        "shown": list(vote.shown),
        "scores": list(vote.scores),
        "metadata": dumps(dict(vote.metadata)),
    }
    names = [name for name in _VOTES.names if name != "seq"]
    return [columns.get(name, getattr(vote, name, None)) for name in names]


def _vote(row: Mapping[str, Any]) -> Vote:
    names = [n for n in _VOTES.names if n not in ("shown", "scores", "metadata", "seq")]
    vote = Vote(shown=tuple(row["shown"]), **{name: row[name] for name in names})
    return replace(vote, scores=tuple(row["scores"]), metadata=restore(row["metadata"]))


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
_RUN_COUNTS = f"""
    WITH {_NEWEST_RUNS}
    SELECT experiment_id, count(*), count(*) FILTER (error <> '') FROM newest_runs
    GROUP BY experiment_id
"""  # noqa: S608
_VOTE_COUNTS = """
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
            runs = {row[0]: row[1:] for row in self._connection.execute(_RUN_COUNTS).fetchall()}
            votes = dict(self._connection.execute(_VOTE_COUNTS).fetchall())
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
