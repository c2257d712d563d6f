"""The state of live scoring: complete traces, conversations, and the progress of evaluators.

The database has no queue of evaluations. An evaluator's open work is the current trajectories of
complete traces without a score of its version, so a restarted server finds it after any exit.

Tables:

- ``completions``: when traces were complete, appended; the newest of a trace counts.
- ``trace_conversations``: the conversations of traces, noted when their spans arrive.
- ``live_rules``: when an evaluator's version first ran, and the last completion that it has done.
- ``evaluator_spend``: the cost of evaluators by day, appended; the sum counts.
- ``progress``: the stage ``live``; see `progress`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from .archive_files import WANTED_ARCHIVED
from .arrow_rows import table_of
from .current_scores import latest
from .progress import done_by_stage, replace_done
from .query import column, first_row, insert, number, registered, transaction, wanted
from .ranges import EVERYWHERE, Range, current_in

__all__ = [
    "CompletedTrace",
    "EvaluationState",
    "EvaluatorProgress",
    "JustEnded",
    "LiveState",
    "TraceArrival",
    "is_store_failure",
]

# The bit of OTLP's span flags for a parent in another process: the span is the root of its part.
_REMOTE = 0x200
_IS_POSTPONED = """contains(metadata, '"oteval.deferred"')"""
_UNLIMITED = 1 << 60
# The newest spans, among which `LiveState.just_ended` looks for roots.
_RECENT = 20_000
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
# The archived traces, with the number of their last row in the archive.
_ARCHIVED = """
    SELECT trace_id, max(last_seq) AS last_seq
    FROM archived_traces JOIN archived_files USING (file) GROUP BY trace_id
    """


def is_store_failure(error: BaseException) -> bool:
    """Whether the database itself fails, so that any other use of it would fail as well."""
    broken = (duckdb.IOException, duckdb.FatalException, duckdb.OutOfMemoryException)
    return isinstance(error, (OSError, duckdb.TransactionException, *broken))


class TraceArrival(NamedTuple):
    """The spans and log records of a trace that arrived together.

    Attributes:
        trace_id: The trace.
        has_root: Whether its root span is among them.
        first: The number of the first span or log record.
        last: The number of the last one.
        conversations: The conversation ids of the spans.
        rows: The number of spans and log records.
    """

    trace_id: str
    has_root: bool
    first: int
    last: int
    conversations: Sequence[str] = ()
    rows: int = 1


class CompletedTrace(NamedTuple):
    """A complete trace.

    Attributes:
        trace_id: The trace.
        seq: The number of its last span or log record.
        reason: Why it counts as complete.
        first: The number of the first row since its previous completion, or None if that is not
            known; greater than `seq` if no row has arrived since.
    """

    trace_id: str
    seq: int
    reason: str
    first: int | None = None


class JustEnded(NamedTuple):
    """A trace with a root span and without a completion.

    Attributes:
        trace_id: The trace.
        first: The number of its first recent span.
        last: The number of its newest span.
        spans: The number of its recent spans.
        start_ns: When the first of them began.
        end_ns: When the last of them ended.
        agent: The agent of the root span, or "".
        service: The service of the root span, or "".
    """

    trace_id: str
    first: int
    last: int
    spans: int
    start_ns: int
    end_ns: int
    agent: str
    service: str


class EvaluatorProgress(NamedTuple):
    """The progress of an evaluator's version.

    Attributes:
        since_ns: When live scoring first ran it.
        completion: It is done with all completions up to this number.
    """

    since_ns: int
    completion: int


class EvaluationState(NamedTuple):
    """A trajectory of a complete trace, and its scores by one version of an evaluator.

    Attributes:
        trajectory_id: The trajectory.
        rev: Its current revision.
        trace_id: The trace of its root span.
        completion: The number of the trace's newest completion.
        evaluator: The evaluator, or None if no evaluator has scored this revision.
        version: The evaluator's version.
        status: The status of its newest score.
        is_postponed: Whether that score only postpones the evaluation.
        errors: The number of its scores with the status ``error``.
        time_ns: The time of its newest score.
        start_ns: When the trajectory begins.
    """

    trajectory_id: str
    rev: int
    trace_id: str
    completion: int
    evaluator: str | None = None
    version: str | None = None
    status: str | None = None
    is_postponed: bool = False
    errors: int = 0
    time_ns: int = 0
    start_ns: int = 0


class LiveState:
    """The state of live scoring in a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def floor(self) -> int:
        """The floor: all rows up to this number belong to complete traces."""
        return done_by_stage(self._connection, "live")

    def arrivals(self, after: int) -> list[TraceArrival]:
        """The rows with numbers above `after`, by trace; "" for log records without a trace."""
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
        return [TraceArrival(*row) for row in rows]

    def just_ended(self, most: int, trace_id: str = "") -> list[JustEnded]:
        """Return traces that have a root span, but no completion and no trajectory.

        Only the newest spans above the floor are read, so that the cost does not depend on the
        size of the store. A root here is a span without a parent.

        Args:
            most: The most traces, the newest root first.
            trace_id: Only this trace; "" for all.
        """
        newest = number(self._connection, "SELECT coalesce(max(seq), 0) FROM spans")
        after = max(self.floor(), newest - _RECENT)
        if after >= newest:
            return []
        rows = self._connection.execute(
            """
            SELECT trace_id, first, last, spans, start_ns, end_ns, agent, service FROM (
                SELECT trace_id, min(seq) AS first, max(seq) AS last, count(*) AS spans,
                    min(start_ns) AS start_ns, max(end_ns) AS end_ns,
                    coalesce(arg_max(agent, seq) FILTER (is_root), '') AS agent,
                    coalesce(arg_max(service, seq) FILTER (is_root), '') AS service,
                    max(seq) FILTER (is_root) AS root
                FROM (
                    SELECT *, coalesce(parent_id, '') = '' AS is_root FROM spans
                    WHERE seq > $after AND ($trace = '' OR trace_id = $trace)
                ) GROUP BY trace_id
            )
            ANTI JOIN (SELECT trace_id FROM completions WHERE seq > $after) USING (trace_id)
            WHERE root IS NOT NULL ORDER BY root DESC LIMIT $most
            """,
            {"after": after, "trace": trace_id, "most": most},
        ).fetchall()
        traces = [JustEnded(*row) for row in rows]
        stored = self._with_trajectories(traces)
        return [trace for trace in traces if trace.trace_id not in stored]

    def _with_trajectories(self, traces: Sequence[JustEnded]) -> frozenset[str]:
        """The traces with trajectories, which a late span reopened."""
        if not traces:
            return frozenset()
        with wanted(self._connection, "trace_id", [trace.trace_id for trace in traces]):
            rows = column(
                self._connection,
                "SELECT DISTINCT trace_id FROM trajectories SEMI JOIN wanted USING (trace_id) "
                "WHERE start_ns >= ?",
                [min(trace.start_ns for trace in traces)],
            )
        return frozenset(rows)

    def note_conversations(self, arrivals: Iterable[TraceArrival]) -> None:
        """Note the conversations of arrivals, before any of their traces is complete."""
        rows = [
            (conversation, arrival.trace_id, arrival.last)
            for arrival in arrivals
            for conversation in arrival.conversations
        ]
        if rows:
            insert(self._connection, "trace_conversations", table_of(rows, _CONVERSATIONS))

    def trace_keys(self) -> pa.Array:
        """``md5_number_lower`` of all traces that were complete once or are archived."""
        table = self._connection.sql(
            'SELECT md5_number_lower(trace_id) AS "key" FROM completions '
            'UNION SELECT "key" FROM archived_traces ORDER BY "key"'
        ).to_arrow_table()
        return table["key"].combine_chunks()

    def row_ranges(self, traces: Sequence[str]) -> list[Range] | None:
        """The ranges of `seq` with the rows of some traces up to their last completion.

        The ranges leave out rows that arrived later, and archived rows.

        Returns:
            The ranges, or None if they are not known for every trace.
        """
        with wanted(self._connection, "trace_id", traces):
            rows = self._connection.execute(
                f"""
                SELECT coalesce(first_seq, 0), seq, trace_id FROM completions
                SEMI JOIN wanted USING (trace_id)
                UNION ALL
                SELECT 1, 0, trace_id FROM ({WANTED_ARCHIVED})
                """  # noqa: S608
            ).fetchall()
        if len({name for _, _, name in rows}) < len(set(traces)):
            return None
        return [Range(first, last) for first, last, _ in rows]

    def newest_completion(self) -> tuple[int, int]:
        """The number and the time (ns) of the newest completion, 0 without any."""
        query = "SELECT coalesce(max(number), 0), coalesce(max(time_ns), 0) FROM completions"
        row = first_row(self._connection, query)
        return (int(row[0]), int(row[1])) if row else (0, 0)

    def completed_among(self, traces: Sequence[str]) -> frozenset[str]:
        """The traces that were complete once or are archived."""
        with wanted(self._connection, "trace_id", traces):
            rows = column(
                self._connection,
                "SELECT trace_id FROM completions SEMI JOIN wanted USING (trace_id) "
                "UNION SELECT trace_id FROM archived_traces SEMI JOIN wanted USING (trace_id)",
            )
        return frozenset(rows)

    def note_completions(self, traces: Sequence[CompletedTrace], first: int, now: int) -> None:
        """Note that some traces are complete.

        Args:
            traces: The traces.
            first: The number of the first completion. The numbers of the others follow.
            now: The time (ns).
        """
        rows = [
            (completion, trace.trace_id, trace.seq, trace.reason, now, trace.first)
            for completion, trace in enumerate(traces, first)
        ]
        insert(self._connection, "completions", table_of(rows, _COMPLETIONS))

    def advance(self, floor: int) -> None:
        """Note that all rows up to a number belong to complete traces and are reconstructed.

        Call this in a transaction.
        """
        replace_done(self._connection, "live", floor)
        replace_done(self._connection, "reconstruct", floor)

    def evaluation_states(
        self,
        *,
        after: int = -1,
        since_ns: int = 0,
        traces: Sequence[str] | None = None,
        times: Sequence[Range] = (EVERYWHERE,),
        unscored: Collection[str] = (),
        limit: int | None = None,
    ) -> list[EvaluationState]:
        """The current trajectories of complete traces, with the scores of each.

        Args:
            after: Only completions with higher numbers. By default all, and archived traces.
            since_ns: Only completions at this time or later.
            traces: Only these traces.
            times: The times (ns) when their spans begin. Every trajectory overlaps one.
            unscored: New trajectories, without scores to look up.
            limit: At most this many traces, by the order of completion.
        """
        completions = "SELECT trace_id, number, time_ns FROM completions"
        if traces is not None:
            # The completions of archived traces are deleted; see `forget`.
            completions = (
                f"SELECT * FROM ({completions} UNION ALL SELECT trace_id, 0, {_UNLIMITED} "  # noqa: S608
                "FROM archived_traces) SEMI JOIN wanted USING (trace_id)"
            )
        runs = current_in(
            "SELECT trajectory_id, rev, trace_id, start_ns FROM trajectories "
            "WHERE start_ns <= {last} AND end_ns >= {first}",
            times,
        )
        only = nullcontext() if traces is None else wanted(self._connection, "trace_id", traces)
        with only:
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
                {
                    "after": after,
                    "since": since_ns,
                    "limit": _UNLIMITED if limit is None else limit,
                },
            ).fetchall()
        scores = self._scores([(name, rev) for _, name, rev, *_ in rows if name not in unscored])
        return [
            EvaluationState(name, rev, trace_id, completion, *fields)._replace(start_ns=start_ns)
            for completion, name, rev, trace_id, start_ns in rows
            for fields in scores.get((name, rev), [()])
        ]

    def _scores(self, runs: Sequence[tuple[str, int]]) -> dict[tuple[str, int], list[Any]]:
        """The scores of revisions as the fields of `EvaluationState` from `evaluator` on."""
        if not runs:
            return {}
        names, revs = [name for name, _ in runs], [rev for _, rev in runs]
        revisions = pa.table({"trajectory_id": names, "rev": revs})
        with registered(self._connection, "revisions", revisions):
            rows = self._connection.execute(
                f"""
                SELECT s.trajectory_id, s.rev, evaluator, version, {latest("status")},
                       coalesce({latest(_IS_POSTPONED)}, FALSE),
                       count(*) FILTER (status = 'error'), max(time_ns)
                FROM scores s SEMI JOIN revisions USING (trajectory_id, rev)
                GROUP BY ALL
                """  # noqa: S608
            ).fetchall()
        scores_by_revision: dict[tuple[str, int], list[Any]] = {}
        for name, rev, *fields in rows:
            scores_by_revision.setdefault((name, rev), []).append(fields)
        return scores_by_revision

    def progress_of(self, evaluator: str, version: str) -> EvaluatorProgress | None:
        """The progress of an evaluator's version, or None if live scoring never ran it."""
        row = first_row(
            self._connection,
            "SELECT since_ns, settled FROM live_rules WHERE evaluator = ? AND version = ?",
            [evaluator, version],
        )
        return EvaluatorProgress(*row) if row else None

    def set_progress(self, states: Mapping[tuple[str, str], EvaluatorProgress]) -> None:
        """Note the progress of evaluators, by name and version."""
        with transaction(self._connection):
            for (evaluator, version), state in states.items():
                self._connection.execute(
                    "DELETE FROM live_rules WHERE evaluator = ? AND version = ?",
                    [evaluator, version],
                )
                self._connection.execute(
                    "INSERT INTO live_rules VALUES (?, ?, ?, ?)", [evaluator, version, *state]
                )

    def cost_on(self, evaluator: str, day: str) -> tuple[float, float]:
        """The cost of an evaluator on a day, in total and per call (US dollars)."""
        row = first_row(
            self._connection,
            "SELECT coalesce(sum(cost), 0), coalesce(sum(cost) / sum(calls), 0) "
            "FROM evaluator_spend WHERE evaluator = ? AND day = ?",
            [evaluator, day],
        )
        return (float(row[0]), float(row[1])) if row else (0.0, 0.0)

    def add_costs(self, costs: Iterable[tuple[str, str, int, float]]) -> None:
        """Note costs of evaluators: name, day, number of calls, US dollars."""
        for cost in costs:
            self._connection.execute("INSERT INTO evaluator_spend VALUES (?, ?, ?, ?)", list(cost))

    def forget(self, progress: int, before_ns: int, day: str) -> int:
        """Delete rows that are not needed any more.

        The archive's tables list the archived traces, so their completions and conversations are
        not needed. The separate costs of past days are replaced by their sum.

        Args:
            progress: All evaluators in force are done with the completions up to this number.
            before_ns: Completions at this time or later stay, for evaluators that are added.
            day: Today.

        Returns:
            The number of rows deleted.
        """
        with transaction(self._connection):
            return self._forget_archived(progress, before_ns) + self._sum_up_spend(day)

    def _forget_archived(self, progress: int, before_ns: int) -> int:
        # The newest completion stays, because the next one gets the number after it.
        deleted = number(
            self._connection,
            f"""
            DELETE FROM completions USING ({_ARCHIVED}) a
            WHERE completions.trace_id = a.trace_id AND completions.seq <= a.last_seq
              AND number <= ? AND time_ns < ? AND number < (SELECT max(number) FROM completions)
            """,  # noqa: S608
            [progress, before_ns],
        )
        return deleted + number(
            self._connection,
            f"""
            DELETE FROM trace_conversations USING ({_ARCHIVED}) a
            WHERE trace_conversations.trace_id = a.trace_id
              AND trace_conversations.seq <= a.last_seq
            """,  # noqa: S608
        )

    def _sum_up_spend(self, day: str) -> int:
        past = self._connection.execute(
            "SELECT evaluator, day, sum(calls)::BIGINT, sum(cost) FROM evaluator_spend "
            "WHERE day < ? GROUP BY ALL HAVING count(*) > 1",
            [day],
        ).fetchall()
        deleted = 0
        for evaluator, when, calls, cost in past:
            deleted += number(
                self._connection,
                "DELETE FROM evaluator_spend WHERE evaluator = ? AND day = ?",
                [evaluator, when],
            )
            self.add_costs([(evaluator, when, calls, cost)])
        return deleted - len(past)
