"""Compare experiments by asking evaluators which run of an example is better."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...base.errors import ConfigError, NotFound, NothingEvaluated
from ...base.sync import blocking_form
from ...model import Experiment, Run, Vote
from ...store import Store
from .experiment_store import StoreLike, open_store, start_experiment
from .outputs import json_form
from .paired_examples import paired_rows, with_common_examples
from .pairwise import ComparedRuns, ComparisonRun, Order, pairwise_evaluators_of, questions_of
from .results import ExperimentResults, load_experiment
from .run_options import TIMEOUT, OnError, OnProgress, RunOptions, refuse_client
from .votes import Pair, Standing, pairs_of, standings

__all__ = [
    "ComparativeResults",
    "aevaluate_comparative",
    "evaluate_comparative",
    "is_experiments",
]


@dataclass(frozen=True)
class ComparativeResults:
    """The results of a comparison.

    Attributes:
        experiment: The comparison's description.
        names: The experiments that were compared.
        items: The runs that were compared.
        votes: The answers.
        unpaired: How many runs were left out, because they failed, or because another experiment
            has no run of their example.
        seed: The random seed for the ranking's intervals.
    """

    experiment: Experiment
    names: tuple[str, ...]
    items: tuple[ComparedRuns, ...]
    votes: tuple[Vote, ...]
    unpaired: int = 0
    seed: int = 0

    @property
    def name(self) -> str:
        """The comparison's name."""
        return self.experiment.name

    @property
    def errors(self) -> int:
        """How many questions have no answer."""
        return sum(vote.status != "ok" for vote in self.votes)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the rows."""
        return iter(self.to_dicts())

    def __len__(self) -> int:
        """How many examples were compared."""
        return len(self.items)

    def pairs(self) -> list[Pair]:
        """Which experiment is preferred, for every two of them and every evaluator."""
        return pairs_of(self.names, {item.key: item.runs for item in self.items}, self.votes)

    def ranking(self) -> list[Standing]:
        """The Bradley-Terry ranking of three or more experiments; [] for two."""
        if len(self.names) < 3:
            return []
        runs = {item.key: item.runs for item in self.items}
        return standings(self.names, runs, self.votes, self.seed)

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each example and repetition, with all its answers."""
        votes: dict[tuple[str, int], list[Vote]] = {}
        for vote in self.votes:
            votes.setdefault((vote.example_id, vote.repetition), []).append(vote)
        return [self._row(item, votes.get(item.key, [])) for item in self.items]

    def _row(self, item: ComparedRuns, votes: Sequence[Vote]) -> dict[str, Any]:
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
                    "shown": [names.get(run_id, run_id) for run_id in vote.shown],
                    "scores": list(vote.scores),
                    "comment": vote.comment or None,
                    "metadata": dict(vote.metadata),
                }
                for vote in votes
            ],
        }

    def summary(self) -> dict[str, Any]:
        """The figures as JSON values."""
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
    """Whether a target is a list of experiments: their results, descriptions or names."""
    return (
        isinstance(target, (list, tuple))
        and bool(target)
        and all(isinstance(item, (str, ExperimentResults, Experiment)) for item in target)
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

    `evaluate_comparative` is the blocking form, `aevaluate_comparative` the asynchronous one.

    Args:
        experiments: Their results, or their names in the store.
        evaluators: Functions that may name ``inputs``, ``outputs`` (a list), ``reference_outputs``,
            ``runs`` and ``example``. They return ``{key, scores, comment}``, or only the list of
            scores. The scores are by run id or in the order of the runs. A function with the
            attribute ``only_pairs`` is called for every two of several runs.
        order: ``both`` asks twice, the second time in reverse; contradictory answers are a tie.
            ``random`` asks once, in a random order for each example; ``fixed`` asks once, in the
            given order.
        randomize_order: The same as ``order="random"``.
        seed: The random seed for orders and intervals.
        max_concurrency: How many questions at once; None or 0 means one.
        experiment_prefix: The beginning of the comparison's name.
        description: A description for people.
        metadata: Anything else to store with the comparison.
        load_nested: Whether ``run.trajectory`` of a run contains its stored trajectory, with all
            its turns.
        name: The comparison's whole name, instead of a prefix.
        resume: Resume the comparison of that name or prefix. Questions with an answer are not
            asked again.
        timeout: Seconds that an evaluator may take; None for no limit.
        store: A store, its path, or None for ``OTEVAL_DB`` or ``oteval.duckdb``.
        on_progress: Called with a `Progress` after each question.
        on_error: ``record`` stores a failure and continues; ``raise`` stops at the first failure
            and keeps all finished records.
        client: Only None, for callers of LangSmith's function of this name.

    Raises:
        ConfigError: An argument is wrong.
        NotFound: The store has no such experiment.
        NothingEvaluated: The experiments have no example in common.
    """
    refuse_client(client)
    if order not in ("both", "random", "fixed"):
        raise ConfigError(f"order is {order!r}; it must be 'both', 'random' or 'fixed'")
    known_evaluators = pairwise_evaluators_of(evaluators)
    options = RunOptions(
        concurrency=max_concurrency, timeout=timeout, on_error=on_error, on_progress=on_progress
    )
    chosen: Order = "random" if randomize_order else order
    with open_store(store) as opened:
        compared = with_common_examples([_load(experiment, opened) for experiment in experiments])
        items = _items(compared)
        if load_nested:
            items = [_with_trajectories(item, opened) for item in items]
        about = {**(metadata or {}), "order": order}
        described = _comparison(compared, len(items), name, description, about)
        comparison = start_experiment(
            opened,
            described,
            prefix=experiment_prefix or "-vs-".join(described.compared),
            resume=resume,
        )
        questions = [
            question
            for item in items
            for question in questions_of(item, known_evaluators, chosen, seed)
        ]
        votes = await ComparisonRun(opened, comparison, options).ask(questions)
    return ComparativeResults(
        experiment=comparison,
        names=described.compared,
        items=tuple(items),
        votes=tuple(votes),
        unpaired=sum(map(len, compared)) - len(items) * len(compared),
        seed=seed,
    )


evaluate_comparative = blocking_form(aevaluate_comparative, "evaluate_comparative")


def _comparison(
    compared: Sequence[ExperimentResults],
    count: int,
    name: str | None,
    description: str | None,
    metadata: Mapping[str, Any],
) -> Experiment:
    """The description of a comparison of this many examples."""
    first = compared[0].experiment
    return Experiment(
        id=secrets.token_hex(8),
        name=name or "",
        description=description or "",
        metadata=json_form(metadata),
        dataset=first.dataset,
        dataset_version=first.dataset_version,
        expected=count,
        kind="comparison",
        compared=tuple(experiment_results.name for experiment_results in compared),
        created_ns=time.time_ns(),
    )


def _load(experiment: str | ExperimentResults | Experiment, store: Store) -> ExperimentResults:
    if isinstance(experiment, ExperimentResults):
        return experiment
    return load_experiment(experiment if isinstance(experiment, str) else experiment.name, store)


def _items(compared: Sequence[ExperimentResults]) -> list[ComparedRuns]:
    """The runs of the examples that every experiment ran without an error.

    Raises:
        ConfigError: There are fewer than two different experiments.
        NothingEvaluated: No example ran in all of them.
    """
    names = [experiment_results.name for experiment_results in compared]
    if len(names) < 2 or len(set(names)) < len(names):
        raise ConfigError(f"pass two or more different experiments to compare, not {names}")
    common_runs = [
        ComparedRuns(rows[0].example, repetition, tuple(row.run for row in rows))
        for (_, repetition), rows in paired_rows(compared).items()
        if not any(row.run.error for row in rows)
    ]
    if not common_runs:
        raise NothingEvaluated(
            f"{' and '.join(names)} have no example in common that ran without an error"
        )
    return common_runs


def _with_trajectories(item: ComparedRuns, store: Store) -> ComparedRuns:
    def load(run: Run) -> Run:
        if not run.trajectory_id:
            return run
        try:
            return replace(run, trajectory=store.trajectories.get(run.trajectory_id))
        except NotFound:
            return run

    return replace(item, runs=tuple(map(load, item.runs)))
