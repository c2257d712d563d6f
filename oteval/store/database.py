"""An oteval database, with an object for the queries on each of its groups of tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb

from ..base.errors import StoreError, StoreLocked
from ..base.files import waiting_lock
from .agent_figures import AgentFigures
from .archive import Archive, ArchiveReader
from .backup import CopyReport, copied, copy_to, replace_by_copy
from .connection import CHECKPOINT_SIZE, LOADING_MEMORY_LIMIT, MEMORY, MEMORY_LIMIT, connect
from .current_scores import current_scores
from .deletion import AuditLog, Deletion
from .evaluator_figures import EvaluatorFigures
from .experiments import ExperimentFigures, Experiments
from .judge_calls import JudgeCalls
from .label_queue import LabelQueue
from .live_state import LiveState
from .memory import give_memory
from .monitors import Monitors
from .observations import ObservationReader
from .outbox import NotificationOutbox
from .outlines import Outlines
from .problems import opening_problem, store_problem
from .progress import PendingTraces
from .query import first_row, new_cursor, number, transaction
from .reference_data import Datasets, StoredReferences
from .related_traces import RelatedTraces
from .remote_client import RemoteConnection, ServerNotice, connect_remote, notice_path
from .remote_server import DatabaseServer, QuestionHandler
from .run_list import RunList
from .run_statistics import RunStatistics
from .run_windows import RunWindows
from .scores import HumanLabels, Scores
from .sessions import Sessions
from .span_outlines import SpanOutlines
from .spans import Spans
from .trajectories import Trajectories
from .variants import Variants

__all__ = [
    "Store",
    "StoreContents",
    "file_size",
    "read_contents",
]

_CONTENTS = f"""
SELECT
    (SELECT count(*) FROM spans),
    (SELECT count(*) FROM logs),
    (SELECT coalesce(sum("rows") FILTER (kind = 'spans'), 0) FROM archived_files
     WHERE state = 'kept'),
    (SELECT coalesce(sum("rows") FILTER (kind = 'logs'), 0) FROM archived_files
     WHERE state = 'kept'),
    (SELECT coalesce(sum(bytes), 0) FROM archived_files WHERE state = 'kept'),
    runs, agents, services, first_ns, last_ns,
    (SELECT count(*) FROM {current_scores()})
FROM (
    SELECT count(*) AS runs, count(DISTINCT nullif(agent, '')) AS agents,
           count(DISTINCT nullif(service, '')) AS services,
           min(start_ns) FILTER (start_ns > 0) AS first_ns,
           max(end_ns) FILTER (end_ns > 0) AS last_ns
    FROM current_trajectories
)
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class StoreContents:
    """The contents of a database.

    Attributes:
        spans: The spans in its file.
        logs: The log records in its file.
        archived_spans: The spans in the archive.
        archived_logs: The log records in the archive.
        archive_bytes: The size of the archive (bytes).
        trajectories: The current trajectories.
        agents: The different names of agents.
        services: The different names of services.
        first_ns: The start of the first run with a time (ns), or None.
        last_ns: The end of the last run with a time (ns), or None.
        scores: The current scores.
        bytes: The size of the file and of its write-ahead log (bytes).
    """

    spans: int
    logs: int
    archived_spans: int
    archived_logs: int
    archive_bytes: int
    trajectories: int
    agents: int
    services: int
    first_ns: int | None
    last_ns: int | None
    scores: int
    bytes: int

    @property
    def bytes_per_span(self) -> float | None:
        """The size of the file for each span in it (bytes); None without spans."""
        return self.bytes / self.spans if self.spans else None


def read_contents(connection: duckdb.DuckDBPyConnection, path: str) -> StoreContents:
    """Count the rows of a database, and measure its file.

    Args:
        connection: A connection to the database.
        path: The database's path.
    """
    (row,) = connection.execute(_CONTENTS).fetchall()
    return StoreContents(*(*row, file_size(path)))


def file_size(path: str) -> int:
    """The size of a database's file and of its write-ahead log (bytes)."""
    if path == MEMORY:
        return 0
    files = [Path(path), Path(f"{path}.wal")]
    return sum(file.stat().st_size for file in files if file.exists())


# Seconds to wait for another process that loads traces through the same server.
_LOADING_PATIENCE = 120.0


class Store:
    """An oteval database.

    Attributes:
        spans: Spans and log records.
        span_outlines: The trees of large traces.
        archive: Old spans and log records in Parquet files.
        pending: Traces that are to be reconstructed.
        related: Traces that have to be reconstructed together.
        trajectories: Trajectories.
        sessions: Finds the trajectories of a trace, of a conversation, or below another one.
        outlines: Reads the columns that evaluators need to decide runs.
        variants: Counts the sequences of tools that runs called, in SQL.
        run_list: Lists runs page by page, newest first.
        agent_figures: Counts the runs and verdicts of each agent.
        evaluator_figures: Counts the verdicts of each evaluator.
        experiment_figures: Counts the runs and the feedback of experiments.
        statistics: Counts runs and their scores, in SQL.
        scores: Scores.
        labels: Labels that people gave trajectories.
        label_queue: Finds the most informative runs to label.
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
        audit: The log of deletions and of changes by people.
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
            checkpoints: Write the write-ahead log into the file at commits that make it large.
                Otherwise call `checkpoint`.

        Raises:
            StoreError: It cannot be opened; the subclass says why.
        """
        remote = connect_remote(str(path)) if served and str(path) != MEMORY else None
        connection = remote or connect(path, create=create, checkpoints=checkpoints)
        try:
            self._use(str(path), connection)
        except duckdb.Error as error:
            connection.close()
            raise opening_problem(error, str(path)) from error

    @classmethod
    def of_server(cls, path: str | Path) -> Store:
        """A store that uses a database through the server that has it open.

        Without a server, the file is not opened, so that a starting server can open it.

        Raises:
            StoreError: No server has it open.
        """
        remote = connect_remote(str(path))
        if remote is None:
            raise StoreError(f"{path}: the server that has the database is away; try again")
        store = cls.__new__(cls)
        store._use(str(path), remote)
        return store

    def _use(self, path: str, connection: Any) -> None:
        self.path = path
        self._is_read_only: bool | None = None
        self._connection = connection
        archive = ArchiveReader(connection, path)
        self.spans = Spans(connection, archive)
        self.span_outlines = SpanOutlines(connection)
        self.archive = Archive(connection, archive)
        self.pending = PendingTraces(connection)
        self.related = RelatedTraces(connection)
        self.trajectories = Trajectories(connection)
        self.sessions = Sessions(connection)
        self.outlines = Outlines(connection)
        self.variants = Variants(connection)
        self.run_list = RunList(connection, self.trajectories)
        self.agent_figures = AgentFigures(connection)
        self.evaluator_figures = EvaluatorFigures(connection)
        self.experiment_figures = ExperimentFigures(connection)
        self.statistics = RunStatistics(connection, self.trajectories)
        self.scores = Scores(connection)
        self.labels = HumanLabels(connection)
        self.label_queue = LabelQueue(connection)
        self.references = StoredReferences(connection)
        self.datasets = Datasets(connection)
        self.experiments = Experiments(connection)
        self.judge_calls = JudgeCalls(connection)
        self.live = LiveState(connection)
        self.observations = ObservationReader(connection, self.trajectories)
        self.run_windows = RunWindows(connection, self.trajectories)
        self.monitors = Monitors(connection)
        self.outbox = NotificationOutbox(connection)
        self.deletion = Deletion(connection, self.archive)
        self.audit = AuditLog(connection)

    def sibling(self) -> Store:
        """A store with another connection to the same database, for another thread."""
        sibling = Store.__new__(Store)
        sibling._use(self.path, new_cursor(self._connection))
        return sibling

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all writes of a block, or none."""
        with transaction(self._connection):
            yield

    def interrupt(self) -> None:
        """Interrupt the query that another thread is running with this store, if any."""
        if not self.is_served:
            self._connection.interrupt()

    def checkpoint(self) -> bool:
        """Write the write-ahead log into the file if it is large; others may write concurrently.

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
    def is_read_only(self) -> bool:
        """Whether nothing can be written through this store."""
        if self._is_read_only is None:
            query = "SELECT 1 FROM duckdb_databases() WHERE database_name = 'store' AND readonly"
            self._is_read_only = first_row(self._connection, query) is not None
        return self._is_read_only

    @property
    def is_served(self) -> bool:
        """Whether this store uses the database through the process that has it open."""
        return isinstance(self._connection, RemoteConnection)

    @property
    def server(self) -> ServerNotice | None:
        """The process through which this store uses the database, None if it has the file open."""
        connection = self._connection
        return connection.notice if isinstance(connection, RemoteConnection) else None

    @property
    def is_filled(self) -> bool:
        """Whether another process receives the traces, stores them and reconstructs trajectories.

        If so, this process must not.
        """
        return self.server is not None and self.server.takes_traces

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Store traces and reconstruct trajectories in a block, while no other process does.

        Raises:
            StoreLocked: A server does so, or another process has done so for minutes.
            StoreError: The process that has the database open has ended.
        """
        server = self.server
        if self.is_read_only:
            raise StoreError(
                f"{self.path}: it can only be read: its file or its folder cannot be written"
            )
        if server is None:
            yield
            return
        if server.takes_traces:
            raise StoreLocked(
                f"{self.path}: {server.program} has it open; send traces to the server, or give "
                "another --db"
            )
        with ExitStack() as stack:
            try:
                lock = waiting_lock(notice_path(self.path), _LOADING_PATIENCE, creates=False)
                stack.enter_context(lock)
            except BlockingIOError:
                raise StoreLocked(
                    f"{self.path}: another process is loading traces into it; try again later"
                ) from None
            except OSError as error:
                raise StoreError(f"{self.path}: {server.program} has ended; try again") from error
            # Another process may have stored rows since this store was opened.
            self.spans.renumber()
            yield

    def serve(self, handler: QuestionHandler, notice: Mapping[str, Any]) -> DatabaseServer:
        """Serve the database to other processes on this machine.

        Args:
            handler: Answers the questions of `ask`.
            notice: Further entries of the file beside the database that names the socket.
        """
        return DatabaseServer(self._connection, self.path, handler, notice)

    def ask(self, question: Mapping[str, Any]) -> bytes:
        """The answer of the process that has the database open; see `serve`."""
        assert isinstance(self._connection, RemoteConnection)
        return self._connection.ask(question)

    def contents(self) -> StoreContents:
        """How much the database contains, and how much space it takes."""
        return read_contents(self._connection, self.path)

    def backup(self, target: str | Path) -> CopyReport:
        """Copy the current state of the database to a new file; others may write concurrently.

        Raises:
            StoreError: The file exists or cannot be written, or the copy is not complete.
        """
        return copy_to(self._connection, self.path, Path(target))

    @contextmanager
    def copied(self) -> Iterator[Path]:
        """Copy the current state of the database to a file that is removed after the block.

        Raises:
            StoreError: It cannot be copied.
        """
        with copied(self._connection, self.path) as (copy, _):
            yield copy

    def compact(self) -> CopyReport:
        """Replace the database by a copy without the space of deleted rows, and close it.

        Raises:
            StoreLocked: Another process uses the database.
            StoreError: The copy is not complete; the database is unchanged.
        """
        if self.is_served:
            program = self.server.program if self.server else "a server"
            raise StoreLocked(
                f"{self.path}: {program} has it open; stop it, compact, and start it again"
            )
        self.judge_calls.close()
        return replace_by_copy(self._connection, self.path)

    @contextmanager
    def reduced_memory(self, limit: str = LOADING_MEMORY_LIMIT) -> Iterator[None]:
        """Lower DuckDB's memory limit for a block that reads most rows once.

        Args:
            limit: The limit; the default suits a block that writes much and reads little.
        """
        if self.path == MEMORY or self.is_served:
            yield
            return
        self._connection.execute("SET memory_limit = ?", [limit])
        try:
            yield
        finally:
            self._connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """Limit DuckDB to one thread in a block that reads wide rows.

        Each thread packs or unpacks 2,048 rows at once.
        """
        if self.is_served:
            yield
            return
        before = number(self._connection, "SELECT current_setting('threads')")
        self._connection.execute("SET threads = 1")
        try:
            yield
        finally:
            self._connection.execute(f"SET threads = {before}")

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

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the database.

        Raises:
            StoreError: The block ended with a DuckDB error that the database caused.
        """
        problem = store_problem(error, self.path) if error is not None else None
        with suppress(duckdb.Error) if error else nullcontext():
            self.close()
        if problem is not None:
            raise problem from error
