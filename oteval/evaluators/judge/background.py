"""An event loop on a thread of its own, on which blocking callers have coroutines run.

A coroutine can be cancelled wherever it waits; a thread that waits for a socket cannot.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run", "start"]

Kind = TypeVar("Kind")

_lock = threading.Lock()
_running: tuple[threading.Thread, asyncio.AbstractEventLoop] | None = None


def run(coroutine: Coroutine[Any, Any, Kind]) -> Kind:
    """Run a coroutine on the loop, in the caller's context, and return its result.

    Raises:
        BaseException: Whatever it raises. An interrupt of the caller cancels it.
    """
    future = asyncio.run_coroutine_threadsafe(coroutine, _loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def start(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine on the loop without waiting for it."""
    asyncio.run_coroutine_threadsafe(coroutine, _loop())


def _loop() -> asyncio.AbstractEventLoop:
    global _running
    with _lock:
        # After a fork the loop is there, but not its thread.
        if _running is None or not _running[0].is_alive():
            loop = asyncio.new_event_loop()
            # A daemon: a server that never answers must not keep the process from ending.
            thread = threading.Thread(target=loop.run_forever, name="oteval judges", daemon=True)
            thread.start()
            _running = thread, loop
        return _running[1]
