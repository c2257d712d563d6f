"""Deletes traces with everything that was made of them.

Deleted rows still occupy the database's file until it is compacted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import duckdb
import pyarrow as pa

from ..errors import StoreError
from .archive import Archive
from .cold import key_table
from .query import number, transaction

__all__ = ["Deleted", "Deletion"]

_CHUNK = 1000
# How often a part is tried whose rows another process moves into the archive meanwhile.
_ATTEMPTS = 5
_OF_TRACES = "trace_id IN (SELECT trace_id FROM wanted)"
_OF_RUNS = "trajectory_id IN (SELECT trajectory_id FROM temp.doomed)"
_OF_KEYS = f"key IN (SELECT key FROM judge_call_targets WHERE {_OF_RUNS})"  # noqa: S608
# The tables whose rows are deleted by trace, and by run.
_BY_TRACE = ("spans", "logs", "completions", "trace_conversations")
_BY_RUN = ("trajectories", "superseded", "scores", "human_labels")


@dataclass
class Deleted:
    """The number of rows deleted of each kind.

    Attributes:
        traces: Traces.
        spans: Spans in the database.
        logs: Log records in the database.
        archived_spans: Spans in the archive's files.
        archived_logs: Log records in the archive's files.
        trajectories: Revisions of trajectories.
        scores: Scores.
        labels: People's labels.
        judge_calls: Cached answers of judges.
    """

    traces: int = 0
    spans: int = 0
    logs: int = 0
    archived_spans: int = 0
    archived_logs: int = 0
    trajectories: int = 0
    scores: int = 0
    labels: int = 0
    judge_calls: int = 0

    def add(self, other: Deleted) -> None:
        """Add the numbers of another."""
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)


class Deletion:
    """Deletes from a store.

    Args:
        connection: The store's connection.
        archive: The store's archive.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, archive: Archive) -> None:
        self._connection = connection
        self._archive = archive

    def traces_of_conversations(self, conversations: Sequence[str]) -> list[str]:
        """Return the traces with spans or runs of some conversations, archived ones too."""
        rows = self._connection.execute(
            """
            SELECT trace_id FROM all_conversations WHERE list_contains($ids, conversation_id)
            UNION
            SELECT unnest(trace_ids) FROM trajectories WHERE list_contains($ids, conversation_id)
            ORDER BY 1
            """,
            {"ids": list(conversations)},
        ).fetchall()
        return [trace_id for (trace_id,) in rows]

    def traces_named(self, beginning: str) -> list[str]:
        """Return the traces whose id begins with a text: of spans, log records and archived rows.

        At most ten are returned; more than one means that the beginning is ambiguous.
        """
        rows = self._connection.execute(
            """
            SELECT trace_id FROM spans WHERE starts_with(trace_id, $1)
            UNION SELECT trace_id FROM logs WHERE starts_with(trace_id, $1)
            UNION SELECT trace_id FROM archived_traces WHERE starts_with(trace_id, $1)
            UNION SELECT trace_id FROM trajectories WHERE starts_with(trace_id, $1)
            ORDER BY 1 LIMIT 10
            """,
            {"1": beginning},
        ).fetchall()
        return [trace_id for (trace_id,) in rows]

    def delete(
        self,
        trace_ids: Sequence[str],
        on_progress: Callable[[int], None] | None = None,
        total: Deleted | None = None,
    ) -> Deleted:
        """Delete traces, their runs and whatever is known of these.

        A thousand traces at a time; when a later part fails, earlier ones stay deleted.

        Args:
            trace_ids: The traces.
            on_progress: Called with the number of traces done.
            total: The numbers are added to it, also those of a part that fails.

        Raises:
            ArchiveMissing: A file of the archive that holds some of the traces is missing.
            StoreError: The archive cannot be written.
        """
        total = Deleted() if total is None else total
        remaining = iter(trace_ids)
        while chunk := list(islice(remaining, _CHUNK)):
            self._delete_chunk(chunk, total)
            total.traces += len(chunk)
            if on_progress:
                on_progress(total.traces)
        return total

    def delete_runs_before(self, before_ns: int) -> Deleted:
        """Delete the runs that ended before a time, with their scores and cached judgements.

        Runs that a later run continues stay, since its conversation begins with them. Spans stay.

        Args:
            before_ns: The time (ns).
        """
        with transaction(self._connection):
            self._connection.execute(
                """
                CREATE OR REPLACE TEMP TABLE doomed AS
                WITH RECURSIVE needed(trajectory_id, history_id) AS (
                    SELECT trajectory_id, history_id FROM current_trajectories WHERE end_ns >= $1
                    UNION
                    SELECT t.trajectory_id, t.history_id
                    FROM current_trajectories t JOIN needed n ON t.trajectory_id = n.history_id
                )
                SELECT trajectory_id FROM trajectories
                WHERE trajectory_id NOT IN (SELECT trajectory_id FROM needed)
                GROUP BY trajectory_id HAVING max(end_ns) < $1
                """,
                {"1": before_ns},
            )
            part = Deleted()
            self._delete_runs(part)
        return part

    def delete_scores_before(self, before_ns: int) -> int:
        """Delete the scores of before a time (ns); return how many."""
        return number(self._connection, "DELETE FROM scores WHERE time_ns < ?", [before_ns])

    def delete_judge_calls_before(self, before_ns: int) -> int:
        """Delete the cached answers of judges of before a time (ns); return how many."""
        with transaction(self._connection):
            count = number(
                self._connection, "DELETE FROM judge_calls WHERE time_ns < ?", [before_ns]
            )
            self._connection.execute(
                "DELETE FROM judge_call_targets WHERE key NOT IN (SELECT key FROM judge_calls)"
            )
        return count

    def unlinked_judge_calls(self) -> int:
        """Return how many cached answers are about no stored run, as far as is known."""
        return number(
            self._connection,
            "SELECT count(*) FROM judge_calls ANTI JOIN judge_call_targets USING (key)",
        )

    def copies(self, trace_ids: Sequence[str]) -> dict[str, int]:
        """Return how many things hold copies of the runs of some traces and are not deleted.

        Returns:
            The number of ``references`` and ``experiment runs``.
        """
        found = {"references": 0, "experiment runs": 0}
        remaining = iter(trace_ids)
        while chunk := list(islice(remaining, _CHUNK)):
            with self._wanted(chunk):
                self._collect_runs(chunk)
            found["references"] += number(
                self._connection,
                'SELECT count(*) FROM "references" '
                "WHERE source IN (SELECT trajectory_id FROM temp.doomed)",
            )
            found["experiment runs"] += number(
                self._connection,
                f"SELECT count(*) FROM current_runs WHERE {_OF_RUNS}",  # noqa: S608
            )
        return found

    def _delete_chunk(self, chunk: Sequence[str], total: Deleted) -> None:
        """Delete the traces, wherever their rows are by the time that they are deleted."""
        for attempt in range(_ATTEMPTS):
            # First the archive: when it cannot be reached, nothing of these traces is deleted.
            archived = self._archive.remove(chunk)
            total.add(Deleted(archived_spans=archived["spans"], archived_logs=archived["logs"]))
            part = Deleted()
            try:
                self._delete_rows(chunk, part)
            except duckdb.TransactionException:
                # Another process archives just these rows.
                if attempt + 1 == _ATTEMPTS:
                    raise
                continue
            total.add(part)
            if not self._archive.holds(chunk):
                return
        raise StoreError("the traces are being archived; try again later")

    def _delete_rows(self, chunk: Sequence[str], part: Deleted) -> None:
        with self._wanted(chunk), transaction(self._connection):
            self._collect_runs(chunk)
            for table in _BY_TRACE:
                count = number(self._connection, f"DELETE FROM {table} WHERE {_OF_TRACES}")  # noqa: S608
                if table in ("spans", "logs"):
                    setattr(part, table, count)
            self._delete_runs(part)

    def _collect_runs(self, chunk: Sequence[str]) -> None:
        """Note the runs with spans in some traces as ``temp.doomed``."""
        self._connection.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE doomed AS
            SELECT DISTINCT trajectory_id FROM trajectories
            WHERE {_OF_TRACES} OR list_has_any(trace_ids, ?::VARCHAR[])
            """,  # noqa: S608
            [list(chunk)],
        )

    def _delete_runs(self, part: Deleted) -> None:
        part.judge_calls = number(self._connection, f"DELETE FROM judge_calls WHERE {_OF_KEYS}")  # noqa: S608
        self._connection.execute(f"DELETE FROM judge_call_targets WHERE {_OF_KEYS}")  # noqa: S608
        for table in _BY_RUN:
            count = number(self._connection, f"DELETE FROM {table} WHERE {_OF_RUNS}")  # noqa: S608
            if table in ("trajectories", "scores"):
                setattr(part, table, count)
            elif table == "human_labels":
                part.labels = count
        self._connection.execute("DROP TABLE temp.doomed")

    @contextmanager
    def _wanted(self, trace_ids: Sequence[str]) -> Iterator[None]:
        table: pa.Table = key_table(trace_ids)
        self._connection.register("wanted", table)
        try:
            yield
        finally:
            self._connection.unregister("wanted")
