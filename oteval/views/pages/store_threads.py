"""Threads that read the store for pages, each with its own connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ...base.errors import StoreError
from ...store import Store

__all__ = ["StoreThreads"]

T = TypeVar("T")
_THREADS = 3


class StoreThreads:
    """Reads a store in a few threads.

    Args:
        open_store: Opens a connection, which is closed here.
        threads: The number of threads.
    """

    def __init__(self, open_store: Callable[[], Store], threads: int = _THREADS) -> None:
        self._open = open_store
        self._executor = ThreadPoolExecutor(threads, "pages")
        self._lock = threading.Lock()
        self._idle: list[Store] = []
        self._is_closed = False

    async def run(self, action: Callable[[Store], T], *, is_repeated: bool = True) -> T:
        """The result of a function of a store, called in a thread.

        Args:
            action: The function.
            is_repeated: Whether to call it again with a new connection if the old one was lost.

        Raises:
            StoreError: The server that has the database open is away.
        """
        call = self._run if is_repeated else self._with_store
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, lambda: call(action)
        )

    def close(self) -> None:
        """Wait for the threads, and close their connections."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            self._is_closed = True
            stores, self._idle = self._idle, []
        for store in stores:
            store.close()

    def _run(self, action: Callable[[Store], T]) -> T:
        try:
            return self._with_store(action)
        except StoreError as error:
            if type(error) is not StoreError:
                raise
            # The process that has the database open may have been started again.
            with self._lock:
                lost, self._idle = self._idle, []
            for store in lost:
                store.close()
            return self._with_store(action)

    def _with_store(self, action: Callable[[Store], T]) -> T:
        with self._lock:
            store = self._idle.pop() if self._idle else None
        store = store or self._open()
        try:
            result = action(store)
        except StoreError:
            store.close()
            raise
        except BaseException:
            self._put_back(store)
            raise
        self._put_back(store)
        return result

    def _put_back(self, store: Store) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(store)
                return
        store.close()
