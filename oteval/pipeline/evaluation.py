"""Score the trajectories of a store by a configuration, and check its gates."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ..config import Config
from ..evaluators.alignment import AlignedPair, align, first_divergence
from ..evaluators.gates import GateResult, Tally
from ..model import Score, Trajectory
from ..runner import Runner
from ..selection import EVERYTHING, Selection
from ..store import Store
from .outlined_runs import Given, OutlinedEvaluator
from .prepared import PreparedEvaluator, prepare
from .score_batch import ScoreBatch
from .score_counts import ScoreRun, check_gates
from .score_pages import ScorePage, ScorePages

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
]

# The most scores of runs that were read in one write.
_PAGE = 1000
# DuckDB's memory while scoring: rows are read once.
_MEMORY_LIMIT = "96MB"

_ScoreRunner = Runner[str, Score]


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
    yields_passes: bool = True,
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
        yields_passes: Whether to yield passes of runs that were not read. They are stored and
            counted in any case.

    Raises:
        ConfigError: A reference or function cannot be loaded, or an option is wrong.
    """
    prepared = prepare(config, store, base, again=again)
    run = ScoreRun() if run is None else run
    run.tallies.update({one.scorer.name: Tally(one.scorer.name) for one in prepared})
    run.versions.update({one.scorer.name: one.scorer.version for one in prepared})
    used_again = [one.scorer.version for one in prepared if reuse_all or one.is_asked]
    runner, batch = _runner_of(prepared), ScoreBatch(store, _PAGE)
    outlined = [OutlinedEvaluator.of(one, config.salt) for one in prepared]
    scoring = _Scoring(
        prepared=prepared,
        salt=config.salt,
        run=run,
        batch=batch,
        runner=runner,
        yields_passes=yields_passes,
        on_progress=on_progress or (lambda _: None),
    )
    try:
        with (
            store.reduced_memory(_MEMORY_LIMIT),
            ScorePages(store, outlined, [] if again else used_again) as pages,
        ):
            for page in pages.read(selection):
                yield from scoring.page(page)
            yield from scoring.rest()
    finally:
        # Finished scores are written after Ctrl-C as well.
        runner.close()
        batch.flush()
        store.judge_calls.flush()
        _close(prepared, runner)


@dataclass(frozen=True, kw_only=True)
class _Scoring:
    """Scores the runs of a store page by page; the fields are those of `score`."""

    prepared: Sequence[PreparedEvaluator]
    salt: str
    run: ScoreRun
    batch: ScoreBatch
    runner: _ScoreRunner
    yields_passes: bool
    on_progress: Callable[[int], None]

    def page(self, page: ScorePage) -> Iterator[Score]:
        """Score the runs of a page, and yield the scores."""
        before, decided, given = self.run.trajectories, page.decided, page.given
        first = before * len(self.prepared)
        shown = [{} if d is None else d.scores(passes=self.yields_passes) for d in decided]
        for order, d in enumerate(decided):
            if d is not None:
                self.batch.add_rows(_positioned(d.rows, first + order, len(self.prepared)))
        runs = _runs_of(page)
        for place in _busy_places(page, shown):
            trajectory = runs(place)
            self.run.trajectories = before + place + 1
            for order, one in enumerate(self.prepared):
                position, d = first + place * len(self.prepared) + order, decided[order]
                if place in shown[order]:
                    self.batch.reached = position
                    self.run.add(shown[order][place])
                    yield shown[order][place]
                elif d is not None and place in d.given:
                    self.run.add(d.given[place], reused=True)
                    yield d.given[place]
                elif trajectory is not None and (d is None or place in d.undecided):
                    yield from self._evaluated(
                        one, trajectory, given, position, page.time_ns if d else None
                    )
            self.on_progress(self.run.trajectories - self.runner.pending)
        self.run.trajectories = before + len(page.names)
        self.batch.reached = self.run.trajectories * len(self.prepared) - 1
        for one, d in zip(self.prepared, decided, strict=True):
            for result, count in d.counts(passes=self.yields_passes) if d else ():
                self.run.add_results(one.scorer.name, result, count)
        if any(decided):
            self.batch.flush()
        self.on_progress(self.run.trajectories - self.runner.pending)

    def rest(self) -> Iterator[Score]:
        """Yield the scores of the evaluations that still run in threads."""
        for outcome in self.runner.completed(max_pending=0):
            yield self._added(outcome.result(), self.batch.reached)
            self.on_progress(self.run.trajectories - self.runner.pending)

    def _evaluated(
        self,
        one: PreparedEvaluator,
        trajectory: Trajectory,
        given: Given,
        position: int,
        time_ns: int | None,
    ) -> Iterator[Score]:
        """Yield the finished scores of an evaluator on a run; those in threads come later."""
        if not one.scorer.wants(trajectory, self.salt):
            return
        had = given.get((trajectory.id, one.scorer.name, one.scorer.version))
        if had is not None and had.rev == trajectory.rev:
            self.run.add(had, reused=True)
            yield had
        elif time_ns is not None:
            yield self._added(one.score(trajectory, time_ns), position)
        else:
            for found in _evaluated(one, trajectory, self.runner):
                yield self._added(found, position)

    def _added(self, score: Score, position: int) -> Score:
        self.batch.add(score, position)
        self.run.add(score)
        return score


def _positioned(rows: pa.Table, first: int, step: int) -> pa.Table:
    """Return rows with the position of their scores instead of the place of their runs."""
    places = rows["place"].cast(pa.int64())
    positions = pc.add(pc.multiply(places, pa.scalar(step, pa.int64())), first)
    return rows.drop_columns(["place"]).append_column("position", positions)


def _runs_of(page: ScorePage) -> Callable[[int], Trajectory | None]:
    """Return a function that returns the run at a place, if it was read."""
    waiting: list[Trajectory] = []

    def run_at(place: int) -> Trajectory | None:
        if not waiting:
            waiting.extend(islice(page.runs, 1))
        is_next = bool(waiting) and waiting[0].id == page.names[place]
        return waiting.pop() if is_next else None

    return run_at


def _busy_places(page: ScorePage, shown: Sequence[Mapping[int, Score]]) -> list[int]:
    """Return the places of the runs that are read or whose scores are yielded."""
    given = (one.given.keys() for one in page.decided if one is not None)
    return sorted({*page.needed}.union(*given, *shown))


def _runner_of(prepared: Iterable[PreparedEvaluator]) -> _ScoreRunner:
    return Runner(sum(one.concurrency for one in prepared if one.concurrency > 1))


def _close(prepared: Iterable[PreparedEvaluator], runner: _ScoreRunner) -> None:
    """Close the evaluators' connections, unless one is still in use."""
    for one in () if runner.pending else prepared:
        one.close()


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


def _score_one(one: PreparedEvaluator, trajectory: Trajectory) -> Score:
    return one.score(trajectory, time.time_ns())


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
