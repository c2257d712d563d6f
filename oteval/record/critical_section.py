"""Sections of code that a signal's handler must not interrupt, and handlers that wait for them.

A handler runs in the main thread, between any two steps of it. If the main thread holds a lock just
then, a handler that waits for that lock waits in vain. `SECTION` marks the short sections in which
the main thread holds locks; a handler defers itself to the end of the section.

A forked child is in such a section until it has renewed its locks: other threads, which are not in
the child, may have held them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

__all__ = ["SECTION", "CriticalSection"]


class CriticalSection:
    """Counts the sections that the main thread is in. Other threads are not interrupted."""

    def __init__(self) -> None:
        self._depth = 0
        self._main = threading.main_thread().ident
        self._pid = os.getpid()
        self._deferred: tuple[int, Callable[[], None]] | None = None

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            self._depth += 1

    def __exit__(self, *error: object) -> None:
        if threading.get_ident() == self._main:
            self._depth -= 1
            if not self._depth:
                self._run_deferred()

    def run(self, action: Callable[[], None]) -> None:
        """Call a function of a signal's handler, at the end of the section if one is entered."""
        pid = os.getpid()
        if self._depth or pid != self._pid:
            self._deferred = pid, action
        else:
            action()

    def leave_in_child(self) -> None:
        """Leave all sections in a forked child, whose only thread is the one that forked."""
        self._depth = 0
        self._main = threading.get_ident()
        self._pid = os.getpid()
        self._run_deferred()

    def _run_deferred(self) -> None:
        deferred, self._deferred = self._deferred, None
        # A signal of the parent is not one of its child.
        if deferred is not None and deferred[0] == self._pid:
            deferred[1]()


SECTION = CriticalSection()
