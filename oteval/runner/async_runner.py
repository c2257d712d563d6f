"""Jobs for callers on an event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from typing import Any, Generic

from .calls import as_exception, is_async_function, start_thread, timeout_error
from .jobs import Job, Key, Outcome, PauseStep, ReserveStep, Returned, RunLimits, Value
from .limits import DailyBudget, RateLimiter, RetryPolicy

__all__ = ["AsyncRunner", "run_all"]


class AsyncRunner(Generic[Key, Value]):
    """Runs jobs from an event loop, within limits, without blocking it.

    A coroutine function runs on the caller's loop. Any other function runs on its own daemon
    thread; if it returns an awaitable, that is awaited on the loop. A coroutine that takes longer
    than the timeout is cancelled, and a thread abandoned. Late results are dropped.

    `run` runs one job. To bound how many run at once, use `run_all`.

    Args:
        timeout: Seconds that a call may take; None for no limit.
        rate: How many calls may start per minute.
        budget: How much the calls may cost per day.
        retry: How often a call that raised is repeated.
        cost_of: Returns the cost (US dollars) of a job from its value, for the budget; None if
            the value does not tell, because the call failed or was cached.
    """

    def __init__(
        self,
        *,
        timeout: float | None = None,
        rate: RateLimiter | None = None,
        budget: DailyBudget | None = None,
        retry: RetryPolicy | None = None,
        cost_of: Callable[[Value], float | None] | None = None,
    ) -> None:
        self._limits = RunLimits(timeout, rate, budget, retry, cost_of)

    async def run(
        self,
        job: Callable[[], Any],
        key: Key,
        *,
        expected_cost: float | Callable[[], float] = 0.0,
    ) -> Outcome[Key, Value]:
        """Run a job and return its outcome.

        Args:
            job: A function without arguments, synchronous or not.
            key: Identifies the job in its outcome.
            expected_cost: The least that the job will cost (US dollars), or a function that
                returns it.
        """
        result: Any = None
        # Closing settles the budget at once if the caller is cancelled.
        with closing(self._limits.steps(Job[Key, Value](key, job, expected_cost))) as steps:
            while True:
                try:
                    step = steps.send(result)
                except StopIteration as end:
                    outcome: Outcome[Key, Value] = end.value
                    return outcome
                if isinstance(step, PauseStep):
                    await asyncio.sleep(step.seconds)
                elif isinstance(step, ReserveStep):
                    result = await _reserve(step.budget, step.expected_cost)
                else:
                    result = await self._call(job)

    async def _call(self, job: Callable[[], Any]) -> Returned:
        timeout = self._limits.timeout
        if is_async_function(job):
            try:
                work = job()
            except Exception as error:
                return Returned(error=error)
            return await _finished(work, timeout)
        returned = await _finished(_in_thread(job), timeout)
        if returned.error is None and inspect.isawaitable(returned.value):
            return await _finished(returned.value, timeout)
        return returned


async def _reserve(budget: DailyBudget, expected_cost: float) -> str:
    """Return `DailyBudget.reserve`'s result. It may block, so that it runs on a thread."""
    reserving = _in_thread(partial(budget.reserve, expected_cost))

    def give_back(done: asyncio.Future[str]) -> None:
        if done.result() == "":
            budget.settle(None, expected_cost)

    try:
        return await asyncio.shield(reserving)
    except asyncio.CancelledError:
        reserving.add_done_callback(give_back)
        raise


async def run_all(jobs: Iterable[Callable[[], Awaitable[None]]], concurrency: int) -> None:
    """Run asynchronous jobs, so many at once.

    Args:
        jobs: The jobs. The next one is taken when another has ended, so that an iterator of many
            jobs is never held in memory.
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
    """Retrieve a late error; asyncio logs those that nobody retrieves."""
    if not task.cancelled():
        task.exception()


def _in_thread(function: Callable[[], Any]) -> asyncio.Future[Any]:
    """Call a function on a daemon thread, and return the future of its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():  # the caller no longer waits
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(as_exception(error))

    def end(value: Any, error: BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    start_thread(function, end, name="oteval call")
    return future
