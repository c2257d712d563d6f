"""Compares experiments by asking: which of the runs of an example is better?"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import ConfigError, NotFound, NothingEvaluated
from ..model import Experiment, Run, Vote
from ..store import Store
from .asking import Asking, Item, Order, askers_of, questions_of
from .conduct import TIMEOUT, Conduct, OnError, OnProgress, refuse_client
from .plain import plain
from .results import ExperimentResults, load_experiment
from .storing import StoreLike, begun, opened
from .votes import Pair, Standing, pairs_of, standings
from .workers import run_sync

__all__ = [
    "ComparativeResults",
    "aevaluate_comparative",
    "evaluate_comparative",
    "is_experiments",
]


@dataclass(frozen=True)
class ComparativeResults:
    """What a comparison came to.

    Attributes:
        experiment: Its description.
        names: The experiments that were compared.
        items: What was compared.
        votes: The answers.
        unpaired: Runs that failed, or have none of the same example beside them.
        seed: What the ranking's intervals are drawn with.
    """

    experiment: Experiment
    names: tuple[str, ...]
    items: tuple[Item, ...]
    votes: tuple[Vote, ...]
    unpaired: int = 0
    seed: int = 0

    @property
    def name(self) -> str:
        """The comparison's name."""
        return self.experiment.name

    @property
    def errors(self) -> int:
        """How many answers could not be had."""
        return sum(vote.status != "ok" for vote in self.votes)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the rows."""
        return iter(self.to_dicts())

    def __len__(self) -> int:
        """Return how many examples were compared."""
        return len(self.items)

    def pairs(self) -> list[Pair]:
        """Return who is preferred, for every two experiments and every evaluator."""
        return pairs_of(self.names, {item.place: item.runs for item in self.items}, self.votes)

    def ranking(self) -> list[Standing]:
        """Return the Bradley-Terry ranking of three or more experiments; of two there is none."""
        if len(self.names) < 3:
            return []
        runs = {item.place: item.runs for item in self.items}
        return standings(self.names, runs, self.votes, self.seed)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a row for each example and repetition, with all answers about it."""
        votes: dict[tuple[str, int], list[Vote]] = {}
        for vote in self.votes:
            votes.setdefault((vote.example_id, vote.repetition), []).append(vote)
        return [self._row(item, votes.get(item.place, [])) for item in self.items]

    def _row(self, item: Item, votes: Sequence[Vote]) -> dict[str, Any]:
        names = {run.id: name for run, name in zip(item.runs, self.names, strict=True)}
        return {
            "example_id": item.example.id,
            "repetition": item.repetition,
            "inputs": item.example.inputs,
            "reference_outputs": item.example.reference_outputs,
            "runs": {names[run.id]: run.id for run in item.runs},
            "outputs": {names[run.id]: run.outputs for run in item.runs},
            "votes": [
                {
                    "key": vote.key,
                    "evaluator": vote.evaluator,
                    "status": vote.status,
                    "shown": [names.get(each, each) for each in vote.shown],
                    "scores": list(vote.scores),
                    "comment": vote.comment or None,
                    "metadata": dict(vote.metadata),
                }
                for vote in votes
            ],
        }

    def summary(self) -> dict[str, Any]:
        """Return the figures as JSON has them."""
        return {
            "comparison": self.name,
            "experiments": list(self.names),
            "items": len(self.items),
            "unpaired": self.unpaired,
            "errors": self.errors,
            "pairs": [pair.as_dict() for pair in self.pairs()],
            "ranking": [standing.as_dict() for standing in self.ranking()],
        }


def is_experiments(target: Any) -> bool:
    """Return whether a target is a list of experiments: their results, descriptions or names."""
    return (
        isinstance(target, (list, tuple))
        and bool(target)
        and all(isinstance(each, (str, ExperimentResults, Experiment)) for each in target)
    )


def evaluate_comparative(
    experiments: Sequence[str | ExperimentResults | Experiment],
    /,
    evaluators: Iterable[Callable[..., Any]],
    *,
    order: Order = "both",
    randomize_order: bool = False,
    seed: int = 0,
    max_concurrency: int | None = 5,
    experiment_prefix: str | None = None,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    load_nested: bool = False,
    name: str | None = None,
    resume: bool = False,
    timeout: float | None = TIMEOUT,
    store: StoreLike = None,
    on_progress: OnProgress | None = None,
    on_error: OnError = "record",
    client: None = None,
) -> ComparativeResults:
    """Compare experiments by asking; `aevaluate_comparative` says what it takes."""
    return run_sync(
        lambda: aevaluate_comparative(
            experiments,
            evaluators,
            order=order,
            randomize_order=randomize_order,
            seed=seed,
            max_concurrency=max_concurrency,
            experiment_prefix=experiment_prefix,
            description=description,
            metadata=metadata,
            load_nested=load_nested,
            name=name,
            resume=resume,
            timeout=timeout,
            store=store,
            on_progress=on_progress,
            on_error=on_error,
            client=client,
        )
    )


async def aevaluate_comparative(
    experiments: Sequence[str | ExperimentResults | Experiment],
    /,
    evaluators: Iterable[Callable[..., Any]],
    *,
    order: Order = "both",
    randomize_order: bool = False,
    seed: int = 0,
    max_concurrency: int | None = 5,
    experiment_prefix: str | None = None,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    load_nested: bool = False,
    name: str | None = None,
    resume: bool = False,
    timeout: float | None = TIMEOUT,
    store: StoreLike = None,
    on_progress: OnProgress | None = None,
    on_error: OnError = "record",
    client: None = None,
) -> ComparativeResults:
    """Compare two or more experiments by asking evaluators which run of an example is better.

    Args:
        experiments: Their results, or their names in the store.
        evaluators: Functions that may name ``inputs``, ``outputs`` (a list), ``reference_outputs``,
            ``runs`` and ``example``, and return ``{key, scores, comment}`` with the scores by run
            id or in the order of the runs they were shown, or only such a list. One with the
            attribute ``only_pairs`` is asked about every two of several runs.
        order: ``both`` asks twice, the second time in reverse; answers that disagree are a tie.
            ``random`` asks once, in an order drawn for each example; ``fixed`` in the order given.
        randomize_order: The same as ``order="random"``.
        seed: What orders and intervals are drawn with.
        max_concurrency: How many questions at a time; None or 0 means one.
        experiment_prefix: What the comparison's name is made of.
        description: For people.
        metadata: Whatever else shall be kept with it.
        load_nested: Give runs of stored trajectories these, with all their turns, as
            ``run.trajectory``.
        name: The comparison's whole name, in place of a prefix.
        resume: Go on with the comparison of that name or prefix: what was answered is not asked.
        timeout: After how many seconds to give up on an evaluator; None waits.
        store: The store, its path, or None for ``OTEVAL_DB`` or ``oteval.duckdb``.
        on_progress: Called after each question.
        on_error: ``record`` goes on; ``raise`` stops at the first failure, what is done is kept.
        client: Only None, which callers of LangSmith's function of this name pass along.

    Raises:
        ConfigError: An argument does not fit.
        NotFound: The store has no such experiment.
        NothingEvaluated: The experiments have no example in common.
    """
    refuse_client(client)
    if order not in ("both", "random", "fixed"):
        raise ConfigError(f"order is {order!r}; it must be 'both', 'random' or 'fixed'")
    askers = askers_of(evaluators)
    about = {**(metadata or {}), "order": order}
    conduct = Conduct(timeout=timeout, on_error=on_error, on_progress=on_progress)
    chosen: Order = "random" if randomize_order else order
    with opened(store) as kept:
        known = [_loaded(each, kept) for each in experiments]
        items = _items(known)
        if load_nested:
            items = [_with_trajectories(item, kept) for item in items]
        described = _described(known, len(items), name, description, about)
        prefix = experiment_prefix or "-vs-".join(described.compared)
        comparison = begun(kept, described, prefix, resume)
        questions = [one for item in items for one in questions_of(item, askers, chosen, seed)]
        votes = await Asking(kept, comparison, conduct).ask(questions, max_concurrency or 1)
    unpaired = sum(len(each) for each in known) - len(items) * len(known)
    return ComparativeResults(
        comparison, described.compared, tuple(items), tuple(votes), unpaired, seed
    )


def _described(
    known: Sequence[ExperimentResults],
    count: int,
    name: str | None,
    description: str | None,
    metadata: Mapping[str, Any],
) -> Experiment:
    """Return the description of a comparison of so many examples."""
    first = known[0].experiment
    return Experiment(
        secrets.token_hex(8),
        name or "",
        description=description or "",
        metadata=plain(metadata),
        dataset=first.dataset,
        dataset_version=first.dataset_version,
        expected=count,
        kind="comparison",
        compared=tuple(each.name for each in known),
        created_ns=time.time_ns(),
    )


def _loaded(given: str | ExperimentResults | Experiment, store: Store) -> ExperimentResults:
    if isinstance(given, ExperimentResults):
        return given
    return load_experiment(given if isinstance(given, str) else given.name, store)


def _items(known: Sequence[ExperimentResults]) -> list[Item]:
    """Return the examples that every experiment has a run of that did not fail.

    Raises:
        ConfigError: There are not several experiments.
        NothingEvaluated: There is no such example.
    """
    names = [each.name for each in known]
    if len(names) < 2 or len(set(names)) < len(names):
        raise ConfigError(f"two or more different experiments are compared, not {names}")
    runs = [
        {(row.example.id, row.run.repetition): row for row in each if not row.run.error}
        for each in known
    ]
    found = [
        Item(row.example, place[1], tuple(each[place].run for each in runs))
        for place, row in runs[0].items()
        if all(place in each for each in runs)
    ]
    if not found:
        raise NothingEvaluated(f"{' and '.join(names)} have no example in common that ran")
    return found


def _with_trajectories(item: Item, store: Store) -> Item:
    def filled(run: Run) -> Run:
        if not run.trajectory_id:
            return run
        try:
            return replace(run, trajectory=store.trajectories.get(run.trajectory_id))
        except NotFound:
            return run

    return replace(item, runs=tuple(map(filled, item.runs)))
