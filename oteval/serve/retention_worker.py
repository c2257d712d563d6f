"""Apply the retention rules while the server runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ..base.runner import day_of
from ..scoring import Retention, archive_due, delete_expired
from ..store import DeletedRows, Store

__all__ = ["RetentionWorker"]

_log = logging.getLogger(__name__)
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
