"""Score the trajectories of a store by a configuration, and check its gates."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ..evaluators import AlignedPair, GateResult, Tally, align, first_divergence
from ..model import EVERYTHING, Score, Selection, Trajectory
from ..store import Store
from .config import Config
from .decide import Decider, StoredVerdicts
from .prepared import PreparedEvaluator, prepare
from .run_scorer import RunScorer
from .score_batch import ScoreWriter
from .score_counts import ScoreCounts, check_gates
from .score_pages import ScorePage, ScorePages

__all__ = [
    "AlignedPair",
    "GateResult",
    "ScoreCounts",
    "Tally",
    "align",
    "check_gates",
    "first_divergence",
    "prepare",
    "score",
]

# The most scores of runs that were read in one write.
_PAGE = 1000
# DuckDB's memory while scoring: rows are read once.
_MEMORY_LIMIT = "96MB"


def score(
    store: Store,
    config: Config,
    base: Path,
    selection: Selection = EVERYTHING,
    run: ScoreCounts | None = None,
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
        base: The folder for relative paths in the configuration.
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
    run = ScoreCounts() if run is None else run
    _add_evaluators(run, prepared)
    reused_versions = [
        evaluator.scorer.version for evaluator in prepared if reuse_all or evaluator.is_asked
    ]
    deciders = [Decider(evaluator, config.salt) for evaluator in prepared]
    scoring = _Scoring(
        deciders=deciders,
        run=run,
        batch=ScoreWriter(store, _PAGE),
        runs=RunScorer(prepared, config.salt),
        yields_passes=yields_passes,
        on_progress=on_progress or (lambda _: None),
    )
    try:
        with (
            store.reduced_memory(_MEMORY_LIMIT),
            ScorePages(store, deciders, [] if again else reused_versions) as pages,
        ):
            for page in pages.read(selection):
                yield from scoring.page(page)
            yield from scoring.rest()
    finally:
        # Finished scores are written after Ctrl-C as well.
        scoring.runs.close()
        scoring.batch.flush()
        store.judge_calls.flush()


def _add_evaluators(run: ScoreCounts, prepared: Sequence[PreparedEvaluator]) -> None:
    scorers = [evaluator.scorer for evaluator in prepared]
    run.tallies.update({scorer.name: Tally(scorer.name) for scorer in scorers})
    run.versions.update({scorer.name: scorer.version for scorer in scorers})


@dataclass(frozen=True, kw_only=True)
class _Scoring:
    """Scores the runs of a store page by page; the fields are as in `score`."""

    deciders: Sequence[Decider]
    run: ScoreCounts
    batch: ScoreWriter
    runs: RunScorer
    yields_passes: bool
    on_progress: Callable[[int], None]

    def page(self, page: ScorePage) -> Iterator[Score]:
        """Score the runs of a page, and yield the scores."""
        before, step = self.run.trajectories, len(self.deciders)
        yielded_scores = [decided.scores(passes=self.yields_passes) for decided in page.decided]
        for order, decided in enumerate(page.decided):
            self.batch.add_rows(_positioned(decided.rows, before * step + order, step))
        run_at = _runs_of(page)
        for run_index in _busy_places(page, yielded_scores):
            run = run_at(run_index)
            self.run.trajectories = before + run_index + 1
            for order, decided in enumerate(page.decided):
                position = (before + run_index) * step + order
                if run_index in yielded_scores[order]:
                    self.batch.reached = position
                    yield self._counted(yielded_scores[order][run_index])
                elif run_index in decided.reused:
                    yield self._counted(decided.reused[run_index], reused=True)
                elif run is not None and run_index in decided.undecided:
                    yield from self._whole(self.deciders[order], run, page.stored, position)
            self._report()
        self.run.trajectories = before + len(page.names)
        self.batch.reached = self.run.trajectories * step - 1
        for decider, decided in zip(self.deciders, page.decided, strict=True):
            for result, count in decided.counts(passes=self.yields_passes):
                self.run.add_results(decider.prepared.scorer.name, result, count)
        if not all(decider.reads_every_run for decider in self.deciders):
            self.batch.flush()
        self._report()

    def rest(self) -> Iterator[Score]:
        """Yield the scores that judges still owe, as they finish."""
        for score in self.runs.rest():
            yield self._added(score, self.batch.reached)
            self._report()

    def _whole(
        self, decider: Decider, run: Trajectory, stored: StoredVerdicts, position: int
    ) -> Iterator[Score]:
        """Yield the finished scores of an evaluator on a run; scores in threads come later."""
        if not self.runs.wants(decider.prepared, run):
            return
        scorer = decider.prepared.scorer
        score = stored.get((run.id, scorer.name, scorer.version))
        if score is not None and score.rev == run.rev:
            yield self._counted(score, reused=True)
            return
        for score in self.runs.evaluate(decider.prepared, run):
            yield self._added(score, position)

    def _added(self, score: Score, position: int) -> Score:
        self.batch.add(score, position)
        return self._counted(score)

    def _counted(self, score: Score, *, reused: bool = False) -> Score:
        self.run.add(score, reused=reused)
        return score

    def _report(self) -> None:
        self.on_progress(self.run.trajectories - self.runs.pending)


def _positioned(rows: pa.Table, first: int, step: int) -> pa.Table:
    """Return rows with the position of their scores instead of the place of their runs."""
    places = rows["place"].cast(pa.int64())
    positions = pc.add(pc.multiply(places, pa.scalar(step, pa.int64())), first)
    return rows.drop_columns(["place"]).append_column("position", positions)


def _runs_of(page: ScorePage) -> Callable[[int], Trajectory | None]:
    """A function that returns the run at a place, if it was read."""
    waiting: list[Trajectory] = []

    def run_at(run_index: int) -> Trajectory | None:
        if not waiting:
            waiting.extend(islice(page.runs, 1))
        is_next = bool(waiting) and waiting[0].id == page.names[run_index]
        return waiting.pop() if is_next else None

    return run_at


def _busy_places(page: ScorePage, yielded_scores: Sequence[Mapping[int, Score]]) -> list[int]:
    """The places of the runs that are read or whose scores are yielded."""
    return sorted(
        {*page.undecided}.union(*(decided.reused for decided in page.decided), *yielded_scores)
    )
