"""Sections of code that a signal's handler must not interrupt, and handlers that wait for them.

A handler runs in the main thread, between any two steps of it. If the main thread holds a lock just
then, a handler that waits for that lock waits in vain. `SECTION` marks the short sections in which
the main thread holds locks; a handler defers itself to the end of the section.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["SECTION", "CriticalSection"]


class CriticalSection:
    """Counts the sections that the main thread is in. Other threads are not interrupted."""

    def __init__(self) -> None:
        self._depth = 0
        self._deferred: Callable[[], None] | None = None
        self._main = threading.main_thread().ident

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            self._depth += 1

    def __exit__(self, *error: object) -> None:
        if threading.get_ident() == self._main:
            self._depth -= 1
            if not self._depth and self._deferred is not None:
                action, self._deferred = self._deferred, None
                action()

    def run(self, action: Callable[[], None]) -> None:
        """Call a function of a signal's handler, at the end of the section if one is entered."""
        if self._depth:
            self._deferred = action
        else:
            action()

    def after_fork(self) -> None:
        """Leave all sections: the child's only thread is the one that forked."""
        self._depth = 0
        self._deferred = None
        self._main = threading.get_ident()


SECTION = CriticalSection()
