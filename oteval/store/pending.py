"""What is still to be reconstructed: the traces that spans or log records came to since last time.

A page of traces holds whole conversations: every trace that shares a conversation id with one of
its traces is on it, and so is every trace that shares one with that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa

from .chains import LooseRun, linked
from .query import number
from .ranges import EVERYWHERE, Range, current_in
from .spans import NEWEST

__all__ = ["Pending"]

_STAGE = "reconstruct"
_KEYS = pa.schema([("key", pa.int64()), ("is_loose", pa.bool_())])
_FETCHED = 10_000
_TEXT = pa.string()


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
        self._group()
        yield from self._pages(size)
        for table in ("todo", "grouped", "ordered"):
            self._connection.execute(f"DROP TABLE temp.{table}")
        self._connection.execute("INSERT INTO progress VALUES (?, ?)", [_STAGE, newest])

    def _collect(self, mark: int) -> None:
        """Collect the traces to do with their conversations, and all others of these."""
        self._connection.execute(
            """
            CREATE OR REPLACE TEMP TABLE todo AS
            SELECT trace_id, conversation_id, min(start_ns) AS first_ns
            FROM all_conversations SEMI JOIN (
                SELECT trace_id FROM spans WHERE seq > $mark
                UNION SELECT trace_id FROM logs WHERE seq > $mark
            ) USING (trace_id)
            GROUP BY ALL
            """,
            {"mark": mark},
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
        """Give the traces that share conversations, also by way of others, the same key."""
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
        # An update holds all in memory, so it is only made where it may change something.
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
        """Make a change until it changes nothing more; most often it is made once."""
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
        """Yield traces and their keys, some thousands fetched at a time."""
        query = "SELECT trace_id, key FROM temp.ordered WHERE place BETWEEN ? AND ? ORDER BY place"
        first = 1
        while rows := self._connection.execute(query, [first, first + _FETCHED - 1]).fetchall():
            yield from rows
            first += _FETCHED

    def linked(
        self, runs: Sequence[LooseRun], traces: Sequence[str], times: Sequence[Range]
    ) -> list[str]:
        """Return the traces that some others hang together with by what their runs say alone.

        Args:
            runs: Of what the traces come to now, the runs that say no conversation.
            traces: The traces.
            times: The times (ns) in which their spans begin; no run of a trace lies outside.
        """
        return linked(self._connection, runs, traces, times)

    def recorded_again(
        self, keys: Sequence[int], loose: Sequence[int], times: Sequence[Range]
    ) -> list[str]:
        """Return the traces that may tell of the same model calls, with their conversations.

        Args:
            keys: What runs of agents have; only runs without an agent are looked for.
            loose: What runs without an agent have.
            times: The times (ns) of which the runs to be found must overlap one.
        """
        if not keys and not loose:
            return []
        wanted = {"key": [*keys, *loose], "is_loose": [False] * len(keys) + [True] * len(loose)}
        self._connection.register("wanted", pa.table(wanted, schema=_KEYS))
        stored = current_in(
            "SELECT trajectory_id, rev, trace_ids, agent, unnest(call_keys) AS key "
            "FROM trajectories WHERE start_ns <= {last} AND end_ns >= {first}",
            times,
        )
        rows = self._connection.execute(
            f"""
            SELECT DISTINCT unnest(trace_ids) FROM ({stored}) stored
            SEMI JOIN wanted ON wanted.key = stored.key AND (wanted.is_loose OR stored.agent = '')
            """  # noqa: S608
        ).fetchall()
        self._connection.unregister("wanted")
        return [trace_id for (trace_id,) in rows]

    def told_with(
        self, trace_ids: Sequence[str], times: Sequence[Range] = (EVERYWHERE,)
    ) -> list[str]:
        """Return the traces of the stored runs that some traces are part of.

        Args:
            trace_ids: The traces.
            times: The times (ns) in which their spans begin; no run of a trace lies outside.
        """
        wanted = pa.table({"trace_id": pa.array(trace_ids, pa.string())})
        self._connection.register("wanted", wanted)
        stored = current_in(
            "SELECT trajectory_id, rev, trace_ids, unnest(trace_ids) AS trace_id "
            "FROM trajectories "
            "WHERE len(trace_ids) > 1 AND start_ns <= {last} AND end_ns >= {first}",
            times,
        )
        rows = self._connection.execute(
            f"SELECT DISTINCT unnest(trace_ids) FROM ({stored}) "  # noqa: S608
            "SEMI JOIN wanted USING (trace_id)"
        ).fetchall()
        self._connection.unregister("wanted")
        return [trace_id for (trace_id,) in rows]

    def with_conversations(self, trace_ids: Sequence[str], *, noted: bool = False) -> list[str]:
        """Return traces and all others that share conversations with them, also by others.

        Args:
            trace_ids: The traces.
            noted: Whether to go by what live scoring has noted, which is quicker; see `Live.note`.
        """
        places = "noted_conversations" if noted else "all_conversations"
        found, more = set(trace_ids), set(trace_ids)
        while more:
            wanted = pa.table({"trace_id": pa.array(sorted(more), pa.string())})
            self._connection.register("wanted", wanted)
            rows = self._connection.execute(
                f"""
                SELECT DISTINCT trace_id FROM {places} SEMI JOIN (
                    SELECT conversation_id FROM {places} SEMI JOIN wanted USING (trace_id)
                    WHERE conversation_id IS NOT NULL
                ) USING (conversation_id)
                """  # noqa: S608
            ).fetchall()
            self._connection.unregister("wanted")
            more = {trace_id for (trace_id,) in rows} - found
            found |= more
        return sorted(found)

    def in_long_conversations(self, trace_ids: Sequence[str], traces: int) -> frozenset[str]:
        """Return those of some traces that are in a conversation of so many traces or more.

        Args:
            trace_ids: The traces; what live scoring has noted of them is gone by, see `Live.note`.
            traces: How many.
        """
        self._connection.register("wanted", pa.table({"trace_id": pa.array(trace_ids, _TEXT)}))
        rows = self._connection.execute(
            """
            WITH talks AS (
                SELECT DISTINCT conversation_id FROM noted_conversations
                SEMI JOIN wanted USING (trace_id) WHERE conversation_id IS NOT NULL
            ), long AS (
                SELECT conversation_id FROM noted_conversations SEMI JOIN talks
                USING (conversation_id)
                GROUP BY conversation_id HAVING count(DISTINCT trace_id) >= $traces
            )
            SELECT DISTINCT trace_id FROM noted_conversations SEMI JOIN wanted USING (trace_id)
            SEMI JOIN long USING (conversation_id)
            """,
            {"traces": traces},
        ).fetchall()
        self._connection.unregister("wanted")
        return frozenset(trace_id for (trace_id,) in rows)
