"""A job, the steps that its limits require, and its outcome.

The steps are a generator that does no waiting itself. `Runner` takes them on a thread, and
`AsyncRunner` on an event loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, cast

from .calls import as_exception, call_and_await
from .limits import DailyBudget, RateLimiter, RetryPolicy

__all__ = [
    "CallStep",
    "Deferral",
    "Job",
    "Key",
    "Outcome",
    "PauseStep",
    "ReserveStep",
    "Returned",
    "RunLimits",
    "Status",
    "Step",
    "Value",
    "run_inline",
]

Key = TypeVar("Key")
Value = TypeVar("Value")

Status = Literal["ok", "error", "timeout", "deferred"]
Deferral = Literal["budget", "hangs"]


@dataclass(frozen=True)
class Outcome(Generic[Key, Value]):
    """The result of a job, or why there is none.

    Attributes:
        key: The job's key.
        status: ``ok``; ``error``, the job raised; ``timeout``, the job took too long;
            ``deferred``, the job did not run and should be submitted again later.
        value: The job's return value.
        error: The job's exception, or a TimeoutError.
        deferral: Why the job did not run: the day's ``budget`` is used up, or earlier jobs occupy
            all threads because each of them ``hangs``.
        reason: The deferral in words.
        seconds: How long the last call took.
    """

    key: Key
    status: Status
    value: Value | None = None
    error: Exception | None = None
    deferral: Deferral | None = None
    reason: str = ""
    seconds: float = 0.0

    def result(self) -> Value:
        """Return the job's value.

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

    def failed(self, error: BaseException, seconds: float = 0.0) -> Outcome[Key, Any]:
        """Return the outcome of a job that raised."""
        return Outcome(self.key, "error", error=as_exception(error), seconds=seconds)


@dataclass(frozen=True, slots=True)
class PauseStep:
    """A step: wait this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ReserveStep:
    """A step: reserve money for the call, which may block. It results in a reason or ""."""

    budget: DailyBudget
    expected_cost: float


@dataclass(frozen=True, slots=True)
class CallStep:
    """A step: call the job's function. It results in a `Returned`."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The end of a call.

    Attributes:
        value: The function's return value.
        error: Its exception.
        is_timeout: Whether it took longer than the timeout.
        was_abandoned: Whether the budget was told that the call hangs.
    """

    value: Any = None
    error: BaseException | None = None
    is_timeout: bool = False
    was_abandoned: bool = False


Step = PauseStep | ReserveStep | CallStep


@dataclass(frozen=True)
class RunLimits(Generic[Value]):
    """The limits of each job.

    Attributes:
        timeout: Seconds that a call may take; None for no limit.
        rate: How many calls may start per minute.
        budget: How much the calls may cost per day.
        retry: How often a call that raised is repeated. One that timed out is not.
        cost_of: Returns the cost (US dollars) of a job from its value; None if the value does not
            tell, because the call failed or was cached.
    """

    timeout: float | None = None
    rate: RateLimiter | None = None
    budget: DailyBudget | None = None
    retry: RetryPolicy | None = None
    cost_of: Callable[[Value], float | None] | None = None

    def steps(self, job: Job[Key, Value]) -> Generator[Step, Any, Outcome[Key, Value]]:
        """Yield the steps of a job, and return its outcome."""
        failures = 0
        expected_cost = 0.0
        if self.budget is not None:
            expected = job.expected_cost
            expected_cost = job.context.run(expected) if callable(expected) else expected
        while True:
            if self.rate is not None:
                yield PauseStep(self.rate.reserve())
            if self.budget is not None:
                reason: str = yield ReserveStep(self.budget, expected_cost)
                if reason:
                    return Outcome(job.key, "deferred", deferral="budget", reason=reason)
            began = time.monotonic()
            returned = Returned()
            try:
                returned = yield CallStep()
            finally:  # also if the job is cancelled
                if self.budget is not None:
                    self.budget.settle(
                        self._cost(returned),
                        expected_cost,
                        was_abandoned=returned.was_abandoned,
                    )
            seconds = time.monotonic() - began
            if returned.error is None:
                return Outcome(job.key, "ok", returned.value, seconds=seconds)
            failures += 1
            if returned.is_timeout:
                error = as_exception(returned.error)
                return Outcome(job.key, "timeout", error=error, seconds=seconds)
            if self.retry is None or not self.retry.allows_another(failures):
                return job.failed(returned.error, seconds)
            yield PauseStep(self.retry.delay(failures))

    def _cost(self, returned: Returned) -> float | None:
        if returned.error is not None or returned.value is None or self.cost_of is None:
            return None
        return self.cost_of(returned.value)


def run_inline(function: Callable[[], Value], key: Key) -> Outcome[Key, Value]:
    """Run a fast job in the caller's thread, without limits, and return its outcome."""
    job = Job[Key, Value](key, function)
    began = time.monotonic()
    try:
        value = call_and_await(function)
    except (Exception, SystemExit) as error:
        return job.failed(error, time.monotonic() - began)
    return Outcome(key, "ok", value, seconds=time.monotonic() - began)
