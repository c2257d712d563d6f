"""The records of live scoring: evaluations that are scheduled or finished, and their scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..model import EvaluationResult, Score, Trajectory
from ..scoring import EventRun

__all__ = ["POSTPONED", "Evaluation", "EvaluationKey", "FinishedEvaluation", "WrittenScores"]

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
