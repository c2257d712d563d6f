"""People's labels in the store; the newest of a person on a run counts."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from ..model import Label

__all__ = ["Labels"]


class Labels:
    """The labels of a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def add(self, labels: Sequence[Label], created_ns: int) -> None:
        """Keep labels.

        Args:
            labels: The labels.
            created_ns: When they were given.
        """
        if not labels:
            return
        self._connection.executemany(
            "INSERT INTO human_labels VALUES (?, ?, ?, ?, ?, ?)",
            [
                [one.trajectory_id, one.evaluator, one.person, one.passed, one.note, created_ns]
                for one in labels
            ],
        )

    def of(self, evaluator: str) -> list[Label]:
        """Return the current labels for an evaluator, and those for any, in order of time."""
        rows = self._connection.execute(
            "SELECT trajectory_id, passed, evaluator, person, coalesce(note, '') "
            "FROM current_labels WHERE evaluator IN (?, '') ORDER BY created_ns, trajectory_id",
            [evaluator],
        ).fetchall()
        return [Label(*row) for row in rows]
