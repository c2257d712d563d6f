"""Run one evaluator of live scoring on the trajectories that are due for it."""

from __future__ import annotations

from collections.abc import Callable

from ..base.runner import DailyBudget, Outcome, RateLimiter, Runner, run_inline
from ..model import EvaluationResult, Score, Trajectory
from .evaluations import POSTPONED, Evaluation, FinishedEvaluation
from .evaluator_rules import LiveEvaluator

__all__ = ["EvaluatorRunner"]

# Evaluations that a fast evaluator gets in one tick: less than a second of work.
_MAX_INLINE = 400
# Evaluations that are submitted for each concurrent call, so that no thread has to wait.
_JOBS_PER_CALL = 8


# The key of an evaluation in the `Runner`, which returns it with the outcome.
_JobKey = tuple[Evaluation, Trajectory]


class EvaluatorRunner:
    """Runs an evaluator: a slow one in threads and within its limits, a fast one at once.

    All methods are called by the scoring thread, and none of them blocks on a slow evaluator.

    Args:
        evaluator: The evaluator.
        spent_on: Returns its cost on a day, and the cost of one call (US dollars).
        wall: The time of day (ns).
    """

    def __init__(
        self,
        evaluator: LiveEvaluator,
        spent_on: Callable[[str], tuple[float, float]],
        wall: Callable[[], int],
    ) -> None:
        self._evaluator, self._wall = evaluator, wall
        limits = evaluator.limits
        self._budget = DailyBudget(limits.max_cost_per_day, spent_on)
        self._runner: Runner[_JobKey, Score] | None = None
        self._outcomes: list[Outcome[_JobKey, Score]] = []
        if evaluator.is_slow:
            self._runner = Runner(
                limits.concurrency,
                timeout=evaluator.timeout,
                rate=RateLimiter(limits.max_per_minute),
                budget=self._budget,
                cost_of=_known_cost,
                name=f"oteval {evaluator.scorer.name}",
            )
        self.start_day()

    @property
    def is_inline(self) -> bool:
        """Whether `submit` runs the evaluator in the caller's thread."""
        return self._runner is None

    @property
    def capacity(self) -> int:
        """How many evaluations may be submitted now."""
        if self._runner is None:
            return _MAX_INLINE
        return max(0, _JOBS_PER_CALL * self._runner.concurrency - self._runner.pending)

    @property
    def pending(self) -> int:
        """How many evaluations were submitted and not collected."""
        return len(self._outcomes) if self._runner is None else self._runner.pending

    def start_day(self) -> None:
        """Start the day's budget when a new day (UTC) has begun."""
        self._budget.start_day(self._wall())

    def submit(self, evaluation: Evaluation, trajectory: Trajectory) -> None:
        """Start an evaluation."""
        key = (evaluation, trajectory)

        def job() -> Score:
            return self._evaluator.prepared.score(trajectory, self._wall())

        if self._runner is None:
            self._outcomes.append(run_inline(job, key))
        else:
            self._runner.submit(job, key, expected_cost=lambda: self._expected_cost(trajectory))

    def collect(self) -> list[FinishedEvaluation]:
        """Remove and return the evaluations that have finished."""
        if self._runner is not None:
            return [self._finish(outcome) for outcome in self._runner.completed()]
        outcomes, self._outcomes = self._outcomes, []
        return [self._finish(outcome) for outcome in outcomes]

    def close(self) -> None:
        """Drop queued evaluations, and close the evaluator unless it is still running."""
        is_busy = self._runner is not None and self._runner.pending > 0
        if self._runner is not None:
            self._runner.close()
        if not is_busy:
            self._evaluator.prepared.close()

    def _expected_cost(self, trajectory: Trajectory) -> float:
        """The least that an evaluation will cost (US dollars); 0 when it is unknown."""
        return self._evaluator.scorer.evaluator.expected_cost(trajectory.own_messages) or 0.0

    def _finish(self, outcome: Outcome[_JobKey, Score]) -> FinishedEvaluation:
        evaluation, trajectory = outcome.key
        score = outcome.value
        if score is None:
            score = self._score_without_verdict(trajectory, outcome)
        return FinishedEvaluation(evaluation, trajectory, score, score.cost or 0.0, outcome.seconds)

    def _score_without_verdict(
        self, trajectory: Trajectory, outcome: Outcome[_JobKey, Score]
    ) -> Score:
        """The score of an evaluation that was postponed, timed out or failed."""
        is_postponed = outcome.status == "postponed"
        error = outcome.error
        result = EvaluationResult(
            status="not_evaluated" if is_postponed else "error",
            comment=outcome.reason if is_postponed else f"{type(error).__name__}: {error}",
            metadata={POSTPONED: outcome.postponed_by} if is_postponed else {},
        )
        return self._evaluator.scorer.score_of(trajectory, result, self._wall())


def _known_cost(score: Score) -> float | None:
    """The cost of a score; None when it does not reveal the cost of a call."""
    cost = score.cost or 0.0
    is_informative = score.status == "ok" and not score.metadata.get("cached")
    return cost if cost or is_informative else None
