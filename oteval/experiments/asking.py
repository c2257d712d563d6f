"""Asks pairwise evaluators about the runs of an example, in the orders that are wanted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

from ..errors import ConfigError, OtevalError
from ..model import Example, Experiment, Run, Vote
from ..store import Store
from .calling import call, reason
from .conduct import Conduct
from .evaluators import bind, name_of, version_for
from .progress import Progress
from .storing import Writer
from .votes import Answer, answer_of
from .workers import work_through

__all__ = ["Asker", "Asking", "Item", "Order", "Question", "askers_of", "questions_of"]

Order = Literal["both", "random", "fixed"]
_OFFERED = ("inputs", "outputs", "reference_outputs")
_NAMES = (*_OFFERED, "runs", "example")


@dataclass(frozen=True)
class Item:
    """An example's runs, one of each experiment.

    Attributes:
        example: The example.
        repetition: Which repetition, from 0.
        runs: The runs, in the order of the experiments.
    """

    example: Example
    repetition: int
    runs: tuple[Run, ...]

    @property
    def place(self) -> tuple[str, int]:
        """Its example and repetition."""
        return self.example.id, self.repetition


@dataclass(frozen=True)
class Asker:
    """A pairwise evaluator."""

    name: str
    version: str
    function: Callable[..., Any]
    names: tuple[str, ...]
    positional: bool
    only_pairs: bool

    async def answer(self, item: Item, shown: Sequence[Run], timeout: float | None) -> Answer:
        """Return what it says of some runs."""
        offered = {
            "inputs": item.example.inputs,
            "outputs": [run.outputs for run in shown],
            "reference_outputs": item.example.reference_outputs,
            "runs": list(shown),
            "example": item.example,
        }
        if self.positional:
            value = await call(self.function, (list(shown), item.example), None, timeout)
        else:
            keywords = {name: offered[name] for name in self.names}
            value = await call(self.function, (), keywords, timeout)
        return answer_of(value, shown, self.name)


def askers_of(evaluators: Iterable[Callable[..., Any]]) -> list[Asker]:
    """Return functions as pairwise evaluators.

    Raises:
        ConfigError: There are none, or one wants what there is not.
    """
    found: list[Asker] = []
    for function in evaluators:
        name = name_of(function, {one.name for one in found})
        names, positional = bind(function, _NAMES, _OFFERED, name)
        only_pairs = bool(getattr(function, "only_pairs", False))
        version = version_for(function)
        found.append(Asker(name, version, function, names, positional, only_pairs))
    if not found:
        raise ConfigError("evaluators are missing: someone must say which run is better")
    return found


@dataclass(frozen=True)
class Question:
    """One question: an evaluator, and runs in the order in which it is shown them."""

    item: Item
    asker: Asker
    shown: tuple[Run, ...]


def questions_of(
    item: Item, askers: Sequence[Asker], order: Order, seed: int
) -> Iterator[Question]:
    """Yield what is to be asked about an item."""
    for asker in askers:
        groups = combinations(item.runs, 2) if asker.only_pairs else [item.runs]
        for group in groups:
            for shown in _orders(group, order, f"{seed}:{asker.name}:{item.place}"):
                yield Question(item, asker, shown)


def _orders(runs: Sequence[Run], order: Order, seed: str) -> Iterator[tuple[Run, ...]]:
    if order == "random":
        shuffled = list(runs)
        random.Random(seed).shuffle(shuffled)  # noqa: S311
        yield tuple(shuffled)
        return
    yield tuple(runs)
    if order == "both":
        yield tuple(reversed(runs))


class Asking:
    """A comparison while it goes on."""

    def __init__(self, store: Store, comparison: Experiment, conduct: Conduct) -> None:
        self._comparison, self._conduct = comparison, conduct
        self._writer = Writer(store, comparison.id)
        self._progress = Progress()
        self._votes: dict[tuple[str, str, int, tuple[str, ...]], Vote] = {
            (vote.evaluator, vote.example_id, vote.repetition, vote.shown): vote
            for vote in store.experiments.votes(comparison.id)
        }

    async def ask(self, questions: Sequence[Question], concurrency: int) -> list[Vote]:
        """Return the answers, those of an earlier attempt among them."""
        self._progress.total = len(questions)
        async with self._writer.writing():
            await work_through(questions, self._one, concurrency)
        return [self._votes[_place(question)] for question in questions]

    async def _one(self, question: Question) -> None:
        place = _place(question)
        known = self._votes.get(place)
        if known and known.status == "ok" and known.version == question.asker.version:
            self._progress.resumed += 1
        else:
            vote = await self._vote(question)
            self._votes[place] = vote
            self._writer.add(votes=[vote])
            self._progress.note(vote.metadata)
            self._progress.errors += vote.status != "ok"
            if vote.status != "ok" and self._conduct.stops:
                raise OtevalError(f"evaluator {vote.evaluator!r}: {vote.comment}")
        self._progress.done += 1
        self._conduct.tell(self._progress)

    async def _vote(self, question: Question) -> Vote:
        asker, item = question.asker, question.item
        blank = Vote(
            *(self._comparison.id, asker.name, asker.version, asker.name, *item.place),
            shown=tuple(run.id for run in question.shown),
        )
        start = time.perf_counter_ns()
        try:
            answer = await asker.answer(item, question.shown, self._conduct.timeout)
        except Exception as error:
            vote = replace(blank, status="error", comment=reason(error))
        else:
            vote = replace(
                blank,
                key=answer.key,
                scores=answer.scores,
                comment=answer.comment,
                metadata=answer.metadata,
            )
        latency = time.perf_counter_ns() - start
        return replace(vote, latency_ns=latency, time_ns=time.time_ns())


def _place(question: Question) -> tuple[str, str, int, tuple[str, ...]]:
    shown = tuple(run.id for run in question.shown)
    return (question.asker.name, *question.item.place, shown)
