"""What live scoring must not forget: which traces are complete, and what evaluators have done.

There is no queue: what is to be scored is the current trajectories of complete traces that have no
score by an evaluator's version. So a restart finds it again, whenever the process ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import duckdb
import pyarrow as pa

from ..model import Score
from .query import number, row
from .rows import rows_of
from .scores import score_of

__all__ = ["Arrival", "Completed", "Live", "RuleState", "Todo", "is_of_the_store"]

_STAGE = "live"
# The parent was in another process (OTLP's span flags), so that the span is the root of its own.
_REMOTE = 0x200
_MANY = 1 << 60
_COMPLETIONS = pa.schema(
    [
        ("number", pa.int64()),
        ("trace_id", pa.string()),
        ("seq", pa.int64()),
        ("reason", pa.string()),
        ("time_ns", pa.int64()),
    ]
)


def is_of_the_store(error: BaseException) -> bool:
    """Return whether the database itself fails, so that every other work on it would too."""
    broken = (duckdb.IOException, duckdb.FatalException, duckdb.OutOfMemoryException)
    return isinstance(error, (OSError, duckdb.TransactionException, *broken))


class Arrival(NamedTuple):
    """What came of a trace.

    Attributes:
        trace_id: The trace.
        has_root: Whether its root span is among it.
        first: The number of the first span or log record that came.
        last: The number of the last.
    """

    trace_id: str
    has_root: bool
    first: int
    last: int


class Completed(NamedTuple):
    """A trace that is complete.

    Attributes:
        trace_id: The trace.
        seq: The number of the last span or log record that had come.
        reason: Why it counts as complete.
    """

    trace_id: str
    seq: int
    reason: str


class RuleState(NamedTuple):
    """How far an evaluator is.

    Attributes:
        since_ns: When live scoring first had it.
        settled: Of all completions up to this number, it has nothing to do.
    """

    since_ns: int
    settled: int


class Todo(NamedTuple):
    """A trajectory of a complete trace, and what an evaluator's version has said of it.

    Attributes:
        trajectory_id: The trajectory.
        rev: Its current revision.
        trace_id: The trace of its root.
        completion: The number of the trace's newest completion.
        evaluator: The evaluator, or None when none has judged this revision.
        version: Its version.
        status: The status of its newest score.
        deferred: Whether that was only put off.
        errors: How often it failed.
        time_ns: When it judged last.
    """

    trajectory_id: str
    rev: int
    trace_id: str
    completion: int
    evaluator: str | None = None
    version: str | None = None
    status: str | None = None
    deferred: bool = False
    errors: int = 0
    time_ns: int = 0


class Live:
    """The state of live scoring in a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all that is written inside count together, or not at all."""
        self._connection.begin()
        try:
            yield
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()

    def floor(self) -> int:
        """Return the number up to which all spans and log records are of complete traces."""
        query = "SELECT coalesce(max(seq), 0) FROM progress WHERE stage = ?"
        return number(self._connection, query, [_STAGE])

    def arrivals(self, after: int) -> list[Arrival]:
        """Return what came after a number, by trace; log records of no trace have trace ""."""
        rows = self._connection.execute(
            f"""
            SELECT trace_id, bool_or(is_root), min(seq), max(seq) FROM (
                SELECT trace_id, seq, coalesce(parent_id, '') = '' OR coalesce(
                    try_cast(regexp_extract(rest, '"flags":([0-9]+)', 1) AS BIGINT) & {_REMOTE}, 0
                ) <> 0 AS is_root
                FROM spans WHERE seq > $after
                UNION ALL
                SELECT coalesce(trace_id, ''), seq, FALSE FROM logs WHERE seq > $after
            )
            GROUP BY trace_id ORDER BY min(seq)
            """,  # noqa: S608
            {"after": after},
        ).fetchall()
        return [Arrival(*found) for found in rows]

    def newest_completion(self) -> int:
        """Return the number of the newest completion, 0 where there is none."""
        return number(self._connection, "SELECT coalesce(max(number), 0) FROM completions")

    def completed(self, traces: Sequence[str]) -> frozenset[str]:
        """Return those of some traces that were complete once."""
        self._connection.register("wanted", pa.table({"trace_id": pa.array(traces)}))
        rows = self._connection.execute(
            "SELECT DISTINCT trace_id FROM completions SEMI JOIN wanted USING (trace_id)"
        ).fetchall()
        self._connection.unregister("wanted")
        return frozenset(name for (name,) in rows)

    def complete(self, traces: Sequence[Completed], first: int, now: int) -> None:
        """Note that some traces are complete.

        Args:
            traces: The traces.
            first: The number of the first completion; the others count up.
            now: The time (ns).
        """
        rows = [
            (first + index, one.trace_id, one.seq, one.reason, now)
            for index, one in enumerate(traces)
        ]
        columns = [list(column) for column in zip(*rows, strict=True)]
        self._connection.register("incoming", pa.table(columns, schema=_COMPLETIONS))
        self._connection.execute("INSERT INTO completions SELECT * FROM incoming")
        self._connection.unregister("incoming")

    def advance(self, floor: int) -> None:
        """Note that all spans and log records up to a number are of complete traces."""
        for stage in (_STAGE, "reconstruct"):
            query = "SELECT coalesce(max(seq), 0) FROM progress WHERE stage = ?"
            if number(self._connection, query, [stage]) < floor:
                self._connection.execute("DELETE FROM progress WHERE stage = ?", [stage])
                self._connection.execute("INSERT INTO progress VALUES (?, ?)", [stage, floor])

    def todo(
        self,
        *,
        after: int = 0,
        since_ns: int = 0,
        traces: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[Todo]:
        """Return the current trajectories of complete traces, with what was said of each.

        Args:
            after: Only of completions after this number.
            since_ns: Only of completions at this time or later.
            traces: Only of these traces.
            limit: Only of so many traces, those that were complete first.
        """
        only = ""
        if traces is not None:
            self._connection.register("wanted", pa.table({"trace_id": pa.array(traces)}))
            only = "SEMI JOIN wanted USING (trace_id)"
        rows = self._connection.execute(
            f"""
            WITH wanted_traces AS (
                SELECT trace_id, max(number) AS completion FROM completions {only}
                WHERE number > $after AND time_ns >= $since GROUP BY trace_id
                ORDER BY completion LIMIT $limit
            ), meant AS (
                SELECT trajectory_id, rev, trace_id, completion
                FROM current_trajectories JOIN wanted_traces USING (trace_id)
            ), said AS (
                SELECT s.trajectory_id, s.rev, evaluator, version, arg_max(status, seq) AS status,
                       arg_max(contains(metadata, '"oteval.deferred"'), seq) AS deferred,
                       count(*) FILTER (status = 'error') AS errors, max(time_ns) AS time_ns
                FROM scores s SEMI JOIN meant USING (trajectory_id, rev)
                GROUP BY ALL
            )
            SELECT meant.*, evaluator, version, status, coalesce(deferred, FALSE),
                   coalesce(errors, 0), coalesce(time_ns, 0)
            FROM meant LEFT JOIN said USING (trajectory_id, rev)
            ORDER BY completion, trajectory_id
            """,  # noqa: S608
            {"after": after, "since": since_ns, "limit": _MANY if limit is None else limit},
        ).fetchall()
        if traces is not None:
            self._connection.unregister("wanted")
        return [Todo(*found) for found in rows]

    def rule(self, evaluator: str, version: str) -> RuleState | None:
        """Return how far an evaluator's version is, or None when live scoring never had it."""
        found = row(
            self._connection,
            "SELECT since_ns, settled FROM live_rules WHERE evaluator = ? AND version = ?",
            [evaluator, version],
        )
        return RuleState(*found) if found else None

    def settle(self, states: Mapping[tuple[str, str], RuleState]) -> None:
        """Note how far evaluators are, by name and version."""
        with self.transaction():
            for (evaluator, version), state in states.items():
                self._connection.execute(
                    "DELETE FROM live_rules WHERE evaluator = ? AND version = ?",
                    [evaluator, version],
                )
                self._connection.execute(
                    "INSERT INTO live_rules VALUES (?, ?, ?, ?)", [evaluator, version, *state]
                )

    def spent(self, evaluator: str, day: str) -> tuple[float, float]:
        """Return what an evaluator has cost on a day and what a call did (US dollars)."""
        found = row(
            self._connection,
            "SELECT coalesce(sum(cost), 0), coalesce(sum(cost) / sum(calls), 0) "
            "FROM evaluator_spend WHERE evaluator = ? AND day = ?",
            [evaluator, day],
        )
        return (float(found[0]), float(found[1])) if found else (0.0, 0.0)

    def spend(self, costs: Iterable[tuple[str, str, int, float]]) -> None:
        """Note what evaluators have cost: name, day, calls, US dollars."""
        for cost in costs:
            self._connection.execute("INSERT INTO evaluator_spend VALUES (?, ?, ?, ?)", list(cost))

    def scores_of(self, traces: Sequence[str]) -> dict[str, list[Score]]:
        """Return the newest scores on the spans of some traces; each trace asked for is there."""
        found: dict[str, list[Score]] = {name: [] for name in traces}
        self._connection.register("wanted", pa.table({"trace_id": pa.array(list(found))}))
        table = self._connection.sql(
            "SELECT * FROM scores SEMI JOIN wanted USING (trace_id) QUALIFY row_number() OVER ("
            "PARTITION BY trajectory_id, evaluator ORDER BY rev DESC, seq DESC) = 1 "
            "ORDER BY evaluator"
        ).to_arrow_table()
        self._connection.unregister("wanted")
        for one in rows_of(table):
            found[one["trace_id"]].append(score_of(one))
        return found
