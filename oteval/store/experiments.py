"""Experiments with their runs, feedback and votes.

Tables: ``experiments``, ``runs``, ``feedback`` and ``pair_votes``. Rows are appended. The views
``current_runs``, ``current_feedback`` and ``current_pair_votes`` have the newest rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa

from ..base.errors import NotFound
from ..base.jsontext import dumps, dumps_exact, restore
from ..model import Experiment, Feedback, Run, Vote
from .arrow_rows import table_of
from .memory import fetch
from .query import insert, next_number, rows_of, transaction

__all__ = ["Experiments"]

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
