"""Jobs on an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from oteval.base.runner.async_runner import AsyncRunner, run_all

HERE = contextvars.ContextVar("here", default="")
WAIT = 10.0


async def _async_double(x: int) -> int:
    return 2 * x


class _Callable:
    async def __call__(self, x: int) -> int:
        return 2 * x


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 2 * x,
        _async_double,
        _Callable(),
        partial(_async_double),
        lambda x: _async_double(x),
    ],
    ids=["sync", "async", "async object", "partial", "sync that returns a coroutine"],
)
async def test_any_kind_of_function_is_a_job(function: Any):
    """Synchronous, asynchronous and in between: the value is what it comes to."""
    outcome = await AsyncRunner[str, int](timeout=WAIT).run(partial(function, 21), "job")

    assert (outcome.key, outcome.result()) == ("job", 42)


async def test_a_function_that_blocks_blocks_no_other():
    """Ten synchronous functions that wait for each other all end."""
    together = threading.Barrier(10)
    runner = AsyncRunner[int, int]()
    found = await asyncio.gather(
        *[runner.run(lambda: together.wait(WAIT), number) for number in range(10)]
    )

    assert {outcome.status for outcome in found} == {"ok"}


async def test_an_asynchronous_function_runs_on_the_callers_loop():
    """So that clients which belong to the loop can be used."""

    async def job() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    outcome = await AsyncRunner[str, Any]().run(job, "job")

    assert outcome.result() is asyncio.get_running_loop()


@pytest.mark.parametrize("kind", ["thread", "stubborn"])
async def test_a_function_that_hangs_is_abandoned(kind: str):
    """After the timeout there is an outcome, even of a coroutine that refuses to be cancelled."""
    gate, released = threading.Event(), asyncio.Event()
    ended = asyncio.Event()

    async def stubborn() -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        ended.set()

    job: Callable[[], Any] = stubborn if kind == "stubborn" else partial(gate.wait, WAIT)
    outcome = await AsyncRunner[str, None](timeout=0.02).run(job, "job")

    assert (outcome.status, str(outcome.error)) == ("timeout", "no answer within 0.02 s")
    gate.set()
    released.set()
    if kind == "stubborn":
        await ended.wait()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration()])
async def test_what_is_no_exception_becomes_one(error: BaseException):
    """A function that exits, or raises what asyncio cannot carry, ends only itself."""

    def job() -> None:
        raise error

    outcome = await AsyncRunner[str, None](timeout=WAIT).run(job, "job")

    with pytest.raises(RuntimeError, match=type(error).__name__):
        outcome.result()


async def test_an_exception_is_the_functions_own():
    """Its error is in the outcome unchanged, from a thread, from a coroutine and from a call."""

    async def later() -> None:
        raise KeyError("k")

    for job in (lambda: {}["k"], later):
        outcome = await AsyncRunner[str, None]().run(job, "job")
        with pytest.raises(KeyError, match="k"):
            outcome.result()
    outcome = await AsyncRunner[str, None]().run(partial(_async_double, wrong=1), "job")
    with pytest.raises(TypeError):
        outcome.result()


async def test_a_coroutine_that_cancels_itself_is_an_error():
    """It ends only itself, not the caller."""

    async def job() -> None:
        raise asyncio.CancelledError

    outcome = await AsyncRunner[str, None]().run(job, "job")

    assert str(outcome.error) == "the job was cancelled from within"


async def test_a_thread_has_the_callers_context():
    """Context variables, such as the current span, are set in the function's thread."""
    HERE.set("span")
    outcome = await AsyncRunner[str, Any]().run(
        lambda: (HERE.get(), threading.current_thread().daemon), "job"
    )

    assert outcome.result() == ("span", True)


async def test_jobs_are_taken_as_workers_get_free():
    """No more jobs run at once than allowed, and no more are taken from the iterator."""
    taken = running = most = 0

    async def job() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        assert taken - running <= 20
        await asyncio.sleep(0)
        running -= 1

    def jobs() -> Iterator[Callable[[], Any]]:
        nonlocal taken
        for _ in range(20):
            assert taken < 3 or running < 3
            taken += 1
            yield job

    await run_all(jobs(), 3)

    assert (taken, running, most) == (20, 0, 3)


async def test_the_first_error_cancels_the_others():
    """The error is raised once the other jobs have ended."""
    cancelled = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("k")

    with pytest.raises(KeyError, match="k"):
        await run_all([hang, fail, hang], 2)

    assert cancelled == [True]
