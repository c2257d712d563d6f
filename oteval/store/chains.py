"""Which runs hang together by what they say alone: those of chats that have no conversation's id.

A run follows another when its first input begins with all that the other said: its `follows` is
then the other's `chain`. Of several that said the same it follows the last that began before it.
Since many chats begin alike, only that one is looked for, and only runs for which it is that one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import duckdb
import pyarrow as pa

from .ranges import EVERYWHERE, Range, current_in

__all__ = ["LooseRun", "linked"]

_COLUMNS = (
    "trajectory_id, rev, trace_id, trace_ids, service, chain, follows, start_ns, history_id, "
    "history_ns"
)
_SCHEMA = pa.schema(
    [
        ("service", pa.string()),
        ("chain", pa.string()),
        ("follows", pa.string()),
        ("start_ns", pa.int64()),
        ("id", pa.string()),
        ("history_id", pa.string()),
        ("after_ns", pa.int64()),
    ]
)
# By what others are found, and the column of theirs that is looked at.
_FOUND_BY = {
    "follows": "chain",
    "chain": "follows",
    "id": "history_id",
    "history_id": "trajectory_id",
}
_LINKED = f"""
    WITH said AS (
        SELECT chain, service, start_ns, flatten(list(trace_ids)) AS trace_ids
        FROM stored WHERE chain <> '' GROUP BY ALL
    )
    SELECT DISTINCT unnest(trace_ids) FROM (
        SELECT said.trace_ids FROM wanted ASOF JOIN said
        ON wanted.follows = said.chain AND wanted.service = said.service
        AND wanted.start_ns >= said.start_ns
        WHERE said.start_ns >= wanted.after_ns
        UNION ALL
        SELECT stored.trace_ids FROM stored ASOF JOIN wanted
        ON stored.follows = wanted.chain AND stored.service = wanted.service
        AND stored.start_ns >= wanted.start_ns
        WHERE stored.follows <> ''
        AND coalesce(stored.history_ns, {EVERYWHERE.first}) <= wanted.start_ns
        UNION ALL
        SELECT trace_ids FROM stored SEMI JOIN wanted ON stored.history_id = wanted.id
        UNION ALL
        SELECT trace_ids FROM stored SEMI JOIN wanted ON stored.trajectory_id = wanted.history_id
    )
    """  # noqa: S608


class LooseRun(NamedTuple):
    """A run that says no conversation.

    Attributes:
        service: Its service.
        chain: What a run that follows it has as `follows`, or "".
        follows: The chain of the run that it follows, or "".
        start_ns: When it begins.
        id: Its trajectory, where that is stored; else "".
        history_id: The stored trajectory that it follows, or "".
    """

    service: str
    chain: str
    follows: str
    start_ns: int
    id: str = ""
    history_id: str = ""


def linked(
    connection: duckdb.DuckDBPyConnection,
    runs: Sequence[LooseRun],
    traces: Sequence[str],
    times: Sequence[Range],
) -> list[str]:
    """Return the other traces whose stored runs follow those of some traces, or come before them.

    What a run followed, or what followed it, before it changed is among them.

    Args:
        connection: The connection.
        runs: What the traces come to now.
        traces: The traces.
        times: The times (ns) in which their spans begin.
    """
    connection.register("loaded", pa.table({"trace_id": pa.array(traces, pa.string())}))
    rows = [*_with_bounds(runs), *_with_bounds(_stored(connection, times))]
    columns = zip(*rows, strict=True) if rows else [()] * len(_SCHEMA)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)]
    wanted = pa.table(arrays, schema=_SCHEMA)
    connection.register("wanted", wanted)
    found = []
    stored = _near(connection, wanted)
    if stored.num_rows:
        connection.register("stored", stored)
        found = connection.execute(_LINKED).fetchall()
        connection.unregister("stored")
    connection.unregister("wanted")
    connection.unregister("loaded")
    return [trace_id for (trace_id,) in found]


def _near(connection: duckdb.DuckDBPyConnection, wanted: pa.Table) -> pa.Table:
    """Return the stored runs of other traces that may follow some, or come before them."""
    # Each by itself: DuckDB filters by one column while it reads, but not by either of two.
    found = " UNION ALL ".join(
        f"SELECT {_COLUMNS} FROM trajectories "  # noqa: S608
        f"SEMI JOIN (SELECT {ours} AS key FROM wanted WHERE {ours} <> '') ON {theirs} = key "
        "WHERE conversation_id = ''"
        for ours, theirs in _FOUND_BY.items()
        if any(wanted[ours].to_pylist())
    )
    if not found:
        return pa.table({})
    return connection.sql(
        f"SELECT * FROM ({found}) ANTI JOIN superseded USING (trajectory_id, rev) "  # noqa: S608
        "ANTI JOIN loaded USING (trace_id)"
    ).to_arrow_table()


def _stored(connection: duckdb.DuckDBPyConnection, times: Sequence[Range]) -> list[LooseRun]:
    """Return the stored runs that are rooted in the traces of the table ``loaded``."""
    current = current_in(
        f"SELECT {_COLUMNS} FROM trajectories "  # noqa: S608
        "WHERE conversation_id = '' AND (chain <> '' OR follows <> '') "
        "AND start_ns <= {last} AND end_ns >= {first}",
        times,
    )
    rows = connection.execute(
        "SELECT service, chain, follows, start_ns, trajectory_id, coalesce(history_id, '') "  # noqa: S608
        f"FROM ({current}) SEMI JOIN loaded USING (trace_id)"
    ).fetchall()
    return [LooseRun(*row) for row in rows]


def _with_bounds(runs: Sequence[LooseRun]) -> list[tuple[object, ...]]:
    """Return the rows of runs, with when the one among them begins that each follows."""
    begun: dict[tuple[str, str], list[int]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.start_ns):
        if run.chain:
            begun[run.service, run.chain].append(run.start_ns)
    rows: list[tuple[object, ...]] = []
    for run in runs:
        known = begun.get((run.service, run.follows), [])
        before = bisect_right(known, run.start_ns)
        rows.append((*run, known[before - 1] if before else EVERYWHERE.first))
    return rows
