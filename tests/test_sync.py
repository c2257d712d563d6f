"""Code that is written once runs blocking and asynchronously."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from oteval.sync import (
    BackgroundLoop,
    IoCall,
    blocking_form,
    drive,
    drive_async,
    run_on_new_loop,
    run_sync,
    wait_for,
)


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


async def aexample(value: int = 1, *, error: Exception | None = None) -> int:
    """Return a value, or raise an error."""
    await asyncio.sleep(0)
    if error is not None:
        raise error
    return value


def test_a_blocking_form_has_the_signature_and_docstring_of_its_function():
    """It blocks until the result is there, and raises what the function raises."""
    example = blocking_form(aexample, "example")

    assert (example(), example(2)) == (1, 2)
    with pytest.raises(KeyError):
        example(error=KeyError("k"))
    assert (example.__name__, example.__doc__) == ("example", aexample.__doc__)
    assert inspect.signature(example) == inspect.signature(aexample)
    assert not inspect.iscoroutinefunction(example)


def test_a_new_loop_runs_beside_one_that_runs_already():
    """In a notebook too a blocking call works, in the caller's context, and errors are its own."""
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(3)

    async def work(loops: set[object]) -> int:
        loops.add(asyncio.get_running_loop())
        return variable.get()

    async def main() -> tuple[int, int]:
        loops: set[object] = {asyncio.get_running_loop()}
        found = run_on_new_loop(work(loops))
        with pytest.raises(KeyError):
            run_on_new_loop(aexample(error=KeyError("k")))
        return found, len(loops)

    assert asyncio.run(main()) == (3, 2)


def test_tasks_that_are_left_are_cancelled_with_their_loop():
    """Nothing of a call goes on after it."""
    cancelled = []

    async def left() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def work() -> asyncio.Task[None]:
        task = asyncio.create_task(left())
        await asyncio.sleep(0)
        return task

    run_on_new_loop(work())

    assert cancelled == [True]
