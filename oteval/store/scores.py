"""Scores in the store: appended, the newest per trajectory, evaluator and version counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from ..jsontext import dumps, restore
from ..model import Score
from ..selection import EVERYTHING, Selection
from .query import number, reader
from .rows import rows_of, table_of
from .where import where

__all__ = ["Scores", "score_of"]

_TEXT = pa.string()
_SCHEMA = pa.schema(
    [
        ("trajectory_id", _TEXT),
        ("rev", pa.int32()),
        *[(name, _TEXT) for name in ("trace_id", "span_id", "evaluator", "version", "status")],
        ("score", pa.float64()),
        ("label", _TEXT),
        ("passed", pa.bool_()),
        ("comment", _TEXT),
        ("metadata", _TEXT),
        ("sample_p", pa.float64()),
        ("time_ns", pa.int64()),
        ("seq", pa.int64()),
    ]
)
_COLUMNS = [name for name in _SCHEMA.names if name not in ("seq", "metadata")]


def score_of(row: Mapping[str, Any]) -> Score:
    """Return the score of a row of ``scores``."""
    found = {name: row[name] for name in _COLUMNS}
    return Score(**found, metadata=restore(row["metadata"]))


class Scores:
    """The scores of a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def write(self, scores: Sequence[Score]) -> None:
        """Append scores."""
        if not scores:
            return
        start = number(self._connection, "SELECT coalesce(max(seq), 0) + 1 FROM scores")
        rows = []
        for index, score in enumerate(scores):
            known = {"metadata": dumps(score.metadata), "seq": start + index}
            rows.append([known.get(name, getattr(score, name, None)) for name in _SCHEMA.names])
        self._connection.register("incoming", table_of(rows, _SCHEMA))
        self._connection.execute("INSERT INTO scores SELECT * FROM incoming")
        self._connection.unregister("incoming")

    def read(self, selection: Selection = EVERYTHING) -> Iterator[Score]:
        """Yield the current scores of the selected trajectories, in the order they were given.

        Attributes, conditions and exclusions of the selection are not applied.
        """
        clause, values = where(selection)
        # Qualified by a subquery: both sides have columns of the same names.
        batches = reader(
            self._connection,
            f"""
            SELECT s.* FROM current_scores s
            SEMI JOIN (SELECT trajectory_id FROM current_trajectories WHERE {clause}) t
            USING (trajectory_id)
            ORDER BY s.time_ns, s.seq
            """,  # noqa: S608
            values,
        )
        for batch in batches:
            yield from map(score_of, batch.to_pylist())

    def versions(self, evaluator: str) -> list[str]:
        """Return the versions of an evaluator that gave scores, newest first."""
        rows = self._connection.execute(
            "SELECT version FROM scores WHERE evaluator = ? "
            "GROUP BY version ORDER BY max(seq) DESC",
            [evaluator],
        ).fetchall()
        return [version for (version,) in rows]

    def by(self, evaluator: str, version: str) -> dict[str, Score]:
        """Return the current scores of a version of an evaluator, by trajectory id."""
        table = self._connection.sql(
            "SELECT * FROM current_scores WHERE evaluator = ? AND version = ?",
            params=[evaluator, version],
        ).to_arrow_table()
        return {row["trajectory_id"]: score_of(row) for row in rows_of(table)}

    def export(self) -> pa.RecordBatchReader:
        """Return the current scores, to be read batch by batch."""
        return reader(self._connection, "SELECT * FROM current_scores")

    def of(self, trajectory_ids: Sequence[str]) -> dict[str, list[Score]]:
        """Return the newest score of each evaluator of some trajectories, whatever its version.

        Returns:
            The scores by trajectory id; each id asked for is there.
        """
        found: dict[str, list[Score]] = {name: [] for name in trajectory_ids}
        wanted = pa.table({"trajectory_id": pa.array(list(found), _TEXT)})
        self._connection.register("wanted", wanted)
        table = self._connection.sql(
            "SELECT s.* FROM scores s SEMI JOIN wanted USING (trajectory_id) "
            "QUALIFY row_number() OVER ("
            "PARTITION BY trajectory_id, evaluator ORDER BY seq DESC) = 1 ORDER BY evaluator"
        ).to_arrow_table()
        self._connection.unregister("wanted")
        for row in rows_of(table):
            found[row["trajectory_id"]].append(score_of(row))
        return found

    def given(
        self, trajectory_ids: Sequence[str], versions: Sequence[str]
    ) -> dict[tuple[str, str, str], Score]:
        """Return the current scores of some trajectories by some versions of evaluators.

        Returns:
            The scores by trajectory id, evaluator and version.
        """
        table = self._connection.sql(
            "SELECT s.* FROM scores s WHERE list_contains(?::VARCHAR[], trajectory_id) "
            "AND list_contains(?::VARCHAR[], version) QUALIFY row_number() OVER ("
            "PARTITION BY trajectory_id, evaluator, version ORDER BY rev DESC, seq DESC) = 1",
            params=[list(trajectory_ids), list(versions)],
        ).to_arrow_table()
        found = map(score_of, rows_of(table))
        return {(one.trajectory_id, one.evaluator, one.version): one for one in found}
