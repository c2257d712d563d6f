"""Progress: which spans and log records each stage is done with.

Every span and log record has a number, `seq`, given in the order in which they are stored. The
table ``progress`` holds for each stage the number up to which it is done with all of them; of
several rows of a stage, the highest number counts. The stages are ``reconstruct`` and ``live``.
"""

from __future__ import annotations

from typing import Literal

import duckdb

from .query import number

__all__ = [
    "Stage",
    "done_by_all_stages",
    "done_by_stage",
    "newest_seq",
    "note_done",
    "replace_done",
]

Stage = Literal["reconstruct", "live"]


def newest_seq(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the number of the newest span or log record, archived ones included."""
    return number(
        connection,
        "SELECT greatest((SELECT coalesce(max(seq), 0) FROM spans), "
        "(SELECT coalesce(max(seq), 0) FROM logs), "
        "(SELECT coalesce(max(last_seq), 0) FROM archived_files))",
    )


def done_by_stage(connection: duckdb.DuckDBPyConnection, stage: Stage) -> int:
    """Return the number up to which a stage is done with all rows."""
    query = "SELECT coalesce(max(seq), 0) FROM progress WHERE stage = ?"
    return number(connection, query, [stage])


def done_by_all_stages(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the number up to which every stage is done with all rows."""
    return number(
        connection,
        "SELECT coalesce(min(done), 0) FROM (SELECT max(seq) AS done FROM progress GROUP BY stage)",
    )


def note_done(connection: duckdb.DuckDBPyConnection, stage: Stage, seq: int) -> None:
    """Note that a stage is done with all rows up to a number."""
    connection.execute("INSERT INTO progress VALUES (?, ?)", [stage, seq])


def replace_done(connection: duckdb.DuckDBPyConnection, stage: Stage, seq: int) -> None:
    """Do as `note_done` in one row, unless the stage is further already.

    The caller has begun a transaction, so that no other connection sees the stage without a row.
    """
    if done_by_stage(connection, stage) < seq:
        connection.execute("DELETE FROM progress WHERE stage = ?", [stage])
        note_done(connection, stage, seq)
