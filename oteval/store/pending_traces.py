"""Pending traces: those with spans or log records that are not reconstructed yet.

A page of traces holds whole conversations. Traces that share a conversation's id are on the same
page, and so are traces that are linked by a chain of shared ids.

Tables: ``progress`` and temporary ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from .progress import done_by_stage, newest_seq, note_done
from .query import number

__all__ = ["PendingTraces"]

_FETCHED = 10_000


class PendingTraces:
    """The traces of a store with rows that are not reconstructed yet."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def count(self) -> int:
        """Return the number of pending traces."""
        done = done_by_stage(self._connection, "reconstruct")
        return number(
            self._connection,
            "SELECT count(DISTINCT trace_id) FROM ("
            "SELECT trace_id FROM spans WHERE seq > ? UNION ALL "
            "SELECT trace_id FROM logs WHERE seq > ?)",
            [done, done],
        )

    def pages(self, size: int = 1000) -> Iterator[list[str]]:
        """Yield the ids of pending traces page by page.

        Exhausting the iterator marks all of them as reconstructed.

        Args:
            size: Approximate number of traces per page. A conversation is never split.
        """
        newest = newest_seq(self._connection)
        done = done_by_stage(self._connection, "reconstruct")
        if newest <= done:
            return
        self._collect(done)
        self._group()
        yield from self._pages(size)
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
        # An update holds all rows in memory, so it is skipped if it would change nothing.
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

    def _pages(self, size: int) -> Iterator[list[str]]:
        self._connection.execute(
            """
            CREATE OR REPLACE TEMP TABLE ordered AS
            SELECT trace_id, key, row_number() OVER (ORDER BY begin_ns, key, first_ns) AS place
            FROM (SELECT *, min(first_ns) OVER (PARTITION BY key) AS begin_ns FROM temp.grouped)
            """
        )
        page: list[str] = []
        last = None
        for trace_id, key in self._ordered():
            if len(page) >= size and key != last:
                yield page
                page = []
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
