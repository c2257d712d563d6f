"""Score whole runs: the last step of `decide`, and the only one where runs are read anyway.

Judges wait for language models, so threads judge several runs at once. All other evaluators are
called directly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from ..base.runner import Runner
from ..model import Score, Trajectory
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
        # A separate limit for each judge: a slow judge takes no calls from another judge.
        self._runners: dict[str, Runner[str, Score]] = {
            evaluator.scorer.name: Runner(evaluator.concurrency)
            for evaluator in evaluators
            if evaluator.concurrency > 1
        }

    @property
    def pending(self) -> int:
        """The number of evaluations that run in threads, or wait for one."""
        return sum(runner.pending for runner in self._runners.values())

    def wants(self, evaluator: PreparedEvaluator, run: Trajectory) -> bool:
        """Whether an evaluator scores a run: it is selected, and the sample contains it."""
        return evaluator.scorer.wants(run, self._salt)

    def score(self, runs: Iterable[Trajectory]) -> Iterator[Score]:
        """Yield the scores of runs in their order; judges' scores as they finish."""
        for run in runs:
            for evaluator in self._evaluators:
                if self.wants(evaluator, run):
                    yield from self.evaluate(evaluator, run)
        yield from self.rest()

    def evaluate(self, evaluator: PreparedEvaluator, run: Trajectory) -> Iterator[Score]:
        """Yield the score of a run, or, if it is evaluated in a thread, finished scores."""
        runner = self._runners.get(evaluator.scorer.name)
        if runner is None:
            yield self._score(evaluator, run)
            return
        for outcome in runner.completed(max_pending=runner.concurrency - 1):
            yield outcome.result()
        runner.submit(partial(self._score, evaluator, run), run.id)

    def rest(self) -> Iterator[Score]:
        """Yield the scores of the evaluations that still run in threads."""
        for runner in self._runners.values():
            for outcome in runner.completed(max_pending=0):
                yield outcome.result()

    def stop(self) -> None:
        """Drop waiting evaluations, and let the threads end; the evaluators stay open."""
        for runner in self._runners.values():
            runner.close()

    def close(self) -> None:
        """Stop, and close the evaluators that are not still in use."""
        self.stop()
        for evaluator in self._evaluators:
            used_by = self._runners.get(evaluator.scorer.name)
            if used_by is None or not used_by.pending:
                evaluator.close()

    def _score(self, evaluator: PreparedEvaluator, run: Trajectory) -> Score:
        return evaluator.score(run, self._clock())
