"""Code that is written once runs blocking and asynchronously."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from oteval.sync import BackgroundLoop, IoCall, drive, drive_async, run_sync, wait_for


def call(value: Any) -> IoCall[Any]:
    """Return a call that says in which form it was made, or raises the value if it can."""

    def blocking() -> Any:
        if isinstance(value, BaseException):
            raise value
        return ("blocking", value)

    async def asynchronous() -> Any:
        await asyncio.sleep(0)
        if isinstance(value, BaseException):
            raise value
        return ("asynchronous", value)

    return IoCall(blocking, asynchronous)


async def both(second: Any) -> list[Any]:
    """Make two calls; an error of the second one is part of the result."""
    found = [await call(1)]
    try:
        found.append(await call(second))
    except ValueError as error:
        found.append(str(error))
    return found


@pytest.mark.parametrize("second", [2, ValueError("no")])
async def test_one_coroutine_runs_in_both_forms(second: Any):
    """Results and errors arrive where the coroutine awaits them."""
    expected = "no" if isinstance(second, ValueError) else None

    assert drive(both(second)) == [("blocking", 1), expected or ("blocking", 2)]
    assert await drive_async(both(second)) == [("asynchronous", 1), expected or ("asynchronous", 2)]


def test_drive_stays_in_the_callers_thread():
    """Without an event loop, so that thread-local state of the caller's functions works."""

    async def threads() -> list[int]:
        return [await IoCall(threading.get_ident, lambda: asyncio.sleep(0, 0))]

    assert drive(threads()) == [threading.get_ident()]


async def test_a_cancelled_caller_cancels_the_coroutine():
    """Its ``finally`` blocks run."""
    cleaned, future = [], Future[None]()

    async def waits() -> None:
        try:
            await wait_for(future)
        finally:
            cleaned.append(True)

    task = asyncio.create_task(drive_async(waits()))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]


def test_a_future_of_another_thread_is_awaited_in_both_forms():
    """Whichever thread completes it."""

    async def waits() -> int:
        future = Future[int]()
        threading.Thread(target=future.set_result, args=(7,)).start()
        return await wait_for(future)

    assert drive(waits()) == 7
    assert asyncio.run(drive_async(waits())) == 7


def test_a_coroutine_runs_in_the_callers_context():
    """Errors are the caller's, and running event loops are left alone."""
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(3)

    async def work() -> int:
        await asyncio.sleep(0)
        return variable.get()

    async def fails() -> None:
        raise ValueError("no")

    async def main() -> int:
        return run_sync(work())

    assert run_sync(work()) == 3
    assert asyncio.run(main()) == 3
    with pytest.raises(ValueError, match="no"):
        run_sync(fails())


def test_a_background_loop_does_not_wait_for_itself():
    """A blocking call on the loop's own thread is an error, not a deadlock."""
    loop = BackgroundLoop("test")

    async def nested() -> None:
        loop.run(asyncio.sleep(0))

    with pytest.raises(RuntimeError, match="await it"):
        loop.run(nested())
