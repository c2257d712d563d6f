"""Score whole runs: the last step of `decide`, and the only one where runs are read anyway.

Judges wait for language models, so that they are asked about several runs at once on threads. All
other evaluators are called at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from ..model import Score, Trajectory
from ..runner import Runner
from .prepared import PreparedEvaluator

__all__ = ["RunScorer"]


class RunScorer:
    """Scores whole runs by the evaluators of a configuration.

    Args:
        evaluators: The evaluators.
        salt: The text that changes samples.
        clock: The time of the scores (ns).
    """

    def __init__(
        self,
        evaluators: Sequence[PreparedEvaluator],
        salt: str,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._evaluators, self._salt, self._clock = evaluators, salt, clock
        self._runner: Runner[str, Score] = Runner(
            sum(one.concurrency for one in evaluators if one.concurrency > 1)
        )

    @property
    def pending(self) -> int:
        """The number of evaluations that run in threads, or wait for one."""
        return self._runner.pending

    def wants(self, evaluator: PreparedEvaluator, run: Trajectory) -> bool:
        """Return whether an evaluator scores a run: it is selected, and the sample contains it."""
        return evaluator.scorer.wants(run, self._salt)

    def score(self, runs: Iterable[Trajectory]) -> Iterator[Score]:
        """Yield the scores of runs in their order; those of judges as they finish."""
        for run in runs:
            for evaluator in self._evaluators:
                if self.wants(evaluator, run):
                    yield from self.evaluate(evaluator, run)
        yield from self.rest()

    def evaluate(self, evaluator: PreparedEvaluator, run: Trajectory) -> Iterator[Score]:
        """Yield the score of a run, or, if it is evaluated in a thread, finished scores."""
        if evaluator.concurrency > 1:
            for outcome in self._runner.completed(max_pending=self._runner.concurrency - 1):
                yield outcome.result()
            self._runner.submit(partial(self._score, evaluator, run), run.id)
        else:
            yield self._score(evaluator, run)

    def rest(self) -> Iterator[Score]:
        """Yield the scores of the evaluations that still run in threads."""
        for outcome in self._runner.completed(max_pending=0):
            yield outcome.result()

    def close(self) -> None:
        """Drop waiting evaluations, and close the evaluators, unless one is still in use."""
        self._runner.close()
        for evaluator in () if self._runner.pending else self._evaluators:
            evaluator.close()

    def _score(self, evaluator: PreparedEvaluator, run: Trajectory) -> Score:
        return evaluator.score(run, self._clock())
