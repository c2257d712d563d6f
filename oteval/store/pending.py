"""What is still to be reconstructed: the traces that spans or log records came to since last time.

A page of traces holds whole conversations: every trace that shares a conversation id with one of
its traces is on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa

from .query import number
from .spans import NEWEST

__all__ = ["Pending"]

_STAGE = "reconstruct"


class Pending:
    """The traces of a store that are to be reconstructed."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def _mark(self) -> int:
        query = "SELECT coalesce(max(seq), 0) FROM progress WHERE stage = ?"
        return number(self._connection, query, [_STAGE])

    def count(self) -> int:
        """Return how many traces have spans or log records that are not reconstructed."""
        mark = self._mark()
        return number(
            self._connection,
            "SELECT count(DISTINCT trace_id) FROM ("
            "SELECT trace_id FROM spans WHERE seq > ? UNION ALL "
            "SELECT trace_id FROM logs WHERE seq > ?)",
            [mark, mark],
        )

    def pages(self, size: int = 1000) -> Iterator[list[str]]:
        """Yield pages of trace ids; when the last has been taken, all counts as reconstructed.

        Args:
            size: About how many traces a page holds; a conversation is never split.
        """
        newest, mark = number(self._connection, NEWEST), self._mark()
        if newest <= mark:
            return
        self._collect(mark)
        yield from self._pages(size)
        self._connection.execute("DROP TABLE temp.todo")
        self._connection.execute("INSERT INTO progress VALUES (?, ?)", [_STAGE, newest])

    def _collect(self, mark: int) -> None:
        """Collect the traces to do, and the others of their conversations, in a table."""
        self._connection.execute(
            """
            CREATE OR REPLACE TEMP TABLE todo AS
            SELECT trace_id, arg_min(conversation_id, start_ns) AS conversation_id,
                   min(start_ns) AS first_ns
            FROM spans SEMI JOIN (
                SELECT trace_id FROM spans WHERE seq > $mark
                UNION SELECT trace_id FROM logs WHERE seq > $mark
            ) USING (trace_id)
            GROUP BY trace_id
            """,
            {"mark": mark},
        )
        self._connection.execute(
            """
            INSERT INTO temp.todo
            SELECT trace_id, any_value(conversation_id), min(start_ns)
            FROM spans
            SEMI JOIN (
                SELECT DISTINCT conversation_id FROM temp.todo WHERE conversation_id IS NOT NULL
            ) USING (conversation_id)
            ANTI JOIN temp.todo USING (trace_id)
            GROUP BY trace_id
            """
        )

    def _pages(self, size: int) -> Iterator[list[str]]:
        rows = self._connection.execute(
            """
            SELECT trace_id, coalesce(conversation_id, trace_id) AS key FROM temp.todo
            ORDER BY min(first_ns) OVER (PARTITION BY coalesce(conversation_id, trace_id)),
                     key, first_ns
            """
        ).fetchall()
        page: list[str] = []
        last = None
        for trace_id, key in rows:
            if len(page) >= size and key != last:
                yield page
                page = []
            page.append(trace_id)
            last = key
        if page:
            yield page

    def linked(self, chains: Sequence[str], follows: Sequence[str]) -> list[str]:
        """Return the traces of stored runs that others continue, known by their messages alone.

        Args:
            chains: Of runs that stored ones may follow.
            follows: The chains of runs that stored ones may be.
        """
        if not chains and not follows:
            return []
        wanted = {
            "chains": pa.table({"key": pa.array(chains, pa.string())}),
            "follows": pa.table({"key": pa.array(follows, pa.string())}),
        }
        for name, table in wanted.items():
            self._connection.register(f"wanted_{name}", table)
        rows = self._connection.execute(
            """
            SELECT DISTINCT unnest(trace_ids) FROM (
                SELECT trace_ids FROM current_trajectories t
                SEMI JOIN wanted_follows w ON t.chain = w.key
                UNION ALL
                SELECT trace_ids FROM current_trajectories t
                SEMI JOIN wanted_chains w ON t.follows = w.key
            )
            """
        ).fetchall()
        for name in wanted:
            self._connection.unregister(f"wanted_{name}")
        return [trace_id for (trace_id,) in rows]
