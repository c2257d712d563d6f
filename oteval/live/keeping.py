"""Retention while the server runs: a thread that archives what has become old."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ..config import Retention
from ..pipeline import delete_expired, retention_tick
from ..store import Deleted, Store
from .budgets import day_of

__all__ = ["Keeper"]

_log = logging.getLogger(__name__)
_EVERY = 300.0


class Keeper:
    """Looks every few minutes whether something is to be archived, and archives it.

    Args:
        store: The store; a sibling of it is used.
        retention: Asked each time, since the configuration may change; None keeps everything.
        base: The folder that the archive's is relative to.
        every: How many seconds lie between two looks.
        settled: Returns up to which completion no evaluator has anything to do; asked each time.
        backfill: Returns for how long (s) completions stay for evaluators that are new.
    """

    def __init__(
        self,
        store: Store,
        retention: Callable[[], Retention | None],
        base: Path,
        every: float = _EVERY,
        settled: Callable[[], int] = lambda: 0,
        backfill: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._store = store.sibling()
        self._retention, self._base, self._every = retention, base, every
        self._settled, self._backfill = settled, backfill
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish the part under way, and end."""
        self._stopping.set()
        self._thread.join()
        self._store.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._look()
            except Exception:
                # What could not be archived stays in the database; it is tried again.
                _log.exception("archiving failed")
            self._stopping.wait(self._every)

    def _look(self) -> None:
        retention = self._retention()
        if retention is None:
            return
        moved = retention_tick(
            self._store,
            retention,
            time.time_ns(),
            base=self._base,
            should_stop=self._stopping.is_set,
        )
        if moved is not None:
            now = time.time_ns()
            expired = delete_expired(self._store, retention, now)
            if expired != Deleted():
                _log.info("retention deleted %s", expired)
            before = now - round(self._backfill() * 1e9)
            self._store.live.forget(self._settled(), before, day_of(now))
        if moved is not None and (moved.spans or moved.logs):
            _log.info(
                "archived %d traces, %d spans and %d log records in %d files",
                *(moved.traces, moved.spans, moved.logs, moved.files),
            )
