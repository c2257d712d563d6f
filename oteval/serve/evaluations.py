"""The evaluations of live scoring: due now, due later, still in the store, or finished."""

from __future__ import annotations

import heapq
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..base.runner import next_day_ns
from ..model import EvaluationResult, Score, Trajectory
from ..scoring import EventRun
from ..store import EvaluationState
from .evaluator_rules import LiveEvaluator

__all__ = [
    "CAPACITY",
    "POSTPONED",
    "Evaluation",
    "EvaluationKey",
    "EvaluatorQueue",
    "FinishedEvaluation",
    "PendingEvaluations",
    "WrittenScores",
    "evaluation_delay",
]

_NS = 1_000_000_000

POSTPONED = "oteval.deferred"
"""The metadata key of a score that only reports that its evaluation was postponed, and why."""

EvaluationKey = tuple[str, int, tuple[str, str]]
"""A trajectory's id and revision, and an evaluator's name and version."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A trajectory that an evaluator is going to score.

    Attributes:
        trajectory_id: The trajectory.
        rev: Its revision.
        trace_id: Its trace.
        completion: The number under which the store recorded the end of the trace.
        evaluator: The evaluator's name and version.
        errors: How many attempts failed.
        has_score: Whether the store has a score that reports that it failed or was postponed.
        is_postponed: Whether the newest score reports that it was postponed.
        since_ns: When it was scheduled first.
        start_ns: When the trajectory starts.
    """

    trajectory_id: str
    rev: int
    trace_id: str
    completion: int
    evaluator: tuple[str, str]
    errors: int = 0
    has_score: bool = False
    is_postponed: bool = False
    since_ns: int = 0
    start_ns: int = 0

    @property
    def key(self) -> EvaluationKey:
        """The key that identifies the evaluation while it is pending."""
        return self.trajectory_id, self.rev, self.evaluator


@dataclass(frozen=True, slots=True)
class FinishedEvaluation:
    """An evaluation with its score.

    Attributes:
        evaluation: The evaluation.
        trajectory: The trajectory.
        score: The score. Its status is that the evaluation succeeded, failed or was postponed.
        cost: The cost (US dollars).
        seconds: The duration.
    """

    evaluation: Evaluation
    trajectory: Trajectory
    score: Score
    cost: float = 0.0
    seconds: float = 0.0

    @property
    def is_postponed(self) -> bool:
        """Whether the evaluator was not called, and will be later."""
        return POSTPONED in self.score.metadata

    def written(self, now: int) -> WrittenScores:
        """The score as it is published.

        Args:
            now: The time (ns).
        """
        return WrittenScores(
            self.score.evaluator,
            [(self.trajectory.agent, self.score)],
            lambda: [(self.score, self.trajectory)],
            self.seconds,
            max(0, now - self.evaluation.since_ns) / _NS,
            self.cost,
        )


class WrittenScores(NamedTuple):
    """Scores of one evaluator that were written to the store, and are to be published.

    Attributes:
        evaluator: The evaluator's name.
        results: The agent and the result of each run.
        events: Returns the scores, each with its run.
        seconds: The duration of all evaluations.
        lag: Seconds from the end of the traces to the scores.
        cost: The cost of all evaluations (US dollars).
    """

    evaluator: str
    results: Sequence[tuple[str, EvaluationResult]]
    events: Callable[[], Sequence[tuple[Score, EventRun]]]
    seconds: float
    lag: float = 0.0
    cost: float = 0.0


# Seconds before the next attempt, by the number of failures; the last value repeats.
_RETRY_DELAYS = (60, 600, 3600, 6 * 3600, 24 * 3600)
_RETRY_HANGING = 300
# Evaluations in memory: due now for each evaluator, and due later in total. The store knows the
# rest.
CAPACITY = 100_000


def evaluation_delay(attempts: int, failures: int) -> float | None:
    """The seconds to wait before an evaluation is repeated; None if it is not.

    Args:
        attempts: Attempts in all, the first included.
        failures: How often it has failed.
    """
    if failures >= attempts:
        return None
    return _RETRY_DELAYS[min(max(failures, 1), len(_RETRY_DELAYS)) - 1]


class EvaluatorQueue:
    """The evaluations of one evaluator that are due now; new traces go before older traces."""

    def __init__(self, evaluator: LiveEvaluator) -> None:
        self.evaluator = evaluator
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
            return
        delay = evaluation_delay(evaluator.limits.attempts, previous.errors)
        if previous.status == "error" and delay is not None:
            self._hold(evaluation)
            # A score may be from the future, because the clock was set back; it delays no longer.
            age = max(0, self._wall() - previous.time_ns)
            self._queue_later(evaluation, now + max(0, round(delay * _NS) - age))

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
        attempts = self.queues[evaluation.evaluator].evaluator.limits.attempts
        if finished.is_postponed:
            wall = self._wall()
            is_budget = score.metadata[POSTPONED] == "budget"
            due_ns = now + (next_day_ns(wall) - wall if is_budget else _RETRY_HANGING * _NS)
        elif score.status == "error" and (delay := evaluation_delay(attempts, errors)) is not None:
            due_ns = now + round(delay * _NS)
        else:
            return
        retry = replace(
            evaluation, errors=errors, has_score=True, is_postponed=finished.is_postponed
        )
        self._pending[retry.key] = retry
        self._queue_later(retry, due_ns)
