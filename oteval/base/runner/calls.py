"""One call of a function, on a daemon thread if it has a timeout."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any

__all__ = [
    "as_exception",
    "call",
    "call_and_await",
    "describe_error",
    "is_async_function",
    "start_thread",
    "timeout_error",
]


def call(function: Callable[[], Any], timeout: float | None = None) -> Any:
    """Call a function and return its result; await it if it is a coroutine.

    With a timeout the function runs on its own thread, in the caller's context. The thread is
    abandoned after the timeout.

    Args:
        function: A function without arguments, synchronous or not.
        timeout: Seconds to wait; None for no limit.

    Raises:
        TimeoutError: The function took longer.
        BaseException: Whatever the function raises.
    """
    if timeout is None:
        return call_and_await(function)
    ended = threading.Event()
    result: tuple[Any, BaseException | None] = (None, None)

    def end(value: Any, error: BaseException | None) -> None:
        nonlocal result
        result = value, error
        ended.set()

    start_thread(lambda: call_and_await(function), end, name="oteval call")
    if not ended.wait(timeout):
        raise timeout_error(timeout)
    value, error = result
    if error is not None:
        raise error
    return value


def call_and_await(function: Callable[[], Any]) -> Any:
    """Call a function and return its result; run it on a new event loop if it is a coroutine."""
    value = function()
    if not inspect.iscoroutine(value):
        return value
    import asyncio  # slow to import, and rarely needed

    return asyncio.run(value)


def is_async_function(function: Callable[..., Any]) -> bool:
    """Whether a function, a callable object or a partial is asynchronous."""
    while isinstance(function, partial):
        function = function.func
    method = getattr(function, "__call__", None)  # noqa: B004  the method itself is wanted
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)


def start_thread(
    function: Callable[[], Any],
    end: Callable[[Any, BaseException | None], None],
    *,
    name: str,
) -> None:
    """Call a function on a new daemon thread, in the caller's context.

    Args:
        function: The function.
        end: Called on that thread with the result or the exception.
        name: The thread's name.
    """
    context = copy_context()

    def run() -> None:
        try:
            value = context.run(function)
        except BaseException as error:
            end(None, error)
        else:
            end(value, None)

    threading.Thread(target=run, name=name, daemon=True).start()


def as_exception(error: BaseException) -> Exception:
    """An error of a job as an exception that ends only the job.

    SystemExit and KeyboardInterrupt would end the caller. StopIteration would end the generator
    that the caller may be, and asyncio does not pass it on.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def timeout_error(timeout: float) -> TimeoutError:
    """The error of a call that took longer than its timeout (seconds)."""
    return TimeoutError(f"no answer within {timeout:g} s")


def describe_error(error: BaseException) -> str:
    """An exception as one line of at most 500 characters."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 500 else f"{text[:497]}..."
