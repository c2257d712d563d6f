"""Checkpoint the database in a thread, so that no commit waits for it."""

from __future__ import annotations

import logging
import threading

from ..store import Store
from .disk_space import shortage

__all__ = ["CheckpointWorker"]

_log = logging.getLogger(__name__)
_INTERVAL = 0.25  # seconds
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
        delay = _INTERVAL
        while not self._closing.wait(delay):
            delay = _INTERVAL
            try:
                # After a checkpoint that runs out of disk space, the database must be opened anew.
                if not shortage(self._store.path):
                    self._store.checkpoint()
            except Exception as error:
                # Nothing is lost: all rows are in the log. The writer reports lasting problems.
                _log.warning("checkpoint failed: %s", str(error).partition("\n")[0])
                delay = _RETRY_DELAY
