"""A limit on concurrent questions that threads and event loops share."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager

__all__ = ["Gate"]


class Gate:
    """Lets a number of callers in at once, whichever thread or event loop they run on.

    Args:
        places: How many; None sets no limit.
    """

    def __init__(self, places: int | None) -> None:
        self._free = places
        self._lock = threading.Lock()
        self._waiting: deque[Future[None]] = deque()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Block until there is a place, and hold it."""
        waiter = self._enter()
        try:
            if waiter is not None:
                waiter.result()
        except BaseException:
            self._abandon(waiter)
            raise
        try:
            yield
        finally:
            self._leave()

    @asynccontextmanager
    async def aturn(self) -> AsyncIterator[None]:
        """Wait until there is a place without blocking the event loop, and hold it."""
        waiter = self._enter()
        try:
            if waiter is not None:
                await asyncio.wrap_future(waiter)
        except BaseException:
            self._abandon(waiter)
            raise
        try:
            yield
        finally:
            self._leave()

    def _enter(self) -> Future[None] | None:
        """Take a place and return None, or return what to wait for."""
        if self._free is None:
            return None
        with self._lock:
            if self._free:
                self._free -= 1
                return None
            waiter: Future[None] = Future()
            self._waiting.append(waiter)
            return waiter

    def _leave(self) -> None:
        """Pass the place on to who has waited longest."""
        if self._free is None:
            return
        with self._lock:
            while self._waiting:
                waiter = self._waiting.popleft()
                if waiter.set_running_or_notify_cancel():
                    waiter.set_result(None)
                    return
            self._free += 1

    def _abandon(self, waiter: Future[None] | None) -> None:
        # A place that was passed on just as its waiter gave up goes to the next.
        if waiter is not None and not waiter.cancel():
            self._leave()
