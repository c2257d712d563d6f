"""Checkpoints while the server runs, by a thread of their own: no commit waits for one."""

from __future__ import annotations

import logging
import threading

from ..store import Store
from .room import shortage

__all__ = ["Checkpoints"]

_log = logging.getLogger(__name__)
_EVERY = 0.25
# Seconds until the next try of one that failed.
_REST = 5.0


class Checkpoints:
    """Writes DuckDB's log into the database whenever it has become large.

    Args:
        store: The store, opened without checkpoints of its own; a sibling of it is used.
    """

    def __init__(self, store: Store) -> None:
        self._store = store.sibling()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish the one under way, and end."""
        self._stopping.set()
        self._thread.join()
        self._store.close()

    def _run(self) -> None:
        wait = _EVERY
        while not self._stopping.wait(wait):
            wait = _EVERY
            try:
                # One that lacks room would leave a database that must be opened anew.
                if not shortage(self._store.path):
                    self._store.checkpoint()
            except Exception as error:
                # Nothing is lost: it is all in the log, and the writer says what does not work.
                _log.warning("no checkpoint: %s", str(error).partition("\n")[0])
                wait = _REST
