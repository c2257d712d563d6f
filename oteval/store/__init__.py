"""Spans, trajectories and scores in DuckDB: the only stage with SQL.

Rows are only ever added. A `Store` is what others use; its parts each hold one kind of thing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb

from ..errors import StoreLocked
from .archive import Archive, Archived
from .audit import AuditEntry, AuditLog
from .chains import LooseRun
from .cold import Cold
from .connection import BUFFERS, FEW_BUFFERS, LOG, MEMORY, connect, is_short_of_memory
from .copying import Copied, copy_to, replace_by_copy
from .datasets import Datasets
from .deletion import Deleted, Deletion
from .experiments import Experiments
from .judge_calls import JudgeCalls
from .labels import Labels
from .live import Arrival, Completed, Live, RuleState, Todo, is_of_the_store
from .matching import Matching
from .pending import Pending
from .ranges import EVERYWHERE, ROWS, WIDE, Range, joined
from .references import References
from .remote import RemoteConnection, remote
from .scores import Scores
from .serving import Answer, Serving
from .spans import SpanBatch, Spans, Written
from .spooled import Spooled
from .trajectories import Trajectories
from .wide import Allowance, give_memory

__all__ = [
    "EVERYWHERE",
    "MEMORY",
    "ROWS",
    "WIDE",
    "Allowance",
    "Archived",
    "Arrival",
    "AuditEntry",
    "Completed",
    "Copied",
    "Deleted",
    "LooseRun",
    "Range",
    "RuleState",
    "Serving",
    "SpanBatch",
    "Store",
    "Todo",
    "Written",
    "is_of_the_store",
    "is_short_of_memory",
    "joined",
]


class Store:
    """An oteval database.

    Attributes:
        spans: Spans and log records.
        pending: What is still to be reconstructed.
        trajectories: Trajectories.
        matching: Matching them in SQL.
        scores: Scores.
        references: References by name.
        datasets: Datasets by name and version.
        experiments: Experiments, their runs, feedback and votes.
        judge_calls: Questions to judges, their answers and costs.
        labels: What people said of runs.
        live: What live scoring must not forget.
        spooled: What came by way of the spool.
        archive: Moving what is old into files.
        deletion: Deleting traces with everything that was made of them.
        audit: Who deleted what, and when.
    """

    def __init__(
        self,
        path: str | Path = MEMORY,
        *,
        create: bool = True,
        served: bool = True,
        checkpoints: bool = True,
    ) -> None:
        """Open a database, and bring it to the newest schema.

        Args:
            path: Its file, or ":memory:".
            create: Whether to make the file when it is not there.
            served: Whether to use it by way of the server that has it open, if one has.
            checkpoints: Whether a commit that makes DuckDB's log large waits until all of it is
                in the file; without, `checkpoint` is to be called.

        Raises:
            StoreError: It cannot be used; the subclass says why.
        """
        other = remote(str(path)) if served and str(path) != MEMORY else None
        self._use(str(path), other or connect(path, create=create, checkpoints=checkpoints))

    def _use(self, path: str, connection: Any) -> None:
        self.path = path
        self._connection = connection
        cold = Cold(self._connection, path)
        self.spans = Spans(self._connection, cold)
        self.archive = Archive(self._connection, cold)
        self.deletion = Deletion(self._connection, self.archive)
        self.audit = AuditLog(self._connection)
        self.pending = Pending(self._connection)
        self.trajectories = Trajectories(self._connection)
        self.matching = Matching(self._connection)
        self.scores = Scores(self._connection)
        self.references = References(self._connection)
        self.datasets = Datasets(self._connection)
        self.experiments = Experiments(self._connection)
        self.judge_calls = JudgeCalls(self._connection)
        self.labels = Labels(self._connection)
        self.live = Live(self._connection)
        self.spooled = Spooled(self._connection, self.spans)

    def sibling(self) -> Store:
        """Return the same database by another connection, for another thread to work with."""
        connection = self._connection.cursor()
        connection.execute("USE store")
        other = Store.__new__(Store)
        other._use(self.path, connection)
        return other

    def checkpoint(self) -> bool:
        """Write DuckDB's log into the file if it is large; others may write meanwhile.

        Returns:
            Whether it is not large now. DuckDB 1.5 refuses while others write.
        """
        log = Path(f"{self.path}.wal")
        try:
            if log.stat().st_size < LOG:
                return True
            self._connection.execute("CHECKPOINT store")
        except FileNotFoundError:
            return True
        except duckdb.TransactionException:
            return False
        return True

    @property
    def is_served(self) -> bool:
        """Whether another process has the database open, and this one uses it by way of that."""
        return isinstance(self._connection, RemoteConnection)

    def serve(self, answer: Answer, notice: Mapping[str, Any]) -> Serving:
        """Let other processes on this machine use the database by way of this one.

        Args:
            answer: Answers what is no query.
            notice: What the file beside the database says of this process.
        """
        return Serving(self._connection, self.path, answer, notice)

    def ask(self, question: Mapping[str, Any]) -> bytes:
        """Ask the server that has the database open; see `serve`."""
        assert isinstance(self._connection, RemoteConnection)
        return self._connection.ask(question)

    def backup(self, target: str | Path) -> Copied:
        """Copy the database as it is now to a file that is not there yet; others may write on.

        Raises:
            StoreError: It cannot be written, or the copy is not complete.
        """
        return copy_to(self._connection, self.path, Path(target))

    def compact(self) -> Copied:
        """Put a copy without holes in the database's place, and close it.

        Raises:
            StoreLocked: Another process uses the database.
            StoreError: The copy is not complete; the database is as it was.
        """
        if self.is_served:
            raise StoreLocked(
                f"{self.path}: a server has it open; stop that, compact, and start it again"
            )
        self.judge_calls.close()
        return replace_by_copy(self._connection, self.path)

    @contextmanager
    def few_buffers(self) -> Iterator[None]:
        """Keep DuckDB's memory small while much is written that is not read again soon."""
        if self.path == MEMORY or self.is_served:
            yield
            return
        self._connection.execute(f"SET memory_limit = '{FEW_BUFFERS}'")
        try:
            yield
        finally:
            self._connection.execute(f"SET memory_limit = '{BUFFERS}'")

    def use_memory(self, limit: str) -> None:
        """Change how much memory DuckDB may take, for instance ``256MB``."""
        if self.path != MEMORY and not self.is_served:
            self._connection.execute("SET memory_limit = ?", [limit])

    def give_memory(self, times: int) -> None:
        """Let DuckDB take some times the memory, up to a share of the machine's."""
        if self.path != MEMORY and not self.is_served:
            give_memory(self._connection, times)

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
