"""Jobs for callers on an event loop."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Generic

from .calls import (
    Key,
    Outcome,
    Returned,
    Value,
    as_exception,
    is_async_function,
    start_thread,
    timeout_error,
)

__all__ = ["AsyncRunner", "run_all"]


class AsyncRunner(Generic[Key, Value]):
    """Runs jobs from an event loop, without blocking it.

    A coroutine function runs on the caller's loop. Any other function runs on its own daemon
    thread; if it returns an awaitable, that is awaited on the loop. A coroutine that takes longer
    than the timeout is cancelled; a thread is abandoned. Late results are dropped.

    `run` runs one job. To bound how many run at once, use `run_all`.

    Args:
        timeout: Seconds that a call may take; None for no limit.
    """

    def __init__(self, *, timeout: float | None = None) -> None:
        self._timeout = timeout

    async def run(self, job: Callable[[], Any], key: Key) -> Outcome[Key, Value]:
        """Run a job and return its outcome.

        Args:
            job: A function without arguments, synchronous or not.
            key: Identifies the job in its outcome.
        """
        began = time.monotonic()
        returned = await self._call(job)
        return returned.outcome(key, time.monotonic() - began)

    async def _call(self, job: Callable[[], Any]) -> Returned:
        if is_async_function(job):
            try:
                work = job()
            except Exception as error:
                return Returned(error=error)
            return await _finished(work, self._timeout)
        returned = await _finished(_in_thread(job), self._timeout)
        if returned.error is None and inspect.isawaitable(returned.value):
            return await _finished(returned.value, self._timeout)
        return returned


async def run_all(jobs: Iterable[Callable[[], Awaitable[None]]], concurrency: int) -> None:
    """Run asynchronous jobs with limited concurrency.

    Args:
        jobs: The jobs. The next job is taken when another has ended, so an iterator of many jobs is
            never stored in memory as a whole.
        concurrency: How many run at once.

    Raises:
        Exception: The error of the first job that fails. All other jobs are cancelled.
    """
    waiting = iter(jobs)

    async def work() -> None:
        for job in waiting:
            await job()

    workers = [asyncio.create_task(work()) for _ in range(max(1, concurrency))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def _finished(work: Awaitable[Any], timeout: float | None) -> Returned:
    """Wait for something at most this long, and return its result or error."""
    task = asyncio.ensure_future(work)
    try:
        # Unlike wait_for, this does not wait for a task that refuses to be cancelled.
        await asyncio.wait({task}, timeout=timeout)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if timeout is not None and not task.done():
        task.cancel()
        task.add_done_callback(_retrieve_error)
        return Returned(error=timeout_error(timeout), is_timeout=True)
    if task.cancelled():
        return Returned(error=RuntimeError("the job was cancelled from within"))
    error = task.exception()
    return Returned(task.result()) if error is None else Returned(error=error)


def _retrieve_error(task: asyncio.Future[Any]) -> None:
    """Retrieve a late error; asyncio logs errors that nobody retrieves."""
    if not task.cancelled():
        task.exception()


def _in_thread(function: Callable[[], Any]) -> asyncio.Future[Any]:
    """Call a function on a daemon thread, and return the future of its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def set_outcome(value: Any, error: BaseException | None) -> None:
        if future.done():  # the caller no longer waits
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(as_exception(error))

    def end(value: Any, error: BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(set_outcome, value, error)

    start_thread(function, end, name="oteval call")
    return future
