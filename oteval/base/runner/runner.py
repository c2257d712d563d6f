"""Jobs on daemon threads, for callers that have no event loop."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic

from .calls import Job, Key, Outcome, Returned, Value, call_and_await, timeout_error
from .limits import DailyBudget, RateLimiter

__all__ = ["Runner"]


@dataclass(eq=False)
class _RunnerThread(Generic[Key, Value]):
    """A thread and the job that it calls.

    Attributes:
        thread: The thread.
        job: The job whose function it calls now.
        began: When that call began, by the monotonic clock.
        is_abandoned: Whether the call took too long. The thread ends when the call returns.
    """

    thread: threading.Thread | None = None
    job: Job[Key, Value] | None = None
    began: float = 0.0
    is_abandoned: bool = False


class Runner(Generic[Key, Value]):
    """Runs jobs on daemon threads, within limits.

    One thread submits jobs and collects outcomes. Keep the number of `pending` jobs bounded: the
    runner queues every submitted job.

        runner = Runner(concurrency=4, timeout=60.0)
        for trajectory in trajectories:
            runner.submit(partial(evaluate, trajectory), trajectory.id)
            for outcome in runner.completed(max_pending=8):
                ...
        for outcome in runner.completed(max_pending=0):
            ...
        runner.close()

    A call that takes longer than the timeout is abandoned: its outcome is a timeout, its thread is
    left behind, and its late result is dropped. An abandoned call still counts as one of the
    concurrent calls until it returns. While all of them hang, jobs are postponed.

    Args:
        concurrency: How many jobs run at once.
        timeout: Seconds that a call may take; None for no limit.
        rate: How many calls may start per minute.
        budget: How much the calls may cost per day.
        cost_of: Returns the cost (US dollars) of a job from its value, for the budget; None if the
            value does not show it, because the call failed or was cached.
        name: The name of the threads.

    Attributes:
        concurrency: How many jobs run at once.
        pending: The number of submitted jobs whose outcomes are not collected yet.
    """

    def __init__(
        self,
        concurrency: int = 1,
        *,
        timeout: float | None = None,
        rate: RateLimiter | None = None,
        budget: DailyBudget | None = None,
        cost_of: Callable[[Value], float | None] | None = None,
        name: str = "oteval runner",
    ) -> None:
        self.concurrency = concurrency
        self.pending = 0
        self._timeout, self._rate = timeout, rate
        self._budget, self._cost_of = budget, cost_of
        self._name = name
        self._jobs: queue.SimpleQueue[Job[Key, Value] | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Outcome[Key, Value]] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._workers: list[_RunnerThread[Key, Value]] = []
        self._abandoned: list[_RunnerThread[Key, Value]] = []

    def submit(
        self,
        job: Callable[[], Any],
        key: Key,
        *,
        expected_cost: float | Callable[[], float] = 0.0,
    ) -> None:
        """Queue a job. It runs in the caller's context.

        Args:
            job: A function without arguments, synchronous or not.
            key: Identifies the job in its outcome.
            expected_cost: The least that the job will cost (US dollars), or a function that
                returns it and is called on the job's thread.
        """
        self.pending += 1
        self._jobs.put(Job(key, job, expected_cost))
        self._start_workers()

    def completed(self, *, max_pending: int | None = None) -> Iterator[Outcome[Key, Value]]:
        """Yield the available outcomes; the job that ended first comes first.

        Args:
            max_pending: Wait for outcomes until no more than this many jobs are pending. The
                default does not wait.
        """
        while True:
            self._abandon_overdue()
            self._postpone_blocked()
            self._start_workers()
            while not self._outcomes.empty():
                self.pending -= 1
                yield self._outcomes.get()
            if max_pending is None or self.pending <= max_pending:
                return
            try:
                outcome = self._outcomes.get(timeout=self._seconds_to_deadline())
            except queue.Empty:
                continue
            self.pending -= 1
            yield outcome

    def close(self) -> None:
        """Drop queued jobs, and let the threads end after the jobs that they run."""
        self._closed.set()
        for _ in self._workers:
            self._jobs.put(None)

    def _start_workers(self) -> None:
        worker_count = min(self.concurrency - len(self._abandoned), self.pending)
        while len(self._workers) < worker_count and not self._closed.is_set():
            worker: _RunnerThread[Key, Value] = _RunnerThread()
            worker.thread = threading.Thread(
                target=self._work, args=(worker,), name=self._name, daemon=True
            )
            self._workers.append(worker)
            worker.thread.start()

    def _work(self, worker: _RunnerThread[Key, Value]) -> None:
        while (job := self._jobs.get()) is not None and not self._closed.is_set():
            outcome = self._run(worker, job)
            if outcome is None or worker.is_abandoned:
                return
            self._outcomes.put(outcome)

    def _run(
        self, worker: _RunnerThread[Key, Value], job: Job[Key, Value]
    ) -> Outcome[Key, Value] | None:
        """Run a job; return None if the runner was closed meanwhile."""
        try:
            expected_cost = self._expected_cost(job)
            if self._rate is not None and self._closed.wait(self._rate.reserve()):
                return None
            reason = self._budget.reserve(expected_cost) if self._budget is not None else ""
            if reason:
                return Outcome(job.key, "postponed", postponed_by="budget", reason=reason)
            began = time.monotonic()
            returned = self._call(worker, job)
            seconds = time.monotonic() - began
            self._settle(returned, expected_cost)
        except Exception as error:  # of `expected_cost` or `cost_of`
            return Outcome(job.key, "error", error=error)
        return returned.outcome(job.key, seconds)

    def _expected_cost(self, job: Job[Key, Value]) -> float:
        if self._budget is None:
            return 0.0
        expected = job.expected_cost
        return job.context.run(expected) if callable(expected) else expected

    def _settle(self, returned: Returned, expected_cost: float) -> None:
        """Replace the reservation of a call in the budget by its cost."""
        if self._budget is None:
            return
        cost = None
        try:
            if returned.error is None and returned.value is not None and self._cost_of is not None:
                cost = self._cost_of(returned.value)
        finally:
            self._budget.settle(cost, expected_cost, was_abandoned=returned.is_timeout)

    def _call(self, worker: _RunnerThread[Key, Value], job: Job[Key, Value]) -> Returned:
        with self._lock:
            worker.job, worker.began = job, time.monotonic()
        value, error = None, None
        try:
            value = job.context.run(call_and_await, job.function)
        except BaseException as raised:
            error = raised
        with self._lock:
            worker.job = None
            late = worker.is_abandoned
        return Returned(value, error, is_timeout=late)

    def _abandon_overdue(self) -> None:
        """Abandon the calls that take longer than the timeout."""
        timeout, budget = self._timeout, self._budget
        if timeout is None:
            return
        now = time.monotonic()
        with self._lock:
            for worker in list(self._workers):
                if worker.job is None or now - worker.began <= timeout:
                    continue
                worker.is_abandoned = True
                self._workers.remove(worker)
                self._abandoned.append(worker)
                if budget is not None:
                    budget.abandon()
                self._outcomes.put(
                    Outcome(
                        worker.job.key,
                        "timeout",
                        error=timeout_error(timeout),
                        seconds=now - worker.began,
                    )
                )

    def _postpone_blocked(self) -> None:
        """Postpone the queued jobs if abandoned calls occupy all threads."""
        self._abandoned = [w for w in self._abandoned if w.thread and w.thread.is_alive()]
        if self._workers or len(self._abandoned) < self.concurrency:
            return
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is not None:
                reason = (
                    f"all {len(self._abandoned)} concurrent calls hang; "
                    "evaluated when one of them returns"
                )
                self._outcomes.put(
                    Outcome(job.key, "postponed", postponed_by="hangs", reason=reason)
                )

    def _seconds_to_deadline(self) -> float | None:
        """How long to wait for an outcome before a call may be overdue."""
        timeout = self._timeout
        if timeout is None:
            return None
        now = time.monotonic()
        with self._lock:
            running = [worker.began for worker in self._workers if worker.job is not None]
        # A call that has not begun yet is not overdue before a whole timeout has passed.
        first = min(running, default=now)
        return max(first + timeout - now, 0.0) + 0.001
