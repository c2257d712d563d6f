"""Related traces, which have to be reconstructed together.

Traces are related if they share a conversation id, if a stored run has spans of both, or if two
instrumentations recorded the same model call in them. Chats without a conversation id are related
by their messages: the first input of a run repeats all messages of the run that it follows, so the
`follows` of the later run equals the `chain` of the earlier one. Many chats begin with the same
messages, so several runs may have the same chain. A run follows only the last of them that
began before it. A request that failed is retried soon, or not at all.

This module writes nothing. It reads the tables ``trajectories`` and ``superseded``, and the views
``all_conversations`` and ``noted_conversations``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import duckdb
import pyarrow as pa

from ..model import FAILED_REQUEST, FOLLOWS_ANSWER, RETRY_WAIT_NS
from .arrow_rows import table_of
from .query import column, registered, wanted
from .ranges import EVERYWHERE, Range, current_in

__all__ = ["LooseRun", "RelatedTraces"]

_CALL_KEYS = pa.schema([("key", pa.int64()), ("is_loose", pa.bool_())])
_COLUMNS = (
    "trajectory_id, rev, trace_id, trace_ids, service, chain, follows, start_ns, history_id, "
    "history_ns, end_ns"
)
_LOOSE_RUNS = pa.schema(
    [
        ("service", pa.string()),
        ("chain", pa.string()),
        ("follows", pa.string()),
        ("start_ns", pa.int64()),
        ("id", pa.string()),
        ("history_id", pa.string()),
        ("end_ns", pa.int64()),
        ("after_ns", pa.int64()),
    ]
)
# Each column of ``wanted``, and the column of ``trajectories`` with the same value in related runs.
_RELATED_BY = {
    "follows": "chain",
    "chain": "follows",
    "id": "history_id",
    "history_id": "trajectory_id",
}
# Whether a run begins so soon after another that it may send its request again.
_SOON = (
    f"(NOT starts_with({{earlier}}.chain, '{FAILED_REQUEST}') "
    f"OR {{later}}.start_ns - {RETRY_WAIT_NS} <= {{earlier}}.end_ns)"
)
_FOLLOWING_OR_FOLLOWED = f"""
    WITH earlier AS (
        SELECT chain, service, start_ns, max(end_ns) AS end_ns,
        flatten(list(trace_ids)) AS trace_ids
        FROM stored WHERE chain <> '' GROUP BY ALL
    )
    SELECT DISTINCT unnest(trace_ids) FROM (
        SELECT earlier.trace_ids FROM wanted ASOF JOIN earlier
        ON wanted.follows = earlier.chain AND wanted.service = earlier.service
        AND wanted.start_ns >= earlier.start_ns
        WHERE earlier.start_ns >= wanted.after_ns
        AND {_SOON.format(earlier="earlier", later="wanted")}
        UNION ALL
        SELECT stored.trace_ids FROM stored ASOF JOIN wanted
        ON stored.follows = wanted.chain AND stored.service = wanted.service
        AND stored.start_ns >= wanted.start_ns
        WHERE stored.follows <> ''
        AND coalesce(stored.history_ns, {EVERYWHERE.first}) <= wanted.start_ns
        AND {_SOON.format(earlier="wanted", later="stored")}
        UNION ALL
        SELECT trace_ids FROM stored SEMI JOIN wanted ON stored.history_id = wanted.id
        UNION ALL
        SELECT trace_ids FROM stored SEMI JOIN wanted ON stored.trajectory_id = wanted.history_id
    )
    """  # noqa: S608


class LooseRun(NamedTuple):
    """A run without a conversation id.

    Attributes:
        service: Its service.
        chain: A hash of all its messages up to its last answer, or "".
        follows: The `chain` of the run before it, whose messages it begins with, or "".
        start_ns: When it begins.
        id: The id of its trajectory if that is stored, or "".
        history_id: The id of the stored trajectory that it follows, or "".
        end_ns: When it ends.
    """

    service: str
    chain: str
    follows: str
    start_ns: int
    id: str = ""
    history_id: str = ""
    end_ns: int = 0


class RelatedTraces:
    """Finds the traces of a store that have to be reconstructed together with others."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def with_conversations(self, trace_ids: Sequence[str], *, noted: bool = False) -> list[str]:
        """Return traces and all others that share conversations, also through third traces.

        Args:
            trace_ids: The traces.
            noted: Use the conversations that live scoring noted, which is faster; see
                `LiveState.note_conversations`.
        """
        view = "noted_conversations" if noted else "all_conversations"
        traces, new = set(trace_ids), set(trace_ids)
        while new:
            with wanted(self._connection, "trace_id", sorted(new)):
                rows = column(
                    self._connection,
                    f"""
                    SELECT DISTINCT trace_id FROM {view} SEMI JOIN (
                        SELECT conversation_id FROM {view} SEMI JOIN wanted USING (trace_id)
                        WHERE conversation_id IS NOT NULL
                    ) USING (conversation_id)
                    """,  # noqa: S608
                )
            new = set(rows) - traces
            traces |= new
        return sorted(traces)

    def in_long_conversations(self, trace_ids: Sequence[str], traces: int) -> frozenset[str]:
        """Return which of some traces are in long conversations, as live scoring noted them.

        Args:
            trace_ids: The traces.
            traces: A conversation is long if it has at least this many traces.
        """
        with wanted(self._connection, "trace_id", trace_ids):
            rows = column(
                self._connection,
                """
                WITH own AS (
                    SELECT DISTINCT conversation_id FROM noted_conversations
                    SEMI JOIN wanted USING (trace_id) WHERE conversation_id IS NOT NULL
                ), long AS (
                    SELECT conversation_id FROM noted_conversations SEMI JOIN own
                    USING (conversation_id)
                    GROUP BY conversation_id HAVING count(DISTINCT trace_id) >= $traces
                )
                SELECT DISTINCT trace_id FROM noted_conversations SEMI JOIN wanted USING (trace_id)
                SEMI JOIN long USING (conversation_id)
                """,
                {"traces": traces},
            )
        return frozenset(rows)

    def by_runs(
        self, trace_ids: Sequence[str], times: Sequence[Range] = (EVERYWHERE,)
    ) -> list[str]:
        """The traces of all stored runs that have spans of some traces and of others.

        Args:
            trace_ids: The traces.
            times: The times (ns) when their spans begin. Every run of the traces overlaps one.
        """
        stored = current_in(
            "SELECT trajectory_id, rev, trace_ids, unnest(trace_ids) AS trace_id "
            "FROM trajectories "
            "WHERE len(trace_ids) > 1 AND start_ns <= {last} AND end_ns >= {first}",
            times,
        )
        with wanted(self._connection, "trace_id", trace_ids):
            return column(
                self._connection,
                f"SELECT DISTINCT unnest(trace_ids) FROM ({stored}) "  # noqa: S608
                "SEMI JOIN wanted USING (trace_id)",
            )

    def by_calls(
        self, keys: Sequence[int], loose: Sequence[int], times: Sequence[Range]
    ) -> list[str]:
        """The traces of stored runs that may record the same model calls.

        Args:
            keys: Call keys of runs with an agent; only runs without an agent can repeat these.
            loose: Call keys of runs without an agent.
            times: The times (ns). Each stored run that counts overlaps one.
        """
        if not keys and not loose:
            return []
        stored = current_in(
            "SELECT trajectory_id, rev, trace_ids, agent, unnest(call_keys) AS key "
            "FROM trajectories WHERE start_ns <= {last} AND end_ns >= {first}",
            times,
        )
        rows = [*((key, False) for key in keys), *((key, True) for key in loose)]
        with registered(self._connection, "wanted", table_of(rows, _CALL_KEYS)):
            return column(
                self._connection,
                f"""
                SELECT DISTINCT unnest(trace_ids) FROM ({stored}) stored SEMI JOIN wanted
                ON wanted.key = stored.key AND (wanted.is_loose OR stored.agent = '')
                """,  # noqa: S608
            )

    def any_follow_answers(self) -> bool:
        """Whether any stored run follows another by the id of its answer."""
        # Hashes of messages are hexadecimal, so DuckDB need not read them.
        rows = self._connection.execute(
            "SELECT 1 FROM trajectories WHERE follows >= ? LIMIT 1", [FOLLOWS_ANSWER]
        ).fetchall()
        return bool(rows)

    def by_messages(
        self, runs: Sequence[LooseRun], trace_ids: Sequence[str], times: Sequence[Range]
    ) -> list[str]:
        """The other traces whose stored runs follow or precede the runs of some traces.

        Runs that followed or preceded them before they changed are included.

        Args:
            runs: The current runs of the traces, as far as they have no conversation id.
            trace_ids: The traces.
            times: The times (ns) when their spans begin. Every run of the traces overlaps one.
        """
        related_rows: list[tuple[str]] = []
        loaded = pa.table({"trace_id": pa.array(trace_ids, pa.string())})
        with registered(self._connection, "loaded", loaded):
            rows = [*_with_bounds(runs), *_with_bounds(self._stored_runs(times))]
            ours = table_of(rows, _LOOSE_RUNS)
            with registered(self._connection, "wanted", ours):
                stored = self._candidates(ours)
                if stored.num_rows:
                    with registered(self._connection, "stored", stored):
                        related_rows = self._connection.execute(_FOLLOWING_OR_FOLLOWED).fetchall()
        return [trace_id for (trace_id,) in related_rows]

    def _stored_runs(self, times: Sequence[Range]) -> list[LooseRun]:
        """The stored runs that are rooted in the traces of the table ``loaded``."""
        current = current_in(
            f"SELECT {_COLUMNS} FROM trajectories "  # noqa: S608
            "WHERE conversation_id = '' AND (chain <> '' OR follows <> '') "
            "AND start_ns <= {last} AND end_ns >= {first}",
            times,
        )
        rows = self._connection.execute(
            "SELECT service, chain, follows, start_ns, trajectory_id, coalesce(history_id, ''), "  # noqa: S608
            f"end_ns FROM ({current}) SEMI JOIN loaded USING (trace_id)"
        ).fetchall()
        return [LooseRun(*row) for row in rows]

    def _candidates(self, ours: pa.Table) -> pa.Table:
        """Return stored runs of other traces that may follow or precede the runs of ``wanted``."""
        # One query for each column: while DuckDB reads, it filters by one column, but not by either
        # of two.
        queries = " UNION ALL ".join(
            f"SELECT {_COLUMNS} FROM trajectories "  # noqa: S608
            f"SEMI JOIN (SELECT {own} AS key FROM wanted WHERE {own} <> '') ON {column} = key "
            "WHERE conversation_id = ''"
            for own, column in _RELATED_BY.items()
            if any(ours[own].to_pylist())
        )
        if not queries:
            return pa.table({})
        return self._connection.sql(
            f"SELECT * FROM ({queries}) ANTI JOIN superseded USING (trajectory_id, rev) "  # noqa: S608
            "ANTI JOIN loaded USING (trace_id)"
        ).to_arrow_table()


def _with_bounds(runs: Sequence[LooseRun]) -> list[tuple[object, ...]]:
    """The rows of runs, each with the start of the run among them that it follows."""
    starts: dict[tuple[str, str], list[int]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.start_ns):
        if run.chain:
            starts[run.service, run.chain].append(run.start_ns)
    rows: list[tuple[object, ...]] = []
    for run in runs:
        run_starts = starts.get((run.service, run.follows), [])
        before = bisect_left(run_starts, run.start_ns)
        rows.append((*run, run_starts[before - 1] if before else EVERYWHERE.first))
    return rows
