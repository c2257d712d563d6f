"""The store: spans, trajectories and scores in one DuckDB database. The only package with SQL.

A `Store` opens a database; each of its attributes is an object with the queries on a few tables:

- `spans`: ``spans``, ``logs``, ``spool_position``. `archive`: ``archived_files``,
  ``archived_traces``, and the Parquet files to which old rows of ``spans`` and ``logs`` move.
- `pending`: ``progress``, the rows that each stage is done with. `related` only reads.
- `trajectories`: ``trajectories``, ``superseded``. `matching`, `outlines` and `variants` only read.
- `scores`, `labels`: ``scores``, ``human_labels``.
- `references`, `datasets`: ``references``, ``datasets``, ``examples``.
- `experiments`: ``experiments``, ``runs``, ``feedback``, ``pair_votes``.
- `judge_calls`: ``judge_calls``, ``judge_call_targets``.
- `live`: ``completions``, ``trace_conversations``, ``live_rules``, ``evaluator_spend``.
- `observations`: ``monitor_open_runs``, ``monitor_conversations``. `monitors`: the other tables of
  monitors, and ``notifications``, which `outbox` delivers from.
- `audit`: ``audit_log``. `deletion` deletes from most tables.

Except by `deletion`, rows are only appended: the newest counts, and views named ``current_...``
show it.

**Transactions** hold writes that are only right together: new revisions with the old ones that they
supersede; rows from the spool with the position after them; archived files with the deletion of
their rows; an experiment's runs with their feedback. `query` shows how a Python call becomes SQL.

**Who may open it.** One process at a time, which may share its connection: `Store.sibling` is for
another thread, `Store.serve` for other processes. `Store(path)` in another process then uses the
serving one, with the same methods.

**Schema.** The statements are in ``migrations/NNNN_name.sql``. Opening a database applies those
that it lacks.

**To add a column**, for instance to ``trajectories``:

1. Add the field to the value in ``oteval/model/`` (also to `Trajectory.as_dict`, which ``--json``
   prints), and set it where the value is made: ``reconstruct/conversation.py`` for trajectories.
2. Write the next migration: ``ALTER TABLE ... ADD COLUMN``, then create the views on the table
   again, since a view keeps the columns that it was made with. See ``0002_call_keys.sql``.
3. Add the column to the schema and to both directions of the conversion: ``trajectory_rows`` for
   trajectories, ``telemetry_rows`` for spans and log records, else the module of the table. Rows
   are inserted by name, in any order. In ``telemetry_rows`` the column must come last, as in the
   table, because repeated spans are compared by position.
4. Decide about old rows, in which the column is NULL. Either read NULL as a default, or let the
   migration fill the column; ``DELETE FROM progress WHERE stage = 'reconstruct'`` reconstructs all
   traces. A reconstructed trajectory gets a new revision only if its fingerprint changes. A new
   column is not part of it, unless you add it to ``_FINGERPRINT_COLUMNS`` in ``trajectory_rows``.
5. Test that the column survives the store: in tests/store, ``test_trajectories.py`` (`full_run` has
   a value in every field), ``test_round_trip.py`` (spans and log records), or the table's test.
6. To show it in ``oteval trajectories``, add it to `trajectories_table` in ``show/tables.py``, run
   ``make screens``, and describe it in docs/looking.md. To select by it, extend ``selection.py``
   and `condition_of` in ``query``. To read it back from ``--json``, extend
   ``ingest/exported_runs.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb

from ..errors import StoreLocked
from .archive import Archive, ArchiveReader, ArchiveReport
from .backup import CopyReport, copy_to, replace_by_copy
from .connection import CHECKPOINT_SIZE, LOADING_MEMORY_LIMIT, MEMORY, MEMORY_LIMIT, connect
from .contents import StoreContents, read_contents
from .deletion import AuditEntry, AuditLog, DeletedRows, Deletion
from .experiments import Experiments
from .judge_calls import JudgeCalls
from .live_state import (
    CompletedTrace,
    EvaluationState,
    EvaluatorProgress,
    LiveState,
    TraceArrival,
    is_store_failure,
)
from .matcher import TrajectoryMatcher
from .memory import ReadLimit, give_memory, is_short_of_memory, small_arrow
from .monitor_rows import (
    GroupRow,
    Notification,
    StoredEpisode,
    StoredMark,
    StoredMonitor,
    learning_rows,
)
from .monitors import MonitorStore
from .observations import ObservationReader, ObservationSource, ReadPosition, needs_python
from .outbox import NotificationOutbox
from .outlines import Outlines
from .progress import PendingTraces
from .query import is_conflict, is_exact, new_cursor, repeated, transaction
from .ranges import EVERYWHERE, MAX_WIDE_RANGES, ROW_GROUP, Range, merge_ranges
from .reference_data import Datasets, StoredReferences
from .related_traces import LooseRun, RelatedTraces
from .remote_client import RemoteConnection, connect_remote
from .remote_server import DatabaseServer, QuestionHandler
from .run_windows import DIMENSIONS, RunWindow, RunWindows
from .scores import SCORE_ROWS, HumanLabels, Scores, score_rows
from .sessions import Sessions, StoredSession
from .spans import SpanBatch, Spans, WriteResult
from .trajectories import Trajectories
from .variants import Period, VariantCounts, Variants

__all__ = [
    "DIMENSIONS",
    "EVERYWHERE",
    "MAX_WIDE_RANGES",
    "MEMORY",
    "ROW_GROUP",
    "SCORE_ROWS",
    "ArchiveReport",
    "AuditEntry",
    "CompletedTrace",
    "CopyReport",
    "DatabaseServer",
    "DeletedRows",
    "EvaluationState",
    "EvaluatorProgress",
    "GroupRow",
    "LooseRun",
    "MonitorStore",
    "Notification",
    "NotificationOutbox",
    "ObservationReader",
    "ObservationSource",
    "Period",
    "Range",
    "ReadLimit",
    "ReadPosition",
    "RunWindow",
    "RunWindows",
    "SpanBatch",
    "Store",
    "StoreContents",
    "StoredEpisode",
    "StoredMark",
    "StoredMonitor",
    "StoredSession",
    "TraceArrival",
    "VariantCounts",
    "WriteResult",
    "is_conflict",
    "is_exact",
    "is_short_of_memory",
    "is_store_failure",
    "learning_rows",
    "merge_ranges",
    "needs_python",
    "repeated",
    "score_rows",
    "small_arrow",
]


class Store:
    """An oteval database.

    Attributes:
        spans: Spans and log records.
        archive: Old spans and log records in Parquet files.
        pending: Traces that are to be reconstructed.
        related: Traces that have to be reconstructed together.
        trajectories: Trajectories.
        sessions: Finds the trajectories of a trace, of a conversation, or below another one.
        matching: Matches trajectories with a reference in SQL.
        outlines: Reads the columns by which evaluators decide runs.
        variants: Counts the sequences of tools that runs called, in SQL.
        scores: Scores.
        labels: Labels that people gave trajectories.
        references: References by name.
        datasets: Datasets by name and version.
        experiments: Experiments with their runs, feedback and votes.
        judge_calls: Calls of judges, with answers and costs.
        live: The state of live scoring.
        observations: Reads the observations of monitors.
        run_windows: Reads the runs around changes that monitors found.
        monitors: The state of monitors.
        outbox: The notifications of monitors that wait for delivery.
        deletion: Deletes traces with everything that was derived from them.
        audit: The log of deletions.
    """

    def __init__(
        self,
        path: str | Path = MEMORY,
        *,
        create: bool = True,
        served: bool = True,
        checkpoints: bool = True,
    ) -> None:
        """Open a database, and migrate it to the newest schema.

        Args:
            path: The database's file, or ":memory:".
            create: Create the file if it is missing.
            served: Use the database through the server that has it open, if there is one.
            checkpoints: Let a commit that makes the write-ahead log large write the log into the
                file. Otherwise call `checkpoint`.

        Raises:
            StoreError: It cannot be opened; the subclass says why.
        """
        remote = connect_remote(str(path)) if served and str(path) != MEMORY else None
        self._use(str(path), remote or connect(path, create=create, checkpoints=checkpoints))

    def _use(self, path: str, connection: Any) -> None:
        self.path = path
        self._connection = connection
        archive = ArchiveReader(connection, path)
        self.spans = Spans(connection, archive)
        self.archive = Archive(connection, archive)
        self.pending = PendingTraces(connection)
        self.related = RelatedTraces(connection)
        self.trajectories = Trajectories(connection)
        self.sessions = Sessions(connection)
        self.matching = TrajectoryMatcher(connection)
        self.outlines = Outlines(connection)
        self.variants = Variants(connection)
        self.scores = Scores(connection)
        self.labels = HumanLabels(connection)
        self.references = StoredReferences(connection)
        self.datasets = Datasets(connection)
        self.experiments = Experiments(connection)
        self.judge_calls = JudgeCalls(connection)
        self.live = LiveState(connection)
        self.observations = ObservationReader(connection)
        self.run_windows = RunWindows(connection)
        self.monitors = MonitorStore(connection)
        self.outbox = NotificationOutbox(connection)
        self.deletion = Deletion(connection, self.archive)
        self.audit = AuditLog(connection)

    def sibling(self) -> Store:
        """Return a store with another connection to the same database, for another thread."""
        other = Store.__new__(Store)
        other._use(self.path, new_cursor(self._connection))
        return other

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all writes of a block together, or none of them."""
        with transaction(self._connection):
            yield

    def interrupt(self) -> None:
        """Make the query fail that another thread is running with this store, if there is one."""
        if not self.is_served:
            self._connection.interrupt()

    def checkpoint(self) -> bool:
        """Write the write-ahead log into the file if it is large. Others may write meanwhile.

        Returns:
            False if the log is still large, because DuckDB 1.5 refuses a checkpoint while a
            transaction is writing.
        """
        log = Path(f"{self.path}.wal")
        try:
            if log.stat().st_size < CHECKPOINT_SIZE:
                return True
            self._connection.execute("CHECKPOINT store")
        except FileNotFoundError:
            return True
        except duckdb.TransactionException:
            return False
        return True

    @property
    def is_served(self) -> bool:
        """Whether this store uses the database through the process that has it open."""
        return isinstance(self._connection, RemoteConnection)

    def serve(self, handler: QuestionHandler, notice: Mapping[str, Any]) -> DatabaseServer:
        """Let other processes on this machine use the database through this one.

        Args:
            handler: Answers the questions of `ask`.
            notice: Further entries of the file beside the database that names the socket.
        """
        return DatabaseServer(self._connection, self.path, handler, notice)

    def ask(self, question: Mapping[str, Any]) -> bytes:
        """Return the answer of the process that has the database open; see `serve`."""
        assert isinstance(self._connection, RemoteConnection)
        return self._connection.ask(question)

    def contents(self) -> StoreContents:
        """Return how much the database contains, and how much space it takes."""
        return read_contents(self._connection, self.path)

    def backup(self, target: str | Path) -> CopyReport:
        """Copy the database as it is now to a new file. Others may write meanwhile.

        Raises:
            StoreError: The file exists or cannot be written, or the copy is not complete.
        """
        return copy_to(self._connection, self.path, Path(target))

    def compact(self) -> CopyReport:
        """Replace the database by a copy without the space of deleted rows, and close it.

        Raises:
            StoreLocked: Another process uses the database.
            StoreError: The copy is not complete; the database is unchanged.
        """
        if self.is_served:
            raise StoreLocked(
                f"{self.path}: a server has it open; stop the server, compact, and start it again"
            )
        self.judge_calls.close()
        return replace_by_copy(self._connection, self.path)

    @contextmanager
    def reduced_memory(self, limit: str = LOADING_MEMORY_LIMIT) -> Iterator[None]:
        """Lower DuckDB's memory limit for a block that reads most rows once.

        Args:
            limit: The limit; by default that of a block that writes much and reads little of it.
        """
        if self.path == MEMORY or self.is_served:
            yield
            return
        self._connection.execute("SET memory_limit = ?", [limit])
        try:
            yield
        finally:
            self._connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")

    def set_memory_limit(self, limit: str) -> None:
        """Set DuckDB's memory limit, for instance to ``256MB``."""
        if self.path != MEMORY and not self.is_served:
            self._connection.execute("SET memory_limit = ?", [limit])

    def raise_memory_limit(self, times: int) -> bool:
        """Multiply DuckDB's memory limit, up to a share of the machine's memory.

        Args:
            times: The factor.

        Returns:
            Whether the limit is higher now.
        """
        if self.path == MEMORY or self.is_served:
            return False
        return give_memory(self._connection, times)

    def close(self) -> None:
        """Close the database."""
        self.judge_calls.close()
        self._connection.close()

    def __enter__(self) -> Store:
        """Return the store itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the database."""
        self.close()
