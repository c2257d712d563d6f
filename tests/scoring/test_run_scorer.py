"""Whole runs are scored by several evaluators, each within its own limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from oteval.evaluators import EvaluationContext, EvaluationResult
from oteval.evaluators.evaluator import Evaluator
from oteval.evaluators.scorer import Scorer
from oteval.model import Message, Trajectory
from oteval.model.selection import EVERYTHING
from oteval.scoring.prepared import PreparedEvaluator
from oteval.scoring.references import References
from oteval.scoring.run_scorer import RunScorer
from oteval.scoring.trace_scores import scored_runs

from ..make import run

RUNS = [run(number, Message("user", f"{number}")) for number in range(1, 9)]


@dataclass(frozen=True, kw_only=True)
class Threaded(Evaluator):
    """An evaluator that two threads may call at once."""

    type: ClassVar[str] = "threaded"

    function: Any

    @property
    def concurrency(self) -> int:
        """How many runs may be evaluated at once."""
        return 2

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Call the function."""
        self.function(context.messages)
        return EvaluationResult.of_verdict(passed=True)


def prepared(name: str, function: Callable[[Any], object]) -> PreparedEvaluator:
    """Return an evaluator that calls a function in threads."""
    return PreparedEvaluator(Scorer(name, "1", Threaded(function=function)), References())


def test_a_slow_evaluator_takes_no_threads_of_another():
    """While its calls hang, no more of them begin, although the other evaluator's calls end."""
    released, lock = threading.Event(), threading.Lock()
    running: list[object] = []
    most: list[int] = []
    done: list[object] = []

    def slow(messages: object) -> None:
        with lock:
            running.append(messages)
            most.append(len(running))
        released.wait()
        with lock:
            running.remove(messages)

    def fast(messages: object) -> None:
        done.append(messages)
        if len(done) == 2:
            released.set()

    scorer = RunScorer([prepared("slow", slow), prepared("fast", fast)], "")
    scores = list(scorer.score(RUNS))
    scorer.close()

    assert max(most) <= 2
    assert sorted((score.trajectory_id, score.evaluator) for score in scores) == sorted(
        (run.id, name) for run in RUNS for name in ("slow", "fast")
    )


def test_a_scored_batch_ends_its_threads_and_leaves_evaluators_open():
    """The caller closes its evaluators, which it may use for more batches."""
    threads: set[threading.Thread] = set()
    closed: list[Evaluator] = []

    class Closable(Threaded):
        def close(self) -> None:
            closed.append(self)

    function = Closable(function=lambda _: threads.add(threading.current_thread()))
    evaluator = PreparedEvaluator(Scorer("slow", "1", function), References())

    for _ in range(2):
        traces = scored_runs(RUNS, [evaluator], "", EVERYTHING, 1)
        assert len(traces.scores) == len(RUNS)

    for thread in threads:
        thread.join(5)
    assert [thread for thread in threads if thread.is_alive()] == []
    assert closed == []


def test_runs_come_from_a_generator_one_by_one():
    """No run is requested before the earlier runs have begun."""
    begun: list[str] = []

    def runs() -> Any:
        for number, trajectory in enumerate(RUNS):
            assert number - len(begun) <= 2
            yield trajectory

    def note(messages: Any) -> None:
        begun.append(messages[0].content)

    scorer = RunScorer([prepared("e", note)], "")
    trajectory_ids: list[Trajectory | str] = [score.trajectory_id for score in scorer.score(runs())]
    scorer.close()

    assert sorted(map(str, trajectory_ids)) == sorted(run.id for run in RUNS)
    assert scorer.pending == 0
