"""Deletion of traces with everything that was derived from them, and the audit log.

Deleted rows still take space in the database's file until it is compacted.

Table: ``audit_log``, to which rows are only appended. Rows are deleted from most other tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import duckdb

from ..base.errors import StoreError
from ..base.jsontext import dumps, restore
from .archive import Archive
from .query import column, number, repeated, transaction, wanted

__all__ = ["AuditEntry", "AuditLog", "DeletedRows", "Deletion"]

_CHUNK = 1000
# Attempts to delete a part while another process archives some of its rows.
_ATTEMPTS = 5
_OF_TRACES = "trace_id IN (SELECT trace_id FROM wanted)"
_OF_RUNS = "trajectory_id IN (SELECT trajectory_id FROM temp.doomed)"
_KEPT = "list_filter({}, lambda id: NOT list_contains(ids, id))"
_FORGET_IN_NOTIFICATIONS = f"""
    UPDATE notifications SET runs = {_KEPT.format("runs")},
    payload = json_merge_patch(payload, to_json({{
        runs: {_KEPT.format("json_extract_string(payload, '$.runs[*]')")},
        runs_before: {_KEPT.format("json_extract_string(payload, '$.runs_before[*]')")}
    }}))
    FROM (SELECT list(trajectory_id) AS ids FROM temp.doomed) WHERE list_has_any(runs, ids)
    """  # noqa: S608
_FORGET_IN_EPISODES = f"""
    UPDATE monitor_episodes
    SET runs = {_KEPT.format("runs")}, runs_before = {_KEPT.format("runs_before")}
    FROM (SELECT list(trajectory_id) AS ids FROM temp.doomed)
    WHERE list_has_any(list_concat(runs, runs_before), ids)
    """  # noqa: S608
_OF_KEYS = f"key IN (SELECT key FROM judge_call_targets WHERE {_OF_RUNS})"  # noqa: S608
# The tables from which rows are deleted by trace, and by trajectory.
_BY_TRACE = ("spans", "logs", "completions", "trace_conversations")
_BY_RUN = ("trajectories", "superseded", "scores", "human_labels", "monitor_open_runs")


@dataclass
class DeletedRows:
    """The number of deleted rows of each kind.

    Attributes:
        traces: Traces.
        spans: Spans in the database.
        logs: Log records in the database.
        archived_spans: Spans in the archive.
        archived_logs: Log records in the archive.
        trajectories: Revisions of trajectories.
        scores: Scores.
        labels: Labels from people.
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

    def add(self, later: DeletedRows) -> None:
        """Add the counts of another deletion."""
        for name, count in vars(later).items():
            setattr(self, name, getattr(self, name) + count)


class Deletion:
    """Deletes rows of a store.

    Args:
        connection: The store's connection.
        archive: The store's archive.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, archive: Archive) -> None:
        self._connection = connection
        self._archive = archive

    def traces_of_conversations(self, conversations: Sequence[str]) -> list[str]:
        """The traces of some conversations, including archived traces."""
        return column(
            self._connection,
            """
            SELECT trace_id FROM all_conversations WHERE list_contains($ids, conversation_id)
            UNION
            SELECT unnest(trace_ids) FROM trajectories WHERE list_contains($ids, conversation_id)
            ORDER BY 1
            """,
            {"ids": list(conversations)},
        )

    def find_traces(self, beginning: str) -> list[str]:
        """Return up to ten traces whose id begins with a text, including archived traces.

        More than one means that the beginning is ambiguous.
        """
        return column(
            self._connection,
            """
            SELECT trace_id FROM spans WHERE starts_with(trace_id, $1)
            UNION SELECT trace_id FROM logs WHERE starts_with(trace_id, $1)
            UNION SELECT trace_id FROM archived_traces WHERE starts_with(trace_id, $1)
            UNION SELECT trace_id FROM trajectories WHERE starts_with(trace_id, $1)
            ORDER BY 1 LIMIT 10
            """,
            {"1": beginning},
        )

    def delete(
        self,
        trace_ids: Sequence[str],
        on_progress: Callable[[int], None] | None = None,
        total: DeletedRows | None = None,
    ) -> DeletedRows:
        """Delete traces, their trajectories, and the scores, labels and judge calls of these.

        A thousand traces are deleted at a time. If a later part fails, earlier ones stay deleted.

        Args:
            trace_ids: The traces.
            on_progress: Called with the number of traces done.
            total: Counts to add to, even for a part that fails.

        Raises:
            ArchiveMissing: An archived file with some of the traces is missing.
            StoreError: The archive cannot be written.
        """
        total = DeletedRows() if total is None else total
        remaining = iter(trace_ids)
        while chunk := list(islice(remaining, _CHUNK)):
            self._delete_chunk(chunk, total)
            total.traces += len(chunk)
            if on_progress:
                on_progress(total.traces)
        return total

    def delete_runs_before(self, before_ns: int) -> DeletedRows:
        """Delete the trajectories that ended before a time, with their scores and judge calls.

        A trajectory that a later one continues stays, because it is part of the later one. Spans
        stay.

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
            part = DeletedRows()
            self._delete_runs(part)
        return part

    def delete_scores_before(self, before_ns: int) -> int:
        """Delete the scores from before a time (ns), and return their number."""
        return number(self._connection, "DELETE FROM scores WHERE time_ns < ?", [before_ns])

    def delete_judge_calls_before(self, before_ns: int) -> int:
        """Delete the cached answers of judges from before a time (ns), and return their number."""
        with transaction(self._connection):
            count = number(
                self._connection, "DELETE FROM judge_calls WHERE time_ns < ?", [before_ns]
            )
            self._connection.execute(
                "DELETE FROM judge_call_targets WHERE key NOT IN (SELECT key FROM judge_calls)"
            )
        return count

    def unlinked_judge_calls(self) -> int:
        """The number of cached answers that are not linked to a stored trajectory."""
        return number(
            self._connection,
            "SELECT count(*) FROM judge_calls ANTI JOIN judge_call_targets USING (key)",
        )

    def copies(self, trace_ids: Sequence[str]) -> dict[str, int]:
        """The number of ``references`` and ``experiment runs`` with copies of some traces.

        Deleting the traces leaves these copies in place.
        """
        copy_counts = {"references": 0, "experiment runs": 0}
        remaining = iter(trace_ids)
        while chunk := list(islice(remaining, _CHUNK)):
            with wanted(self._connection, "trace_id", chunk):
                self._collect_runs(chunk)
            copy_counts["references"] += number(
                self._connection,
                'SELECT count(*) FROM "references" '
                "WHERE source IN (SELECT trajectory_id FROM temp.doomed)",
            )
            copy_counts["experiment runs"] += number(
                self._connection,
                f"SELECT count(*) FROM current_runs WHERE {_OF_RUNS}",  # noqa: S608
            )
        return copy_counts

    def _delete_chunk(self, chunk: Sequence[str], total: DeletedRows) -> None:
        """Delete traces, even if some of their rows move to the archive meanwhile."""
        for _ in range(_ATTEMPTS):
            # The archive is first: if it is missing, no row of these traces is deleted.
            archived = self._archive.remove(chunk)
            total.add(DeletedRows(archived_spans=archived["spans"], archived_logs=archived["logs"]))
            # Another process may be archiving these rows, or monitors be reading them.
            total.add(repeated(lambda: self._delete_rows(chunk)))
            if not self._archive.holds(chunk):
                return
        raise StoreError("another process is archiving the traces; try again later")

    def _delete_rows(self, chunk: Sequence[str]) -> DeletedRows:
        part = DeletedRows()
        with wanted(self._connection, "trace_id", chunk), transaction(self._connection):
            self._collect_runs(chunk)
            for table in _BY_TRACE:
                count = number(self._connection, f"DELETE FROM {table} WHERE {_OF_TRACES}")  # noqa: S608
                if table in ("spans", "logs"):
                    setattr(part, table, count)
            self._delete_runs(part)
        return part

    def _collect_runs(self, chunk: Sequence[str]) -> None:
        """Fill ``temp.doomed`` with the trajectories that have spans of some traces."""
        self._connection.execute(
            f"""
            CREATE OR REPLACE TEMP TABLE doomed AS
            SELECT DISTINCT trajectory_id FROM trajectories
            WHERE {_OF_TRACES} OR list_has_any(trace_ids, ?::VARCHAR[])
            """,  # noqa: S608
            [list(chunk)],
        )

    def _delete_runs(self, part: DeletedRows) -> None:
        part.judge_calls = number(self._connection, f"DELETE FROM judge_calls WHERE {_OF_KEYS}")  # noqa: S608
        self._connection.execute(f"DELETE FROM judge_call_targets WHERE {_OF_KEYS}")  # noqa: S608
        for table in _BY_RUN:
            count = number(self._connection, f"DELETE FROM {table} WHERE {_OF_RUNS}")  # noqa: S608
            if table in ("trajectories", "scores"):
                setattr(part, table, count)
            elif table == "human_labels":
                part.labels = count
        # Notifications and episodes only name runs as examples.
        self._connection.execute(_FORGET_IN_NOTIFICATIONS)
        self._connection.execute(_FORGET_IN_EPISODES)
        self._connection.execute(
            f"UPDATE monitor_learning SET trajectory_id = NULL WHERE {_OF_RUNS}"  # noqa: S608
        )
        self._connection.execute("DROP TABLE temp.doomed")


@dataclass(frozen=True)
class AuditEntry:
    """An entry of the audit log.

    Attributes:
        time_ns: The time.
        actor: A user of this machine, the name of a token, or ``retention``.
        action: ``delete``, ``retention``, or an action of the pages, such as ``label``.
        detail: As JSON values, without content: under ``chosen`` the selection or the run and its
            change, and under ``deleted`` the number of deleted rows.
    """

    time_ns: int
    actor: str
    action: str
    detail: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "time_ns": self.time_ns,
            "actor": self.actor,
            "action": self.action,
            "detail": dict(self.detail),
        }


class AuditLog:
    """The log of deletions and of changes by people, to which entries are only appended."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def add(self, entry: AuditEntry) -> None:
        """Append an entry."""
        self._connection.execute(
            "INSERT INTO audit_log VALUES (?, ?, ?, ?)",
            [entry.time_ns, entry.actor, entry.action, dumps(entry.detail)],
        )

    def entries(self) -> list[AuditEntry]:
        """All entries, the oldest first."""
        rows = self._connection.execute(
            "SELECT time_ns, actor, action, detail FROM audit_log ORDER BY time_ns, rowid"
        ).fetchall()
        return [
            AuditEntry(time, actor, action, restore(text)) for time, actor, action, text in rows
        ]
