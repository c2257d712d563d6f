"""Progress: which spans and log records each stage is done with, and which traces are pending.

Every span and log record has a number, `seq`, assigned in the order in which they are stored. The
table ``progress`` contains, for each stage, a number: the stage is done with all rows up to it. If
a stage has several rows, the highest number counts. The stages are ``reconstruct`` and ``live``.

A trace is pending if it has rows that are not reconstructed. Each page of pending traces contains
whole conversations: traces that share a conversation id, also through third traces, are on the same
page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import duckdb

from .query import number

__all__ = [
    "PendingTraces",
    "Stage",
    "done_by_all_stages",
    "done_by_stage",
    "newest_seq",
    "note_done",
    "replace_done",
]

Stage = Literal["reconstruct", "live"]
# Rows that are fetched at once from the list of pending traces.
_FETCHED = 10_000


def newest_seq(connection: duckdb.DuckDBPyConnection) -> int:
    """The number of the newest span or log record, including archived rows."""
    return number(
        connection,
        "SELECT greatest((SELECT coalesce(max(seq), 0) FROM spans), "
        "(SELECT coalesce(max(seq), 0) FROM logs), "
        "(SELECT coalesce(max(last_seq), 0) FROM archived_files))",
    )


def done_by_stage(connection: duckdb.DuckDBPyConnection, stage: Stage) -> int:
    """The stage is done with all rows up to this number."""
    query = "SELECT coalesce(max(seq), 0) FROM progress WHERE stage = ?"
    return number(connection, query, [stage])


def done_by_all_stages(connection: duckdb.DuckDBPyConnection) -> int:
    """All stages are done with all rows up to this number."""
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


class PendingTraces:
    """The traces of a store with rows that are not reconstructed yet."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def count(self) -> int:
        """The number of pending traces."""
        done = done_by_stage(self._connection, "reconstruct")
        return number(
            self._connection,
            "SELECT count(DISTINCT trace_id) FROM ("
            "SELECT trace_id FROM spans WHERE seq > ? UNION ALL "
            "SELECT trace_id FROM logs WHERE seq > ?)",
            [done, done],
        )

    def pages(
        self, size: int = 1000, limit: Callable[[], int] | None = None
    ) -> Iterator[list[str]]:
        """Yield the ids of pending traces page by page.

        Exhausting the iterator marks all of them as reconstructed.

        Args:
            size: Approximate number of traces per page. A conversation is never split.
            limit: Returns a smaller size for the next page.
        """
        newest = newest_seq(self._connection)
        done = done_by_stage(self._connection, "reconstruct")
        if newest <= done:
            return
        self._collect(done)
        self._group()
        yield from self._pages(lambda: min(size, limit()) if limit else size)
        for table in ("todo", "grouped", "ordered"):
            self._connection.execute(f"DROP TABLE temp.{table}")
        note_done(self._connection, "reconstruct", newest)

    def _collect(self, done: int) -> None:
        """Fill ``temp.todo`` with the pending traces and all traces of their conversations."""
        self._connection.execute(
            """
            CREATE OR REPLACE TEMP TABLE todo AS
            SELECT trace_id, conversation_id, min(start_ns) AS first_ns
            FROM all_conversations SEMI JOIN (
                SELECT trace_id FROM spans WHERE seq > $done
                UNION SELECT trace_id FROM logs WHERE seq > $done
            ) USING (trace_id)
            GROUP BY ALL
            """,
            {"done": done},
        )
        self._repeat(
            """
            INSERT INTO temp.todo
            SELECT trace_id, conversation_id, min(start_ns)
            FROM all_conversations SEMI JOIN (
                SELECT trace_id FROM all_conversations
                SEMI JOIN (SELECT conversation_id FROM temp.todo) USING (conversation_id)
            ) USING (trace_id)
            ANTI JOIN temp.todo USING (trace_id)
            GROUP BY ALL
            """
        )

    def _group(self) -> None:
        """Fill ``temp.grouped`` with a key for each trace, the same for linked conversations."""
        self._connection.execute(
            """
            CREATE OR REPLACE TEMP TABLE grouped AS
            SELECT trace_id, coalesce(min(conversation_id), trace_id) AS key,
                   min(first_ns) AS first_ns
            FROM temp.todo GROUP BY trace_id
            """
        )
        several = """
            SELECT count(*) FROM (
                SELECT trace_id FROM temp.todo WHERE conversation_id IS NOT NULL
                GROUP BY trace_id HAVING count(*) > 1 LIMIT 1
            )
            """
        # An update keeps all rows in memory, so it is skipped if it would change nothing.
        if not number(self._connection, several):
            return
        self._repeat(
            """
            UPDATE temp.grouped SET key = least_of.key FROM (
                SELECT t.trace_id, min(c.key) AS key
                FROM temp.todo t JOIN (
                    SELECT conversation_id, min(key) AS key
                    FROM temp.todo JOIN temp.grouped USING (trace_id) GROUP BY conversation_id
                ) c USING (conversation_id)
                GROUP BY t.trace_id
            ) least_of
            WHERE grouped.trace_id = least_of.trace_id AND least_of.key < grouped.key
            """
        )

    def _repeat(self, change: str) -> None:
        """Run a statement until it changes no more rows; usually that is one run."""
        while number(self._connection, change):
            pass

    def _pages(self, size: Callable[[], int]) -> Iterator[list[str]]:
        self._connection.execute(
            """
            CREATE OR REPLACE TEMP TABLE ordered AS
            SELECT trace_id, key, row_number() OVER (ORDER BY begin_ns, key, first_ns) AS place
            FROM (SELECT *, min(first_ns) OVER (PARTITION BY key) AS begin_ns FROM temp.grouped)
            """
        )
        page: list[str] = []
        last = None
        limit = size()
        for trace_id, key in self._ordered():
            if len(page) >= limit and key != last:
                yield page
                page, limit = [], size()
            page.append(trace_id)
            last = key
        if page:
            yield page

    def _ordered(self) -> Iterator[tuple[str, str]]:
        """Yield traces and their keys, fetched in batches."""
        query = "SELECT trace_id, key FROM temp.ordered WHERE place BETWEEN ? AND ? ORDER BY place"
        first = 1
        while rows := self._connection.execute(query, [first, first + _FETCHED - 1]).fetchall():
            yield from rows
            first += _FETCHED
