"""Calls functions that nobody vouches for: synchronous or not, within a time, without blocking.

A synchronous function runs in a daemon thread of its own, so that one which hangs keeps neither
the others nor the end of the process waiting; what it returns after its time is dropped. Context
variables (the current span among them) are those of the caller.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

__all__ = ["call", "reason"]


async def call(
    function: Callable[..., Any],
    positional: tuple[Any, ...] = (),
    keywords: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Any:
    """Call a function and return what it returns, awaited where need be.

    Args:
        function: The function.
        positional: Its positional arguments.
        keywords: Its keywords.
        timeout: After how many seconds to give up on it; None waits.

    Raises:
        TimeoutError: It took longer.
        Exception: Whatever it raises; what is no Exception, such as SystemExit, becomes a
            RuntimeError, so that no evaluator can end the experiment.
    """
    keywords = keywords or {}
    if _is_async(function):
        return await _within(function(*positional, **keywords), timeout)
    value = await _within(_in_thread(function, positional, keywords), timeout)
    return await _within(value, timeout) if inspect.isawaitable(value) else value


def _is_async(function: Callable[..., Any]) -> bool:
    inner = getattr(function, "func", function)  # of a functools.partial
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(
        getattr(inner, "__call__", None)  # noqa: B004
    )


async def _within(work: Awaitable[Any], timeout: float | None) -> Any:
    task = asyncio.ensure_future(work)
    try:
        # Not wait_for, which would wait for a function that does not let itself be cancelled.
        await asyncio.wait({task}, timeout=timeout)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not task.done():
        task.cancel()
        task.add_done_callback(_forget)
        raise TimeoutError(f"no answer within {timeout:g} s")
    if task.cancelled():
        raise RuntimeError("it was cancelled from within")
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, Exception):
        raise error
    raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _forget(task: asyncio.Future[Any]) -> None:
    """Take note of a late end, which asyncio would complain about otherwise."""
    if not task.cancelled():
        task.exception()


def _in_thread(
    function: Callable[..., Any], positional: tuple[Any, ...], keywords: Mapping[str, Any]
) -> asyncio.Future[Any]:
    """Return the future outcome of a function that runs in a thread of its own."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():  # given up on
            return
        if error is None:
            future.set_result(value)
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            future.set_exception(error)
        else:  # futures take no StopIteration, and KeyboardInterrupt would end the loop
            future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))

    def work() -> None:
        value, error = None, None
        try:
            value = context.run(function, *positional, **keywords)
        except BaseException as caught:
            error = caught
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, daemon=True, name="oteval-call").start()
    return future


def reason(error: BaseException) -> str:
    """Return an exception in one line, cut to a readable length."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 500 else f"{text[:497]}..."
