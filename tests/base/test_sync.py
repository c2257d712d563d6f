"""Code that is written once runs blocking and asynchronously."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from oteval.base.sync import (
    BackgroundLoop,
    ConcurrencyLimit,
    IoCall,
    blocking_form,
    blocks_event_loop,
    drive,
    drive_async,
    gather,
    run_on_new_loop,
    wait_for,
)


def call(value: Any) -> IoCall[Any]:
    """Return a call that returns its form with the value, or raises the value if it is an error."""

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
    """No event loop runs, so that thread-local state of the caller's functions works."""

    async def threads() -> list[int]:
        return [await IoCall(threading.get_ident, lambda: asyncio.sleep(0, 0))]

    assert drive(threads()) == [threading.get_ident()]


async def test_a_cancelled_caller_cancels_the_coroutine():
    """The ``finally`` blocks of the coroutine run."""
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
    loop = BackgroundLoop("test")
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(3)

    async def work() -> int:
        await asyncio.sleep(0)
        return variable.get()

    async def fails() -> None:
        raise ValueError("no")

    async def main() -> int:
        return loop.run(work())

    assert loop.run(work()) == 3
    assert asyncio.run(main()) == 3
    with pytest.raises(ValueError, match="no"):
        loop.run(fails())


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
    """Its results, errors, signature and docstring are those of the function."""
    example = blocking_form(aexample, "example")

    assert (example(), example(2)) == (1, 2)
    with pytest.raises(KeyError):
        example(error=KeyError("k"))
    assert (example.__name__, example.__doc__) == ("example", aexample.__doc__)
    assert inspect.signature(example) == inspect.signature(aexample)
    assert not inspect.iscoroutinefunction(example)


def test_a_new_loop_runs_beside_one_that_runs_already():
    """A blocking call works in a notebook, in the caller's context, and raises its errors."""
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
    """No task of a call continues after it."""
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


def test_threads_and_event_loops_share_a_concurrency_limit():
    """A blocking caller waits for an asynchronous one, and the other way round."""
    limit = ConcurrencyLimit(1)
    inside, most, lock = 0, 0, threading.Lock()

    async def work() -> None:
        nonlocal inside, most
        for _ in range(10):
            async with limit.slot():
                with lock:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.001)
                with lock:
                    inside -= 1

    with ThreadPoolExecutor(6) as threads:
        futures = [threads.submit(lambda: drive(work())) for _ in range(3)]
        futures += [threads.submit(lambda: asyncio.run(drive_async(work()))) for _ in range(3)]
        for future in futures:
            future.result(30)

    assert most == 1


async def test_a_caller_that_gives_up_passes_its_slot_on():
    """Cancelled callers neither keep a slot nor lose one."""
    limit = ConcurrencyLimit(1)
    entered, done = asyncio.Event(), Future[None]()

    async def hold() -> None:
        async with limit.slot():
            await wait_for(done)

    async def enter() -> None:
        async with limit.slot():
            entered.set()

    holder = asyncio.create_task(drive_async(hold()))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(drive_async(enter())) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    done.set_result(None)
    await holder
    waiting[1].cancel()  # the slot may be handed to it at this moment

    await asyncio.wait_for(entered.wait(), 10)
    await asyncio.gather(*waiting, return_exceptions=True)
    await drive_async(enter())


async def test_gather_is_concurrent_only_when_asynchronous():
    """Under `drive` the coroutines run one after the other, in order."""
    events: list[str] = []

    async def one(name: str) -> str:
        events.append(f"{name} starts")
        await call(name)
        events.append(f"{name} ends")
        return name

    async def both() -> list[str]:
        return await gather(one(name) for name in "ab")

    assert drive(both()) == ["a", "b"]
    assert events == ["a starts", "a ends", "b starts", "b ends"]
    events.clear()
    assert await drive_async(both()) == ["a", "b"]
    assert events[:2] == ["a starts", "b starts"]


async def test_a_blocking_call_on_an_event_loop_is_recognised():
    """Waiting for a coroutine of the same loop would never end."""

    async def blocks() -> bool:
        return await blocks_event_loop()

    assert drive(blocks()) is True
    assert await drive_async(blocks()) is False
    assert await asyncio.to_thread(lambda: drive(blocks())) is False
