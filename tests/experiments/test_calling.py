from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from functools import partial
from typing import Any

import pytest

from oteval.experiments.calling import call, reason

HERE = contextvars.ContextVar("here", default="")


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
async def test_any_kind_of_function_is_called(function: Any):
    """Synchronous, asynchronous and in between: the value is what it comes to."""
    assert await call(function, (21,), timeout=5) == 42


async def test_a_function_that_blocks_holds_nobody_up():
    """While synchronous functions sleep, others run: ten of them take as long as one."""
    start = time.monotonic()
    await asyncio.gather(*[call(time.sleep, (0.2,)) for _ in range(10)])

    assert time.monotonic() - start < 1.5


async def _hang() -> None:
    while True:
        try:
            await asyncio.sleep(0.3)
            return
        except asyncio.CancelledError:
            continue


@pytest.mark.parametrize("function", [lambda: time.sleep(1), _hang], ids=["thread", "stubborn"])
async def test_a_function_that_hangs_is_given_up_on(function: Any):
    """After its time a function is a TimeoutError, even one that refuses to be cancelled."""
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        await call(function, timeout=0.05)

    assert time.monotonic() - start < 0.3
    await asyncio.sleep(0.4)  # let the stubborn one end


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration()])
async def test_what_is_no_exception_becomes_one(error: BaseException):
    """A function that exits, or raises what asyncio cannot carry, ends only itself."""

    def function() -> None:
        raise error

    with pytest.raises(RuntimeError, match=type(error).__name__):
        await call(function, timeout=5)


async def test_an_exception_is_the_functions_own():
    """What it raises comes through unchanged, from a thread and from a coroutine."""

    async def later() -> None:
        raise KeyError("k")

    for function in (lambda: {}["k"], later):
        with pytest.raises(KeyError, match="k"):
            await call(function)


async def test_a_thread_sees_the_callers_context():
    """Context variables, such as the current span, are there in the function's thread."""
    HERE.set("span")

    assert await call(lambda: (HERE.get(), threading.current_thread().daemon)) == ("span", True)


def test_a_reason_is_one_short_line():
    """Errors of many lines are shown in one, cut off."""
    text = reason(ValueError("a\nb" + "c" * 1000))

    assert text.startswith("ValueError: a bccc")
    assert len(text) == 500
