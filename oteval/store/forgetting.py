"""What live scoring notes of every trace, deleted once nothing asks for it any more."""

from __future__ import annotations

import duckdb

from .query import number

__all__ = ["forget_archived", "sum_up_spend"]

# Of these traces, all rows up to the number are in the archive, whose own tables say so.
_ARCHIVED = """
    SELECT trace_id, max(last_seq) AS last_seq
    FROM archived_traces JOIN archived_files USING (file) GROUP BY trace_id
    """


def forget_archived(connection: duckdb.DuckDBPyConnection, settled: int, before_ns: int) -> int:
    """Delete completions and conversations of traces that are archived; return how many rows.

    What an evaluator may still have to do stays, and so does the newest completion, after which
    the next is numbered.

    Args:
        connection: The store's connection.
        settled: Up to which completion no evaluator in force has anything to do.
        before_ns: Completions of this time or later stay.
    """
    deleted = number(
        connection,
        f"""
        DELETE FROM completions USING ({_ARCHIVED}) a
        WHERE completions.trace_id = a.trace_id AND completions.seq <= a.last_seq
          AND number <= ? AND time_ns < ? AND number < (SELECT max(number) FROM completions)
        """,  # noqa: S608
        [settled, before_ns],
    )
    return deleted + number(
        connection,
        f"""
        DELETE FROM trace_conversations USING ({_ARCHIVED}) a
        WHERE trace_conversations.trace_id = a.trace_id
          AND trace_conversations.seq <= a.last_seq
        """,  # noqa: S608
    )


def sum_up_spend(connection: duckdb.DuckDBPyConnection, day: str) -> int:
    """Make one row of what an evaluator cost on each day before one; return how many rows less."""
    past = connection.execute(
        "SELECT evaluator, day, sum(calls)::BIGINT, sum(cost) FROM evaluator_spend "
        "WHERE day < ? GROUP BY ALL HAVING count(*) > 1",
        [day],
    ).fetchall()
    deleted = 0
    for evaluator, when, calls, cost in past:
        deleted += number(
            connection,
            "DELETE FROM evaluator_spend WHERE evaluator = ? AND day = ?",
            [evaluator, when],
        )
        connection.execute(
            "INSERT INTO evaluator_spend VALUES (?, ?, ?, ?)", [evaluator, when, calls, cost]
        )
    return deleted - len(past)
