"""A job and its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, cast

from .calls import as_exception, call_and_await

__all__ = ["Job", "Key", "Outcome", "PostponedBy", "Returned", "Status", "Value", "run_inline"]

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
