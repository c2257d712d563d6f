"""Keep the database healthy while the server runs: free disk space, checkpoints and retention.

A database that runs out of disk space while writing must be opened anew, so writers wait for space.
Checkpoints are made in a thread, so that no commit waits for one.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ..base.runner import day_of
from ..scoring import Retention, archive_due, delete_expired
from ..store import DeletedRows, Store

__all__ = [
    "RESERVE",
    "CheckpointWorker",
    "DiskSpaceGate",
    "RetentionWorker",
    "shortage",
]

_log = logging.getLogger(__name__)

# Less than the spool leaves free, so that spooled requests can be stored on the same disk.
RESERVE = 32 << 20
_POLL = 0.1  # seconds


def shortage(path: str | Path) -> str:
    """Why nothing should be written to a database now; "" when there is enough space."""
    try:
        disk = os.statvfs(Path(path).absolute().parent)
    except OSError as error:
        return f"the database's folder: {error.strerror}"
    free = disk.f_bavail * disk.f_frsize
    if free >= RESERVE:
        return ""
    return f"the database's disk is full: {free >> 20} MiB free, {RESERVE >> 20} are needed"


class DiskSpaceGate:
    """Blocks a writer while there is too little disk space.

    Attributes:
        problem: The reason for waiting; "" while there is none.
    """

    def __init__(self, path: str | Path, closing: threading.Event) -> None:
        self._path, self._closing = path, closing
        self.problem = ""

    def wait(self) -> bool:
        """Wait until there is enough space; return False when closing."""
        while problem := shortage(self._path):
            if not self.problem:
                _log.error("nothing is stored: %s", problem)
            self.problem = problem
            if self._closing.wait(_POLL):
                return False
        if self.problem:
            _log.info("there is enough disk space again: storing continues")
        self.problem = ""
        return True


_CHECKPOINT_INTERVAL = 0.25  # seconds
_RETRY_DELAY = 5.0  # seconds


class CheckpointWorker:
    """Writes DuckDB's log into the database file whenever it has become large.

    Args:
        store: The store, opened without automatic checkpoints; the thread uses a sibling of it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store.sibling()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish the checkpoint that is running, and end."""
        self._closing.set()
        self._thread.join()
        self._store.close()

    def _run(self) -> None:
        delay = _CHECKPOINT_INTERVAL
        while not self._closing.wait(delay):
            delay = _CHECKPOINT_INTERVAL
            try:
                # After a checkpoint that runs out of disk space, the database must be opened anew.
                if not shortage(self._store.path):
                    self._store.checkpoint()
            except Exception as error:
                # Nothing is lost: all rows are in the log. The writer reports lasting problems.
                _log.warning("checkpoint failed: %s", str(error).partition("\n")[0])
                delay = _RETRY_DELAY


_INTERVAL = 300.0  # seconds


class RetentionWorker:
    """A thread that moves old spans to Parquet files and deletes expired rows.

    Args:
        store: The store; the thread uses a sibling of it.
        retention: Returns the rules, which may change; None keeps everything.
        base: Base directory for the archive path.
        interval: The seconds between two runs.
        progress: Returns the completion up to which every evaluator has finished its work.
        backfill: Returns for how long (s) completions are kept for new evaluators.
    """

    def __init__(
        self,
        store: Store,
        retention: Callable[[], Retention | None],
        base: Path,
        *,
        interval: float = _INTERVAL,
        progress: Callable[[], int] = lambda: 0,
        backfill: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._store = store.sibling()
        self._retention, self._base, self._interval = retention, base, interval
        self._progress, self._backfill = progress, backfill
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish the file that is being written, and end."""
        self._closing.set()
        self._thread.join()
        self._store.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._apply()
            except Exception:
                # Rows that could not be archived stay in the database until the next run.
                _log.exception("archiving failed")
            self._closing.wait(self._interval)

    def _apply(self) -> None:
        retention = self._retention()
        if retention is None:
            return
        moved = archive_due(
            self._store,
            retention,
            time.time_ns(),
            base=self._base,
            should_stop=self._closing.is_set,
        )
        if moved is None:
            return
        now = time.time_ns()
        expired = delete_expired(self._store, retention, now)
        if expired != DeletedRows():
            _log.info("retention deleted %s", expired)
        oldest = now - round(self._backfill() * 1e9)
        self._store.live.forget(self._progress(), oldest, day_of(now))
        if moved.spans or moved.logs:
            _log.info(
                "archived %d traces, %d spans and %d log records in %d files",
                moved.traces,
                moved.spans,
                moved.logs,
                moved.files,
            )
