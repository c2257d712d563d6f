"""Evaluators that take their time, each on threads of its own.

A lane never holds up another, nor what comes in. A call that takes longer than its evaluator may
is given up: its thread is left behind, another takes its place, and what it may still return is
not looked at. When as many threads hang as may run at once, the lane waits until one of them ends.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..model import Reference, Score, Trajectory
from .budgets import DailyBudget, Pace
from .evaluation import DEFERRED, Evaluation, FinishedEvaluation, cost_of
from .evaluator_rules import LiveEvaluator

__all__ = ["Call", "Lane", "run", "spending"]


class Call(NamedTuple):
    """An evaluation with all that scoring it takes."""

    evaluation: Evaluation
    trajectory: Trajectory
    reference: Reference | None = None
    problem: str = ""


def run(live: LiveEvaluator, task: Call, now: int) -> FinishedEvaluation:
    """Judge a trajectory; whatever the evaluator does, there is an outcome."""
    began = time.monotonic()
    score = live.scorer.score(task.trajectory, task.reference, task.problem, now)
    seconds = time.monotonic() - began
    return FinishedEvaluation(task.evaluation, task.trajectory, score, cost_of(score), seconds)


def expected_cost(live: LiveEvaluator, task: Call) -> float:
    """Return what judging a trajectory costs at least (US dollars), as far as can be known."""
    expected = getattr(live.scorer.judge, "expected_cost", None)
    return 0.0 if expected is None else float(expected(task.trajectory.own_messages))


def _tells_nothing(score: Score) -> bool:
    """Return whether a score's cost says nothing about the cost of calls."""
    return score.status != "ok" or bool(score.metadata.get("cached"))


def _blank(live: LiveEvaluator, task: Call, now: int, **fields: Any) -> Score:
    root = task.trajectory.root_span
    return Score(
        *(task.trajectory.id, root.trace_id, root.span_id, *live.key),
        rev=task.trajectory.rev,
        sample_p=live.scorer.sample,
        time_ns=now,
        **fields,
    )


@dataclass(eq=False)
class _Worker:
    """A thread and what it is at."""

    thread: threading.Thread | None = None
    task: Call | None = None
    began: float = 0.0
    is_left: bool = False


@dataclass
class Lane:
    """The threads of one evaluator.

    Attributes:
        live: The evaluator.
        purse: What it may spend.
        clock: The time (ns).
    """

    live: LiveEvaluator
    purse: DailyBudget
    clock: Callable[[], int]
    _tasks: queue.SimpleQueue[Call | None] = field(default_factory=queue.SimpleQueue)
    _done: queue.SimpleQueue[FinishedEvaluation] = field(default_factory=queue.SimpleQueue)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop: threading.Event = field(default_factory=threading.Event)
    _workers: list[_Worker] = field(default_factory=list)
    _left: list[_Worker] = field(default_factory=list)
    under_way: int = 0

    def __post_init__(self) -> None:
        """Set the pace."""
        self._pace = Pace(self.live.limits.max_per_minute)

    @property
    def room(self) -> int:
        """How many tasks it takes now, so that its threads never wait for more."""
        return max(0, 8 * self.live.limits.concurrency - self.under_way)

    def put(self, task: Call) -> None:
        """Take a task."""
        self.under_way += 1
        self._tasks.put(task)
        self._staff()

    def collect(self) -> list[FinishedEvaluation]:
        """Return what has come of tasks since last time, those given up among them."""
        self._give_up()
        self._put_off()
        found = []
        while not self._done.empty():
            found.append(self._done.get())
        self.under_way -= len(found)
        if self.under_way:
            self._staff()
        return found

    def close(self) -> None:
        """Let the threads end once they are done with what they are at."""
        self._stop.set()
        for _ in self._workers:
            self._tasks.put(None)

    def _staff(self) -> None:
        """Start threads, as many as may run at once."""
        limit = min(self.live.limits.concurrency, self.under_way)
        while len(self._workers) + len(self._left) < limit and not self._stop.is_set():
            worker = _Worker()
            # A daemon: an evaluator that hangs must not keep the process from ending.
            worker.thread = threading.Thread(
                target=self._work, args=(worker,), name=f"oteval {self.live.key[0]}", daemon=True
            )
            self._workers.append(worker)
            worker.thread.start()

    def _work(self, worker: _Worker) -> None:
        while (task := self._tasks.get()) is not None:
            if self._stop.wait(self._pace.wait_time()):
                return
            expected = expected_cost(self.live, task)
            why = self.purse.admit(expected)
            if why:
                score = self._deferred(task, "budget", why)
                self._done.put(FinishedEvaluation(task.evaluation, task.trajectory, score))
                continue
            with self._lock:
                worker.task, worker.began = task, time.monotonic()
            outcome = run(self.live, task, self.clock())
            self.purse.paid(outcome.cost, expected, has_failed=_tells_nothing(outcome.score))
            with self._lock:
                worker.task = None
                if worker.is_left:
                    return
                self._done.put(outcome)

    def _give_up(self) -> None:
        now = time.monotonic()
        with self._lock:
            for worker in list(self._workers):
                task = worker.task
                if task is None or now - worker.began <= self.live.timeout:
                    continue
                worker.is_left = True
                self._workers.remove(worker)
                self._left.append(worker)
                self._done.put(self._overdue(task, now - worker.began))

    def _put_off(self) -> None:
        """While all that may run hang, say so of what waits, which would wait for ever."""
        self._left = [w for w in self._left if w.thread is not None and w.thread.is_alive()]
        if self._workers or len(self._left) < self.live.limits.concurrency:
            return
        while not self._tasks.empty():
            task = self._tasks.get()
            if task is not None:
                why = f"{len(self._left)} calls before it hang; done when one of them ends"
                self._done.put(
                    FinishedEvaluation(
                        task.evaluation, task.trajectory, self._deferred(task, "hangs", why)
                    )
                )

    def _deferred(self, task: Call, code: str, why: str) -> Score:
        return _blank(
            *(self.live, task, self.clock()),
            status="not_evaluated",
            comment=why,
            metadata={DEFERRED: code},
        )

    def _overdue(self, task: Call, seconds: float) -> FinishedEvaluation:
        score = _blank(
            *(self.live, task, self.clock()),
            status="error",
            comment=f"TimeoutError: no answer within {self.live.timeout:g} s",
        )
        return FinishedEvaluation(task.evaluation, task.trajectory, score, 0.0, seconds)


def spending(done: Sequence[FinishedEvaluation], day: str) -> list[tuple[str, str, int, float]]:
    """Return what some outcomes cost on a day, as `Live.spend` takes it."""
    calls: Counter[str] = Counter()
    costs: dict[str, float] = {}
    for one in done:
        if one.cost:
            name = one.score.evaluator
            calls[name] += 1
            costs[name] = costs.get(name, 0.0) + one.cost
    return [(name, day, calls[name], cost) for name, cost in costs.items()]
