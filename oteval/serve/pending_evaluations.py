"""The evaluations that are pending in memory: due now, due later, or still in the store."""

from __future__ import annotations

import heapq
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..base.runner import next_day_ns
from ..store import EvaluationState
from .evaluation import POSTPONED, Evaluation, EvaluationKey, FinishedEvaluation
from .evaluator_rules import LiveEvaluator

__all__ = ["CAPACITY", "EvaluatorQueue", "PendingEvaluations", "RetryPolicy"]

_NS = 1_000_000_000
# Seconds before the next attempt, by the number of failures; the last value repeats.
_RETRY_DELAYS = (60, 600, 3600, 6 * 3600, 24 * 3600)
_RETRY_HANGING = 300
# Evaluations in memory: due now for each evaluator, and due later in total. The store knows the
# rest.
CAPACITY = 100_000


@dataclass(frozen=True)
class RetryPolicy:
    """How often an evaluation is repeated after errors, and how long to wait before.

    Attributes:
        attempts: Attempts in all, the first included.
        delays: Seconds to wait after the first failure, the second, and so on. The last delay
            applies to all later failures.
    """

    attempts: int
    delays: tuple[float, ...] = _RETRY_DELAYS

    def allows_another(self, failures: int) -> bool:
        """Whether an evaluation that failed this often is repeated."""
        return failures < self.attempts

    def delay(self, failures: int) -> float:
        """The seconds to wait after this many failures."""
        return self.delays[min(max(failures, 1), len(self.delays)) - 1]


class EvaluatorQueue:
    """The evaluations of one evaluator that are due now; new traces go before older traces."""

    def __init__(self, evaluator: LiveEvaluator) -> None:
        self.evaluator = evaluator
        self.retry = RetryPolicy(evaluator.limits.attempts)
        self._new: deque[Evaluation] = deque()
        self._old: deque[Evaluation] = deque()

    def __len__(self) -> int:
        """The number of evaluations."""
        return len(self._new) + len(self._old)

    def append(self, evaluation: Evaluation, *, is_old: bool) -> None:
        """Add an evaluation."""
        (self._old if is_old else self._new).append(evaluation)

    def take(self, limit: int) -> list[Evaluation]:
        """Remove and return up to `limit` evaluations."""
        evaluations: list[Evaluation] = []
        while len(evaluations) < limit and (queue := self._new or self._old):
            evaluations.append(queue.popleft())
        return evaluations


class PendingEvaluations:
    """The pending evaluations of all evaluators.

    An evaluation is pending from `add` until `finish` or `drop`, also while it waits for another
    attempt. Evaluations beyond the capacity stay in the store: `in_store` returns the completion
    from where to look for them.

    Args:
        wall: The time of day (ns). Scores in the store contain it, so retries are computed from it.

    Attributes:
        queues: The evaluators' queues, by name and version.
    """

    def __init__(self, wall: Callable[[], int] = time.time_ns) -> None:
        self._wall = wall
        self.queues: dict[tuple[str, str], EvaluatorQueue] = {}
        self._pending: dict[EvaluationKey, Evaluation] = {}
        self._later: list[tuple[int, int, Evaluation]] = []
        self._later_count = 0
        self._in_store: dict[tuple[str, str], int] = {}
        # How many evaluators have not returned their first score, by trace.
        self._unscored: Counter[str] = Counter()

    def __contains__(self, key: EvaluationKey) -> bool:
        """Whether an evaluation is pending."""
        return key in self._pending

    @property
    def due_later(self) -> int:
        """The number of evaluations that are due later."""
        return len(self._later)

    @property
    def due(self) -> int:
        """The number of evaluations that are due now or running."""
        return len(self._pending) - len(self._later)

    @property
    def has_more_in_store(self) -> bool:
        """Whether the store has evaluations beyond the capacity."""
        return bool(self._in_store)

    def waits_for_score(self, trace_id: str) -> bool:
        """Whether an evaluator still has to return its first score for a trace."""
        return trace_id in self._unscored

    # -- evaluators

    def add_evaluator(self, evaluator: LiveEvaluator, completion: int) -> None:
        """Add an evaluator; its evaluations of traces from a completion on are in the store."""
        self.queues[evaluator.key] = EvaluatorQueue(evaluator)
        self._in_store[evaluator.key] = completion

    def remove_evaluator(self, key: tuple[str, str]) -> list[str]:
        """Drop an evaluator's evaluations; return the traces that now wait for no other score."""
        del self.queues[key]
        self._in_store.pop(key, None)
        self._later = [entry for entry in self._later if entry[2].evaluator != key]
        heapq.heapify(self._later)
        dropped = [pending for pending in self._pending.values() if pending.evaluator == key]
        for evaluation in dropped:
            del self._pending[evaluation.key]
        return [pending.trace_id for pending in dropped if self._count_first_score(pending)]

    def first_completions(self, newest: int) -> dict[tuple[str, str], int]:
        """The first completion with a pending evaluation, by evaluator.

        Args:
            newest: The newest completion. An evaluator without evaluations gets the next one.
        """
        first = dict.fromkeys(self.queues, newest + 1)
        for evaluation in self._pending.values():
            first[evaluation.evaluator] = min(first[evaluation.evaluator], evaluation.completion)
        for key, completion in self._in_store.items():
            first[key] = min(first[key], completion)
        return first

    # -- evaluations

    def add(
        self,
        queue: EvaluatorQueue,
        todo: EvaluationState,
        previous: EvaluationState | None,
        now: int,
        *,
        is_old: bool,
    ) -> None:
        """Add the evaluation of a trajectory, unless it is finished.

        Args:
            queue: The evaluator's queue.
            todo: The trajectory.
            previous: The evaluator's newest score for it; None when there is none.
            now: The time (ns).
            is_old: Whether evaluations of new traces go before it.
        """
        evaluator = queue.evaluator
        if len(queue) >= CAPACITY:
            self.leave_in_store(evaluator.key, todo.completion)
            return
        evaluation = Evaluation(
            trajectory_id=todo.trajectory_id,
            rev=todo.rev,
            trace_id=todo.trace_id,
            completion=todo.completion,
            evaluator=evaluator.key,
            errors=previous.errors if previous else 0,
            has_score=previous is not None,
            is_postponed=previous.is_postponed if previous else False,
            since_ns=now,
            start_ns=todo.start_ns,
        )
        if previous is None or previous.is_postponed:
            self._hold(evaluation)
            queue.append(evaluation, is_old=is_old or evaluation.has_score)
        elif previous.status == "error" and queue.retry.allows_another(previous.errors):
            self._hold(evaluation)
            # A score may be from the future, because the clock was set back; it delays no longer.
            age = max(0, self._wall() - previous.time_ns)
            delay = round(queue.retry.delay(previous.errors) * _NS)
            self._queue_later(evaluation, now + max(0, delay - age))

    def drop(self, evaluation: Evaluation) -> bool:
        """Drop an evaluation; return whether its trace now waits for no other score."""
        self._pending.pop(evaluation.key, None)
        return self._count_first_score(evaluation)

    def finish(self, finished: FinishedEvaluation, now: int) -> bool:
        """Take an evaluation that has finished, and schedule the next attempt if one is due.

        Returns:
            Whether its trace now waits for no other score.
        """
        evaluation = finished.evaluation
        if self._pending.pop(evaluation.key, None) is None:
            return False
        self._schedule_retry(finished, now)
        return self._count_first_score(evaluation)

    def release_due(self, now: int) -> None:
        """Move the evaluations whose time has come to their evaluators' queues."""
        while self._later and self._later[0][0] <= now:
            evaluation = heapq.heappop(self._later)[2]
            self.queues[evaluation.evaluator].append(evaluation, is_old=True)

    # -- evaluations in the store

    def leave_in_store(self, key: tuple[str, str], completion: int) -> None:
        """Note that the store has evaluations of traces from a completion on."""
        self._in_store[key] = min(self._in_store.get(key, completion), completion)

    def take_refillable(self) -> Iterator[tuple[EvaluatorQueue, int]]:
        """Yield the evaluators with capacity for evaluations that the store has.

        With each comes the completion from where to look. The caller adds the evaluations that
        it finds, and calls `leave_in_store` for the rest.
        """
        for key in list(self._in_store):
            queue = self.queues[key]
            if len(queue) <= CAPACITY // 2 and len(self._later) <= CAPACITY // 2:
                yield queue, self._in_store.pop(key)

    def _hold(self, evaluation: Evaluation) -> None:
        self._pending[evaluation.key] = evaluation
        if not evaluation.has_score:
            self._unscored[evaluation.trace_id] += 1

    def _count_first_score(self, evaluation: Evaluation) -> bool:
        """Count an evaluation's first score; return whether its trace waits for no other."""
        trace_id = evaluation.trace_id
        if evaluation.has_score or trace_id not in self._unscored:
            return False
        self._unscored[trace_id] -= 1
        if self._unscored[trace_id]:
            return False
        del self._unscored[trace_id]
        return True

    def _queue_later(self, evaluation: Evaluation, due_ns: int) -> None:
        if len(self._later) >= CAPACITY:
            self._pending.pop(evaluation.key, None)
            self.leave_in_store(evaluation.evaluator, evaluation.completion)
            return
        self._later_count += 1
        heapq.heappush(self._later, (due_ns, self._later_count, evaluation))

    def _schedule_retry(self, finished: FinishedEvaluation, now: int) -> None:
        evaluation, score = finished.evaluation, finished.score
        errors = evaluation.errors + (score.status == "error")
        retry_policy = self.queues[evaluation.evaluator].retry
        if finished.is_postponed:
            wall = self._wall()
            is_budget = score.metadata[POSTPONED] == "budget"
            due_ns = now + (next_day_ns(wall) - wall if is_budget else _RETRY_HANGING * _NS)
        elif score.status == "error" and retry_policy.allows_another(errors):
            due_ns = now + round(retry_policy.delay(errors) * _NS)
        else:
            return
        retry = replace(
            evaluation, errors=errors, has_score=True, is_postponed=finished.is_postponed
        )
        self._pending[retry.key] = retry
        self._queue_later(retry, due_ns)
