"""Score the runs of a batch of traces by their outlines, before any of them is scheduled.

Most checks and matches need only a few columns of a run. Newly reconstructed runs still have their
columns in memory. So all runs of a batch are decided together, and equal outlines once. Runs that
an evaluator must read, and evaluators that read every run, are left to the scheduler.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..base.jsontext import restore
from ..model import OutlineRequest, Score, Selection
from ..scoring import DecidedRuns, Decider, EventRun
from ..store import SCORE_ROWS, Store, is_store_failure
from .evaluations import WrittenScores
from .evaluator_rules import LiveEvaluator

__all__ = ["BatchScorer", "EvaluatorBatch", "ScoredBatch"]

_log = logging.getLogger(__name__)
_Key = tuple[str, str]

Revision = tuple[str, int]
"""A trajectory's id and its revision."""


@dataclass(frozen=True)
class EvaluatorBatch:
    """The runs of a batch that one evaluator has decided.

    Attributes:
        evaluator: The evaluator's name.
        runs: Their scores.
        rows: The rows of all runs of the batch.
        seconds: The duration of the evaluation.
        undecided: The trajectories that it must read.
    """

    evaluator: str
    runs: DecidedRuns
    rows: pa.Table
    seconds: float
    undecided: Collection[Revision]

    def written(self) -> WrittenScores:
        """The scores as they are published."""
        agents = self.rows["agent"].take(self.runs.rows["place"]).to_pylist()
        results = [self.runs.results[code] for code in self.runs.codes.to_pylist()]
        scored = list(zip(agents, results, strict=True))
        return WrittenScores(self.evaluator, scored, self._events, self.seconds)

    def _events(self) -> list[tuple[Score, EventRun]]:
        scores = self.runs.scores(passes=True)
        places = pa.array(scores, pa.int64())
        rows = self.rows.select(["agent", "conversation_id", "attributes"]).take(places)
        return [
            (score, _EventColumns(row["agent"], row["conversation_id"], restore(row["attributes"])))
            for score, row in zip(scores.values(), rows.to_pylist(), strict=True)
        ]


class _EventColumns(NamedTuple):
    """The columns of a run that an event contains."""

    agent: str
    conversation_id: str
    attributes: dict[str, Any]


@dataclass(frozen=True)
class ScoredBatch:
    """The scores of a batch.

    Attributes:
        revisions: The ids and revisions of the trajectories that were looked at.
        by_evaluator: The decisions, by the evaluator's name and version.
    """

    revisions: Collection[Revision] = frozenset()
    by_evaluator: dict[_Key, EvaluatorBatch] = field(default_factory=dict)

    def is_finished(self, key: _Key, revision: Revision) -> bool:
        """Whether an evaluator has finished its work on a trajectory."""
        batch = self.by_evaluator.get(key)
        if batch is None or revision not in self.revisions:
            return False
        return revision not in batch.undecided

    def written(self) -> list[WrittenScores]:
        """The scores as they are published."""
        return [batch.written() for batch in self.by_evaluator.values()]

    def rows(self) -> pa.Table:
        """The scores as rows."""
        tables = [batch.runs.rows.select(SCORE_ROWS.names) for batch in self.by_evaluator.values()]
        return pa.concat_tables([SCORE_ROWS.empty_table(), *tables])


@dataclass(frozen=True)
class _WrittenPage:
    """Runs whose rows were written just now, as a `Page`."""

    store: Store
    rows: pa.Table

    def __len__(self) -> int:
        return len(self.rows)

    def outlines(self, request: OutlineRequest, where: Selection) -> pa.Table:
        return self.store.outlines.of_rows(self.rows, request, where)

    def messages(self, runs: pa.Table) -> Iterable[tuple[int, str]]:
        places = runs["place"]
        messages = self.rows["messages"].take(places).to_pylist()
        return zip(places.to_pylist(), messages, strict=True)


class BatchScorer:
    """Scores batches of runs with the evaluators that can decide by outlines.

    Args:
        store: The store.
        wall: The time of day (ns).
    """

    def __init__(self, store: Store, wall: Callable[[], int] = time.time_ns) -> None:
        self._store, self._wall = store, wall
        self._deciders: dict[_Key, Decider] = {}

    def configure(self, evaluators: Collection[LiveEvaluator], *, salt: str) -> None:
        """Put evaluators in force."""
        deciders = {evaluator.key: Decider(evaluator.prepared, salt) for evaluator in evaluators}
        self._deciders = {
            key: decider for key, decider in deciders.items() if not decider.reads_every_run
        }

    def score(self, rows: pa.Table, traces: Collection[str]) -> ScoredBatch:
        """The scores of new trajectories and of new revisions.

        Args:
            rows: Their rows.
            traces: The traces that have ended. Runs of other traces are left out.
        """
        if not len(rows) or not self._deciders:
            return ScoredBatch()
        has_ended = pc.is_in(rows["trace_id"], pa.array(traces, pa.string()))
        rows = rows.filter(has_ended)
        ids, revs = rows["trajectory_id"].to_pylist(), rows["rev"].to_pylist()
        revisions = list(zip(ids, revs, strict=True))
        batch = ScoredBatch(frozenset(revisions))
        for key, decider in self._deciders.items() if revisions else ():
            try:
                batch.by_evaluator[key] = self._decided(key, decider, rows, revisions)
            except Exception as error:
                if is_store_failure(error):
                    raise
                # The scheduler runs this evaluator on each of the runs.
                _log.exception("%s cannot decide a batch of runs", key[0])
        return batch

    def _decided(
        self, key: _Key, decider: Decider, rows: pa.Table, revisions: Sequence[Revision]
    ) -> EvaluatorBatch:
        begun = time.perf_counter()
        runs = decider.decide(_WrittenPage(self._store, rows), self._wall())
        undecided = frozenset(revisions[index] for index in runs.undecided)
        return EvaluatorBatch(key[0], runs, rows, time.perf_counter() - begun, undecided)
