"""Ask pairwise evaluators which run of an example is better, in every requested order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, Literal

from ...base.errors import ConfigError, JudgeError, OtevalError
from ...base.runner import describe_error
from ...base.runner.async_runner import AsyncRunner, run_all
from ...evaluators import PairwiseJudge, missing_content
from ...model import Example, Experiment, Run, Vote
from ...store import Store
from .experiment_store import ExperimentWriter
from .run_evaluators import Arguments, arguments_of, name_of, version_for
from .run_options import Progress, RunOptions
from .votes import PairwiseAnswer, answer_of

__all__ = [
    "ComparedRuns",
    "ComparisonRun",
    "Order",
    "PairwiseEvaluator",
    "Question",
    "pairwise_evaluators_of",
    "questions_of",
]

Order = Literal["both", "random", "fixed"]
_IMPLICIT = ("inputs", "outputs", "reference_outputs")
_NAMES = (*_IMPLICIT, "runs", "example")


@dataclass(frozen=True)
class ComparedRuns:
    """The runs of one example, one run from each experiment.

    Attributes:
        example: The example.
        repetition: Which repetition, from 0.
        runs: The runs, in the order of the experiments.
    """

    example: Example
    repetition: int
    runs: tuple[Run, ...]

    @property
    def key(self) -> tuple[str, int]:
        """The example's id and the repetition."""
        return self.example.id, self.repetition


@dataclass(frozen=True)
class PairwiseEvaluator:
    """A function that compares runs.

    Attributes:
        name: Its name.
        version: A hash of everything that its answers depend on.
        function: The function.
        arguments: The arguments that it takes.
        only_pairs: Whether it is called for every two of several runs.
    """

    name: str
    version: str
    function: Callable[..., Any]
    arguments: Arguments
    only_pairs: bool

    async def compare(
        self, compared: ComparedRuns, runs: Sequence[Run], runner: AsyncRunner[str, Any]
    ) -> PairwiseAnswer:
        """The answer about some runs.

        Raises:
            Exception: The function failed, took too long, or did not return an answer.
        """
        if isinstance(self.function, PairwiseJudge):
            _require_content(runs)
        example = compared.example
        available = {
            "inputs": example.inputs,
            "outputs": [run.outputs for run in runs],
            "reference_outputs": example.reference_outputs,
            "runs": list(runs),
            "example": example,
        }
        call = self.arguments.bind(self.function, available, (list(runs), example))
        outcome = await runner.run(call, self.name)
        return answer_of(outcome.result(), runs, self.name)


def _require_content(runs: Sequence[Run]) -> None:
    """Refuse runs with missing content, because a judge would see only a part.

    Raises:
        JudgeError: Content of a run is missing.
    """
    for run in runs:
        if reason := missing_content(run.trajectory.gaps if run.trajectory else ()):
            raise JudgeError(f"run {run.id}: {reason}")


def pairwise_evaluators_of(functions: Iterable[Callable[..., Any]]) -> list[PairwiseEvaluator]:
    """Return functions as pairwise evaluators.

    Raises:
        ConfigError: No function is given, or one requires an unknown argument.
    """
    evaluators: list[PairwiseEvaluator] = []
    for function in functions:
        name = name_of(function, {evaluator.name for evaluator in evaluators})
        evaluators.append(
            PairwiseEvaluator(
                name=name,
                version=version_for(function),
                function=function,
                arguments=arguments_of(function, _NAMES, _IMPLICIT, name),
                only_pairs=bool(getattr(function, "only_pairs", False)),
            )
        )
    if not evaluators:
        raise ConfigError("evaluators are missing; pass functions that say which run is better")
    return evaluators


@dataclass(frozen=True)
class Question:
    """A question to an evaluator about runs, in the order in which it sees them."""

    compared: ComparedRuns
    evaluator: PairwiseEvaluator
    shown: tuple[Run, ...]

    @property
    def key(self) -> tuple[str, str, int, tuple[str, ...]]:
        """The evaluator's name, the example's id, the repetition, and the ids of the runs."""
        return (self.evaluator.name, *self.compared.key, tuple(run.id for run in self.shown))


def questions_of(
    compared: ComparedRuns, evaluators: Sequence[PairwiseEvaluator], order: Order, seed: int
) -> Iterator[Question]:
    """Yield the questions about the runs of an example."""
    for evaluator in evaluators:
        groups = combinations(compared.runs, 2) if evaluator.only_pairs else [compared.runs]
        for group in groups:
            for ordered in _orders(group, order, f"{seed}:{evaluator.name}:{compared.key}"):
                yield Question(compared, evaluator, ordered)


def _orders(runs: Sequence[Run], order: Order, seed: str) -> Iterator[tuple[Run, ...]]:
    if order == "random":
        shuffled = list(runs)
        random.Random(seed).shuffle(shuffled)  # noqa: S311
        yield tuple(shuffled)
        return
    yield tuple(runs)
    if order == "both":
        yield tuple(reversed(runs))


class ComparisonRun:
    """A running comparison."""

    def __init__(self, store: Store, comparison: Experiment, options: RunOptions) -> None:
        self._comparison, self._options = comparison, options
        self._runner = AsyncRunner[str, Any](timeout=options.timeout)
        self._writer = ExperimentWriter(store, comparison.id)
        self._progress = Progress()
        self._votes: dict[tuple[str, str, int, tuple[str, ...]], Vote] = {
            (vote.evaluator, vote.example_id, vote.repetition, vote.shown): vote
            for vote in store.experiments.votes(comparison.id)
        }

    async def ask(self, questions: Sequence[Question]) -> list[Vote]:
        """The answers, including answers of an earlier attempt."""
        self._progress.total = len(questions)
        async with self._writer.flushing():
            jobs = (partial(self._answer, question) for question in questions)
            await run_all(jobs, self._options.concurrency or 1)
        return [self._votes[question.key] for question in questions]

    async def _answer(self, question: Question) -> None:
        previous = self._votes.get(question.key)
        if previous and previous.status == "ok" and previous.version == question.evaluator.version:
            self._progress.resumed += 1
        else:
            vote = await self._vote(question)
            self._votes[question.key] = vote
            self._writer.add(votes=[vote])
            self._progress.add_cost(vote.metadata)
            self._progress.errors += vote.status != "ok"
            if vote.status != "ok" and self._options.raises:
                raise OtevalError(f"evaluator {vote.evaluator!r}: {vote.comment}")
        self._progress.done += 1
        self._options.report(self._progress)

    async def _vote(self, question: Question) -> Vote:
        evaluator, compared = question.evaluator, question.compared
        vote = Vote(
            experiment_id=self._comparison.id,
            evaluator=evaluator.name,
            version=evaluator.version,
            key=evaluator.name,
            example_id=compared.example.id,
            repetition=compared.repetition,
            shown=tuple(run.id for run in question.shown),
        )
        start = time.perf_counter_ns()
        try:
            answer = await evaluator.compare(compared, question.shown, self._runner)
        except Exception as error:
            vote = replace(vote, status="error", comment=describe_error(error))
        else:
            vote = replace(
                vote,
                key=answer.key,
                scores=answer.scores,
                comment=answer.comment,
                metadata=answer.metadata,
            )
        latency = time.perf_counter_ns() - start
        return replace(vote, latency_ns=latency, time_ns=time.time_ns())
