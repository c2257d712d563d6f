"""Have judges score the runs of a folder of results, on the executors.

Judges come last, so that they get only whole runs, and each only once. A task reads its runs from
the trajectories that were written, and shares answers and limits with all other tasks through the
folder; see `judge_calls`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...model import Selection
from ...scoring import Config, JobLimits, PreparedEvaluator, RunScorer, prepare
from ...store import SCORE_ROWS, ShardedStore, score_rows
from .files import to_address
from .judge_calls import FolderBudget, FolderCalls, RequestCount
from .parquet_files import read_exactly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["JudgeTask", "judge_scores", "judges_of", "others_of"]

# The runs of a task, and the runs that it keeps in memory at once.
_TASK_RUNS, _PAGE = 200, 20


def judges_of(config: Config) -> Config:
    """A configuration with its judges alone."""
    return config.model_copy(
        update={
            "evaluators": [
                evaluator for evaluator in config.evaluators if evaluator.evaluator.asks_models
            ]
        }
    )


def others_of(config: Config) -> Config:
    """A configuration without its judges."""
    return config.model_copy(
        update={
            "evaluators": [
                evaluator for evaluator in config.evaluators if not evaluator.evaluator.asks_models
            ]
        }
    )


@dataclass(frozen=True)
class JudgeTask:
    """Judges some runs.

    Attributes:
        config: The configuration, with judges alone.
        base: The folder that its paths are relative to.
        results: The folder with the trajectories.
        calls: The folder of the judges' calls.
        selection: The runs to score.
        max_calls: The most requests of the whole job; None without a limit.
        time_ns: The time of the scores (ns).
    """

    config: Config
    base: Path
    results: Path
    calls: Path
    selection: Selection
    max_calls: int | None
    time_ns: int

    def score(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of scores for rows with the ids of runs."""
        ids = [name for batch in batches for name in batch.column("trajectory_id").to_pylist()]
        if not ids:
            return
        scorer = RunScorer(self.prepared(), self.config.salt, lambda: self.time_ns)
        try:
            with ShardedStore([str(self.results)]) as store:
                for first in range(0, len(ids), _PAGE):
                    page = Selection(ids=tuple(ids[first : first + _PAGE]))
                    runs = filter(self.selection.matches, store.trajectories.read(page))
                    if scores := list(scorer.score(runs)):
                        yield from score_rows(scores).to_batches()
        finally:
            scorer.close()

    def prepared(self) -> list[PreparedEvaluator]:
        """The judges, with the answers and limits that all tasks share."""
        requests = None
        if self.max_calls is not None:
            requests = RequestCount(self.calls, self.max_calls)

        def budget(evaluator: str, limit: float) -> FolderBudget:
            return FolderBudget(limit, folder=self.calls, evaluator=evaluator)

        limits = JobLimits(_calls_in(self.calls), requests, budget)
        return prepare(self.config, store=None, base=self.base, job=limits)


@lru_cache(maxsize=4)
def _calls_in(folder: Path) -> FolderCalls:
    """The calls in a folder; the tasks of this process share them one after another."""
    return FolderCalls(folder)


def judge_scores(session: SparkSession, task: JudgeTask) -> DataFrame:
    """The rows of the scores by judges.

    Args:
        session: The Spark session.
        task: The judges, and the folder with the trajectories.
    """
    from pyspark import StorageLevel
    from pyspark.sql.pandas.types import from_arrow_schema

    runs = read_exactly(session, "parquet", [to_address(task.results / "trajectories")], {})
    ids = runs.select("trajectory_id", "start_ns")
    count = max(1, -(-ids.count() // _TASK_RUNS))
    schema: Any = from_arrow_schema(SCORE_ROWS)
    return (
        ids.repartitionByRange(count, "start_ns", "trajectory_id")
        .select("trajectory_id")
        .mapInArrow(lambda batches: task.score(batches), schema)
        .persist(StorageLevel.DISK_ONLY)
    )
