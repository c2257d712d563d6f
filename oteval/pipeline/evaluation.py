"""Score the trajectories of a store by a configuration, and check its gates."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

from ..config import Config, EvaluatorSettings, Gate, Limits
from ..errors import ConfigError, OtevalError
from ..evaluators.alignment import AlignedPair, align, first_divergence
from ..evaluators.evaluator import Evaluator
from ..evaluators.gates import GateResult, Tally, check_gate, worst_first
from ..evaluators.scorer import Scorer, version_of
from ..model import Score, Trajectory
from ..runner import Runner
from ..selection import EVERYTHING, Selection
from ..store import Store
from .references import References, read_json, references_of
from .resources import resources_of

__all__ = [
    "AlignedPair",
    "GateResult",
    "ScoreRun",
    "Tally",
    "align",
    "check_gates",
    "first_divergence",
    "prepare",
    "score",
    "score_trajectories",
    "worst_first",
]

_PAGE = 1000
_GIVEN_PAGE = 200
_SECONDS = 5.0

Given = dict[tuple[str, str, str], Score]
_ScoreRunner = Runner[str, Score]


@dataclass(frozen=True)
class PreparedEvaluator:
    """A scorer and where its references come from."""

    scorer: Scorer
    references: References

    @property
    def evaluator(self) -> Evaluator:
        """The evaluator."""
        return self.scorer.evaluator

    @property
    def concurrency(self) -> int:
        """How many trajectories may be evaluated at once."""
        return self.evaluator.concurrency

    @property
    def is_asked(self) -> bool:
        """Whether it asks language models, whose verdicts cost money and are reused."""
        return self.evaluator.asks_models

    def close(self) -> None:
        """Close the connections that the evaluator opened."""
        self.evaluator.close()


def prepare(
    config: Config, store: Store, base: Path, *, again: bool = False, is_budgeted: bool = True
) -> list[PreparedEvaluator]:
    """Return the scorers of a configuration, their references read.

    Args:
        config: The configuration.
        store: Where references by name or trajectory are.
        base: The folder that paths of the configuration are relative to.
        again: Whether to ask language models again, ignoring cached answers.
        is_budgeted: Whether evaluators keep their own budgets; a server keeps them itself.

    Raises:
        ConfigError: A reference or function cannot be loaded, or an option is wrong.
    """
    prepared = []
    for settings in config.evaluators:
        try:
            references = references_of(settings, store, base)
            resources = resources_of(settings, base, store, again=again, is_budgeted=is_budgeted)
            evaluator = _with_files(settings, base).prepare(resources)
            evaluator.check_prices(_cost_limits(settings, config.budgets.get(settings.name)))
        except OtevalError as error:
            raise ConfigError(f"evaluator {settings.name!r}: {error}") from error
        described = {
            **evaluator.describe(),
            **evaluator.describe_verdict(),
            "reference": references.fingerprint,
            "scope": settings.scope,
        }
        scorer = Scorer(
            name=settings.name,
            version=version_of(described),
            evaluator=evaluator,
            where=settings.where.selection(),
            sample=settings.sample,
            scope=settings.scope,
        )
        prepared.append(PreparedEvaluator(scorer, references))
    return prepared


def _with_files(settings: EvaluatorSettings, base: Path) -> Evaluator:
    """Return an evaluator with the options that JSON files hold."""
    evaluator = settings.evaluator
    for option, path in settings.files.items():
        value = read_json(base / path)
        try:
            evaluator = replace(evaluator, **{option: value})
        except ConfigError as error:
            raise ConfigError(f"{base / path}: {error}") from None
    return evaluator


def _cost_limits(settings: EvaluatorSettings, limits: Limits | None) -> list[str]:
    """Return the settings that limit an evaluator's cost, besides its own options."""
    if limits is None or limits.max_cost_per_day is None:
        return []
    return [f"budgets.{settings.name}.max_cost_per_day"]


@dataclass
class ListOrder:
    """Runs that failed a match with calls that differ only in the order of a list.

    Attributes:
        runs: How many.
        lists: The dotted paths of the lists.
    """

    runs: int = 0
    lists: set[str] = field(default_factory=set)


@dataclass
class ScoreRun:
    """The counts of a scoring, updated while it runs.

    Attributes:
        tallies: The counts by evaluator, in the configuration's order.
        trajectories: The number of trajectories.
        asked: The number of scores by language models, including cached answers.
        reused: The number of scores that the store had already.
        cache_hits: The number of scores from cached answers.
        cost: The cost of the answers in US dollars, as far as prices are known.
        list_order: The failed matches with calls that differ only in the order of a list.
        versions: The versions of the evaluators, by name.
    """

    tallies: dict[str, Tally] = field(default_factory=dict)
    trajectories: int = 0
    asked: int = 0
    reused: int = 0
    cache_hits: int = 0
    cost: float = 0.0
    list_order: dict[str, ListOrder] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def evaluated(self) -> int:
        """How many scores have a verdict."""
        return sum(counted.evaluated for counted in self.tallies.values())

    @property
    def errors(self) -> int:
        """How many evaluations failed."""
        return sum(counted.errors for counted in self.tallies.values())

    def add(self, score: Score, *, reused: bool = False) -> None:
        """Count a score."""
        self.tallies.setdefault(score.evaluator, Tally(score.evaluator)).add(score)
        self._count_list_order(score)
        self.reused += reused
        if not reused:
            self.asked += "asked_as" in score.metadata
            self.cache_hits += score.metadata.get("cached") is True
            self.cost += score.cost or 0.0

    def _count_list_order(self, score: Score) -> None:
        lists = score.metadata.get("reordered")
        if score.passed is False and isinstance(lists, dict) and lists:
            found = self.list_order.setdefault(score.evaluator, ListOrder())
            found.runs += 1
            found.lists.update(path for paths in lists.values() for path in paths)


def score(
    store: Store,
    config: Config,
    base: Path,
    selection: Selection = EVERYTHING,
    run: ScoreRun | None = None,
    on_progress: Callable[[int], None] | None = None,
    *,
    again: bool = False,
    reuse_all: bool = False,
) -> Generator[Score, None, None]:
    """Score trajectories, keep the scores in the store, and yield them.

    Language models judge several trajectories concurrently; their scores are yielded as they
    arrive. If the store already has a model's verdict on a run, that score is yielded.

    Args:
        store: The store.
        config: The configuration.
        base: The folder that paths of the configuration are relative to.
        selection: A filter for trajectories.
        run: The counts to update.
        on_progress: Called with the number of trajectories done.
        again: Whether to ask language models again, ignoring earlier verdicts.
        reuse_all: Whether stored verdicts of evaluators that ask no model are used again too.

    Raises:
        ConfigError: A reference or function cannot be loaded, or an option is wrong.
    """
    prepared = prepare(config, store, base, again=again)
    run = ScoreRun() if run is None else run
    run.tallies.update({one.scorer.name: Tally(one.scorer.name) for one in prepared})
    found_now = store.trajectories.read(selection)
    used_again = [one.scorer.version for one in prepared if reuse_all or one.is_asked]
    trajectories = _with_verdicts(store, [] if again else used_again, found_now)
    run.versions.update({one.scorer.name: one.scorer.version for one in prepared})
    writer, runner = _ScoreWriter(store), _runner_of(prepared)

    def counted(found: Score, *, reused: bool = False) -> Score:
        run.add(found if reused else writer.add(found), reused=reused)
        return found

    try:
        for trajectory, given in trajectories:
            run.trajectories += 1
            for found, reused in _finished_scores(prepared, trajectory, given, config.salt, runner):
                yield counted(found, reused=reused)
            if on_progress:
                on_progress(run.trajectories - runner.pending)
        for outcome in runner.completed(max_pending=0):
            yield counted(outcome.result())
            if on_progress:
                on_progress(run.trajectories - runner.pending)
    finally:
        # Finished scores are written after Ctrl-C as well.
        runner.close()
        writer.flush()
        store.judge_calls.flush()
        _close(prepared, runner)


def _runner_of(prepared: Iterable[PreparedEvaluator]) -> _ScoreRunner:
    return Runner(sum(one.concurrency for one in prepared if one.concurrency > 1))


def _close(prepared: Iterable[PreparedEvaluator], runner: _ScoreRunner) -> None:
    """Close the evaluators' connections, unless one is still in use."""
    for one in () if runner.pending else prepared:
        one.close()


def _finished_scores(
    prepared: Iterable[PreparedEvaluator],
    trajectory: Trajectory,
    given: Given,
    salt: str,
    runner: _ScoreRunner,
) -> Iterator[tuple[Score, bool]]:
    """Yield the finished scores of a trajectory, and whether the store had each already."""
    for one in prepared:
        if not one.scorer.wants(trajectory, salt):
            continue
        had = given.get((trajectory.id, one.scorer.name, one.scorer.version))
        if had is not None:
            yield had, True
        else:
            yield from ((found, False) for found in _evaluated(one, trajectory, runner))


def _evaluated(
    one: PreparedEvaluator, trajectory: Trajectory, runner: _ScoreRunner
) -> Iterator[Score]:
    """Yield the score of a trajectory, or, if it is evaluated in a thread, finished scores."""
    if one.concurrency > 1:
        for outcome in runner.completed(max_pending=runner.concurrency - 1):
            yield outcome.result()
        runner.submit(partial(_score_one, one, trajectory), trajectory.id)
    else:
        yield _score_one(one, trajectory)


class _ScoreWriter:
    """Writes scores to the store in batches."""

    def __init__(self, store: Store) -> None:
        self._store, self._fresh, self._time = store, list[Score](), time.monotonic()

    def add(self, score: Score) -> Score:
        """Add a score, and return it."""
        self._fresh.append(score)
        if len(self._fresh) >= _PAGE or time.monotonic() - self._time > _SECONDS:
            self.flush()
        return score

    def flush(self) -> None:
        """Write the batch."""
        self._store.scores.write(self._fresh)
        self._fresh, self._time = [], time.monotonic()


def _with_verdicts(
    store: Store, versions: Sequence[str], trajectories: Iterable[Trajectory]
) -> Iterator[tuple[Trajectory, Given]]:
    """Yield trajectories with the stored verdicts that are used again.

    Args:
        store: The store.
        versions: The versions of the evaluators whose verdicts are used again.
        trajectories: The trajectories.
    """
    if not versions:
        yield from ((trajectory, {}) for trajectory in trajectories)
        return
    for page in _pages(trajectories, _GIVEN_PAGE):
        found = store.scores.of_versions([trajectory.id for trajectory in page], versions)
        revs = {trajectory.id: trajectory.rev for trajectory in page}
        verdicts = {
            key: score
            for key, score in found.items()
            if score.status == "ok" and score.rev == revs[score.trajectory_id]
        }
        yield from ((trajectory, verdicts) for trajectory in page)


def _pages(items: Iterable[Trajectory], size: int) -> Iterator[list[Trajectory]]:
    iterator = iter(items)
    while page := list(islice(iterator, size)):
        yield page


def _score_one(one: PreparedEvaluator, trajectory: Trajectory) -> Score:
    reference, problem = one.references.of(trajectory)
    return one.scorer.score(trajectory, reference, problem, time.time_ns())


def score_trajectories(
    store: Store, config: Config, base: Path, trajectories: Iterable[Trajectory]
) -> list[Score]:
    """Score some trajectories of a store, keep the scores there, and return them.

    Args:
        store: The store.
        config: The configuration.
        base: The folder that paths of the configuration are relative to.
        trajectories: Which trajectories.

    Raises:
        ConfigError: A reference or function cannot be loaded, or an option is wrong.
    """
    prepared = prepare(config, store, base)
    runner = _runner_of(prepared)
    found: list[Score] = []
    try:
        for trajectory in trajectories:
            for one in prepared:
                if one.scorer.wants(trajectory, config.salt):
                    found += _evaluated(one, trajectory, runner)
        found += [outcome.result() for outcome in runner.completed(max_pending=0)]
    finally:
        runner.close()
        _close(prepared, runner)
    store.scores.write(found)
    return found


def check_gates(gates: Iterable[Gate], tallies: Mapping[str, Tally]) -> list[GateResult]:
    """Return whether each gate held.

    Args:
        gates: The gates of a configuration.
        tallies: The counts by evaluator. A gate of an evaluator without counts does not hold.
    """
    return [
        check_gate(
            tallies.get(gate.evaluator, Tally(gate.evaluator)),
            min_pass_rate=gate.min_pass_rate,
            min_score=gate.min_score,
            min_evaluated=gate.min_evaluated,
            max_errors=gate.max_errors,
        )
        for gate in gates
    ]
