"""What live scoring must not forget: which traces are complete, and what evaluators have done.

There is no queue: what is to be scored is the current trajectories of complete traces that have no
score by an evaluator's version. So a restart finds it again, whenever the process ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from ..model import Score
from .forgetting import forget_archived, sum_up_spend
from .query import number, row, transaction
from .ranges import EVERYWHERE, Range, current_in
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
        ("first_seq", pa.int64()),
    ]
)
_CONVERSATIONS = pa.schema(
    [("conversation_id", pa.string()), ("trace_id", pa.string()), ("seq", pa.int64())]
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
        conversations: The ids of conversations that its spans have.
        rows: How many spans and log records came.
    """

    trace_id: str
    has_root: bool
    first: int
    last: int
    conversations: Sequence[str] = ()
    rows: int = 1


class Completed(NamedTuple):
    """A trace that is complete.

    Attributes:
        trace_id: The trace.
        seq: The number of the last span or log record that had come.
        reason: Why it counts as complete.
        first: The number of the first that had come since it was complete before, or None when
            that is not known; above `seq` when none had.
    """

    trace_id: str
    seq: int
    reason: str
    first: int | None = None


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
        start_ns: When the trajectory begins.
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
    start_ns: int = 0


class Live:
    """The state of live scoring in a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all that is written inside count together, or not at all."""
        with transaction(self._connection):
            yield

    def floor(self) -> int:
        """Return the number up to which all spans and log records are of complete traces."""
        query = "SELECT coalesce(max(seq), 0) FROM progress WHERE stage = ?"
        return number(self._connection, query, [_STAGE])

    def arrivals(self, after: int) -> list[Arrival]:
        """Return what came after a number, by trace; log records of no trace have trace ""."""
        rows = self._connection.execute(
            f"""
            SELECT trace_id, bool_or(is_root), min(seq), max(seq), coalesce(
                list(DISTINCT conversation_id) FILTER (conversation_id IS NOT NULL), []
            ), count(*) FROM (
                SELECT trace_id, seq, conversation_id, coalesce(parent_id, '') = '' OR coalesce(
                    try_cast(regexp_extract(rest, '"flags":([0-9]+)', 1) AS BIGINT) & {_REMOTE}, 0
                ) <> 0 AS is_root
                FROM spans WHERE seq > $after
                UNION ALL
                SELECT coalesce(trace_id, ''), seq, NULL, FALSE FROM logs WHERE seq > $after
            )
            GROUP BY trace_id ORDER BY min(seq)
            """,  # noqa: S608
            {"after": after},
        ).fetchall()
        return [Arrival(*found) for found in rows]

    def note(self, arrivals: Iterable[Arrival]) -> None:
        """Note the conversations of what came, before any of its traces is complete."""
        rows = [
            (conversation, one.trace_id, one.last)
            for one in arrivals
            for conversation in one.conversations
        ]
        if not rows:
            return
        columns = [list(column) for column in zip(*rows, strict=True)]
        self._connection.register("incoming", pa.table(columns, schema=_CONVERSATIONS))
        self._connection.execute("INSERT INTO trace_conversations SELECT * FROM incoming")
        self._connection.unregister("incoming")

    def keys(self) -> pa.Array:
        """Return ``md5_number_lower`` of the traces that were complete once or are archived."""
        found = self._connection.sql(
            'SELECT md5_number_lower(trace_id) AS "key" FROM completions '
            'UNION SELECT "key" FROM archived_traces ORDER BY "key"'
        ).to_arrow_table()
        return found["key"].combine_chunks()

    def numbers(self, traces: Sequence[str]) -> list[Range] | None:
        """Return between which numbers the rows of traces lie that were complete once.

        What came of them since then lies elsewhere; so does what is archived.

        Returns:
            The stretches; None where they are not known of every trace.
        """
        self._connection.register("wanted", pa.table({"trace_id": pa.array(traces, pa.string())}))
        rows = self._connection.execute(
            """
            SELECT coalesce(first_seq, 0), seq, trace_id FROM completions
            SEMI JOIN wanted USING (trace_id)
            UNION ALL
            SELECT 1, 0, a.trace_id FROM archived_traces a
            JOIN (SELECT trace_id, md5_number_lower(trace_id) AS "key" FROM wanted) w
              ON a."key" = w."key" AND a.trace_id = w.trace_id
            """
        ).fetchall()
        self._connection.unregister("wanted")
        if len({name for _, _, name in rows}) < len(set(traces)):
            return None
        return [Range(first, last) for first, last, _ in rows]

    def newest_completion(self) -> int:
        """Return the number of the newest completion, 0 where there is none."""
        return number(self._connection, "SELECT coalesce(max(number), 0) FROM completions")

    def newest_completion_ns(self) -> int:
        """Return the time (ns) of the latest completion, 0 where there is none."""
        return number(self._connection, "SELECT coalesce(max(time_ns), 0) FROM completions")

    def completed(self, traces: Sequence[str]) -> frozenset[str]:
        """Return those of some traces that were complete once."""
        self._connection.register("wanted", pa.table({"trace_id": pa.array(traces)}))
        rows = self._connection.execute(
            "SELECT trace_id FROM completions SEMI JOIN wanted USING (trace_id) "
            "UNION SELECT trace_id FROM archived_traces SEMI JOIN wanted USING (trace_id)"
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
            (first + index, one.trace_id, one.seq, one.reason, now, one.first)
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
        after: int = -1,
        since_ns: int = 0,
        traces: Sequence[str] | None = None,
        times: Sequence[Range] = (EVERYWHERE,),
        unjudged: Collection[str] = (),
        limit: int | None = None,
    ) -> list[Todo]:
        """Return the current trajectories of complete traces, with what was said of each.

        Args:
            after: Only of completions after this number; all by default, and of what is archived.
            since_ns: Only of completions at this time or later.
            traces: Only of these traces.
            times: The times (ns) in which their spans begin; no run of them lies outside.
            unjudged: Trajectories of which nothing can have been said, since they are new.
            limit: Only of so many traces, those that were complete first.
        """
        completions = "SELECT trace_id, number, time_ns FROM completions"
        if traces is not None:
            self._connection.register("wanted", pa.table({"trace_id": pa.array(traces)}))
            # Of what is archived, completions are deleted; see `forget`.
            completions = (
                f"SELECT * FROM ({completions} UNION ALL SELECT trace_id, 0, {_MANY} "  # noqa: S608
                "FROM archived_traces) SEMI JOIN wanted USING (trace_id)"
            )
        runs = current_in(
            "SELECT trajectory_id, rev, trace_id, start_ns FROM trajectories "
            "WHERE start_ns <= {last} AND end_ns >= {first}",
            times,
        )
        rows = self._connection.execute(
            f"""
            WITH wanted_traces AS (
                SELECT trace_id, max(number) AS completion FROM ({completions})
                WHERE number > $after AND time_ns >= $since GROUP BY trace_id
                ORDER BY completion LIMIT $limit
            )
            SELECT DISTINCT completion, trajectory_id, rev, trace_id, start_ns FROM ({runs})
            JOIN wanted_traces USING (trace_id)
            ORDER BY completion, start_ns, trajectory_id
            """,  # noqa: S608
            {"after": after, "since": since_ns, "limit": _MANY if limit is None else limit},
        ).fetchall()
        if traces is not None:
            self._connection.unregister("wanted")
        said = self._said([(name, rev) for _, name, rev, *_ in rows if name not in unjudged])
        return [
            Todo(name, rev, trace_id, completion, *one)._replace(start_ns=start_ns)
            for completion, name, rev, trace_id, start_ns in rows
            for one in said.get((name, rev), [()])
        ]

    def _said(self, runs: Sequence[tuple[str, int]]) -> dict[tuple[str, int], list[Any]]:
        """Return what evaluators have said of revisions, as `Todo` has it from `evaluator` on."""
        if not runs:
            return {}
        names, revs = [name for name, _ in runs], [rev for _, rev in runs]
        self._connection.register("meant", pa.table({"trajectory_id": names, "rev": revs}))
        rows = self._connection.execute(
            """
            SELECT s.trajectory_id, s.rev, evaluator, version, arg_max(status, seq),
                   coalesce(arg_max(contains(metadata, '"oteval.deferred"'), seq), FALSE),
                   count(*) FILTER (status = 'error'), max(time_ns)
            FROM scores s SEMI JOIN meant USING (trajectory_id, rev)
            GROUP BY ALL
            """
        ).fetchall()
        self._connection.unregister("meant")
        found: dict[tuple[str, int], list[Any]] = {}
        for name, rev, *said in rows:
            found.setdefault((name, rev), []).append(said)
        return found

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

    def forget(self, settled: int, before_ns: int, day: str) -> int:
        """Delete what nothing asks for any more, and return of how many rows that was.

        Args:
            settled: Up to which completion no evaluator in force has anything to do.
            before_ns: Completions of this time or later stay, for evaluators that are new.
            day: Today; what evaluators cost before is summed up.
        """
        with self.transaction():
            deleted = forget_archived(self._connection, settled, before_ns)
            return deleted + sum_up_spend(self._connection, day)

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
