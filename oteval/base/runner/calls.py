"""One call of a function, on a daemon thread if it has a timeout; a job and its outcome."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal, TypeVar, cast

__all__ = [
    "Job",
    "Key",
    "Outcome",
    "PostponedBy",
    "Returned",
    "Status",
    "Value",
    "as_exception",
    "call",
    "call_and_await",
    "describe_error",
    "is_async_function",
    "run_inline",
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


Key = TypeVar("Key")
Value = TypeVar("Value")

Status = Literal["ok", "error", "timeout", "postponed"]
PostponedBy = Literal["budget", "hangs"]


@dataclass(frozen=True)
class Outcome(Generic[Key, Value]):
    """The result of a job, or why there is none.

    Attributes:
        key: The job's key.
        status: ``ok``; ``error``, the job raised; ``timeout``, the job took too long;
            ``postponed``, the job did not run and should be submitted again later.
        value: The job's return value.
        error: The job's exception, or a TimeoutError.
        postponed_by: Why the job did not run: the day's ``budget`` is used up, or earlier jobs
            occupy all threads because each of them ``hangs``.
        reason: Why the job did not run, as a sentence.
        seconds: How long the call took.
    """

    key: Key
    status: Status
    value: Value | None = None
    error: Exception | None = None
    postponed_by: PostponedBy | None = None
    reason: str = ""
    seconds: float = 0.0

    def result(self) -> Value:
        """The job's value.

        Raises:
            Exception: The job's exception, a TimeoutError, or a RuntimeError if it did not run.
        """
        if self.error is not None:
            raise self.error
        if self.status != "ok":
            raise RuntimeError(self.reason)
        return cast("Value", self.value)


@dataclass(frozen=True)
class Job(Generic[Key, Value]):
    """A function to call, and the context to call it in."""

    key: Key
    function: Callable[[], Any]
    expected_cost: float | Callable[[], float] = 0.0
    context: Context = field(default_factory=copy_context)


@dataclass(frozen=True, slots=True)
class Returned:
    """The end of a call.

    Attributes:
        value: The function's return value.
        error: Its exception.
        is_timeout: Whether it took longer than the timeout.
    """

    value: Any = None
    error: BaseException | None = None
    is_timeout: bool = False

    def outcome(self, key: Key, seconds: float) -> Outcome[Key, Any]:
        """The outcome of the job with this key.

        Args:
            key: The job's key.
            seconds: How long the call took.
        """
        if self.error is None:
            return Outcome(key, "ok", self.value, seconds=seconds)
        status: Status = "timeout" if self.is_timeout else "error"
        return Outcome(key, status, error=as_exception(self.error), seconds=seconds)


def run_inline(function: Callable[[], Value], key: Key) -> Outcome[Key, Value]:
    """Run a fast job in the caller's thread, without limits, and return its outcome."""
    began = time.monotonic()
    try:
        returned = Returned(call_and_await(function))
    except (Exception, SystemExit) as error:
        returned = Returned(error=error)
    return returned.outcome(key, time.monotonic() - began)
