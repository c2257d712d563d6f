"""Have judges score the runs of a folder of results, on the executors.

Judges come last, so that they get only whole runs, and each only once. A task reads its runs from
the trajectories that were written, and shares answers and limits with all other tasks through the
folder.

Each process appends its answers to a separate file, one JSON object a line. Before a request, it
reads the answers of the others. An answer is synced to the disk before its score is returned. The
file ``limits.json`` counts the requests and costs of the job; a process changes it under a lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...base.errors import BudgetSpent
from ...base.files import sync
from ...base.jsontext import dumps
from ...evaluators import CostBudget, JudgeCall
from ...model import Selection
from ...scoring import Config, JobLimits, PreparedEvaluator, RunScorer, prepare
from ...store import SCORE_ROWS, ShardedStore, score_rows
from .files import to_address
from .parquet_files import read_exactly

__all__ = [
    "FolderBudget",
    "FolderCalls",
    "JudgeTask",
    "RequestCount",
    "begin_limits",
    "judge_scores",
    "split_judges",
]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# The runs of a task, and the runs that it keeps in memory at once.
_TASK_RUNS, _PAGE = 200, 20
_LIMITS, _LOCK = "limits.json", ".lock"
_FIELDS = frozenset(field.name for field in fields(JudgeCall))


def split_judges(config: Config) -> tuple[Config, Config]:
    """A configuration with its judges alone, and without them."""
    judges, others = (
        config.model_copy(
            update={
                "evaluators": [
                    settings
                    for settings in config.evaluators
                    if settings.evaluator.asks_models is asks_models
                ]
            }
        )
        for asks_models in (True, False)
    )
    return judges, others


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


class FolderCalls:
    """The calls of judges in a folder. All methods are thread-safe.

    Args:
        folder: The folder; it is created if missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
        self._own = folder / name
        self._answers: dict[str, JudgeCall] = {}
        self._read_to: dict[str, int] = {}
        self._lock = threading.Lock()

    def of(self, evaluator: str, kind: type[Any], *, again: bool = False) -> _CachedEvaluator:
        """The cache of an evaluator's judges; answers in the folder are always used."""
        del kind, again
        return _CachedEvaluator(self, evaluator)

    def spent(self, evaluator: str, since_ns: int) -> float:
        """The US dollars that an evaluator's calls cost from a time (ns) on."""
        cost = 0.0
        for path in sorted(self._folder.glob("*.jsonl")):
            for record in _records(path.read_bytes()):
                if record["evaluator"] == evaluator and record["time_ns"] >= since_ns:
                    cost += record["cost"] or 0.0
        return cost

    def get(self, key: str) -> JudgeCall | None:
        """The answered call with a key, whichever process wrote it, or None."""
        with self._lock:
            if key not in self._answers:
                self._read_new()
            return self._answers.get(key)

    def put(self, evaluator: str, call: JudgeCall) -> None:
        """Append a call to the file of this process, and wait until it is on the disk."""
        line = dumps({"evaluator": evaluator, **asdict(call)}).encode("utf-8", "replace") + b"\n"
        with self._lock:
            with self._own.open("ab") as file:
                file.write(line)
                file.flush()
                sync(file.fileno())
            if call.answer is not None:
                self._answers[call.key] = call

    def _read_new(self) -> None:
        """Read the lines that were written since the last time."""
        for path in sorted(self._folder.glob("*.jsonl")):
            start = self._read_to.get(path.name, 0)
            if path.stat().st_size <= start:
                continue
            with path.open("rb") as file:
                file.seek(start)
                # If the last line is being written, or its process was killed, it is left.
                text = file.read()
            text = text[: text.rfind(b"\n") + 1]
            self._read_to[path.name] = start + len(text)
            for record in _records(text):
                if record["answer"] is not None:
                    call = JudgeCall(**{k: v for k, v in record.items() if k in _FIELDS})
                    self._answers[call.key] = call


class _CachedEvaluator:
    """The calls of one evaluator: the cache that its judges use."""

    def __init__(self, calls: FolderCalls, evaluator: str) -> None:
        self._calls, self._evaluator = calls, evaluator

    def get(self, key: str) -> JudgeCall | None:
        """The answered call with a key, or None."""
        return self._calls.get(key)

    def put(self, call: JudgeCall) -> None:
        """Store a call, answered or not."""
        self._calls.put(self._evaluator, call)

    def link(self, key: str, trajectory_id: str) -> None:
        """Do nothing: a folder of results is deleted as a whole."""


def _records(text: bytes) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue  # the question is sent again


def begin_limits(folder: Path, *, resumes: bool) -> None:
    """Prepare the counts of a job, before any executor has begun.

    Args:
        folder: The folder of the calls.
        resumes: Whether the job continues a job that failed. Then its counts stay. If costs were
            reserved for answers that never came, they count as spent.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _limits(folder) as state:
        if not resumes:
            state.clear()
        for budget in state.get("budgets", {}).values():
            budget["spent"] += budget["reserved"]
            budget["reserved"] = 0.0


@contextmanager
def _limits(folder: Path) -> Iterator[dict[str, Any]]:
    """Read the counts, and write them back, while no other process does."""
    with (folder / _LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = folder / _LIMITS
        state: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        yield state
        partial = folder / f".{_LIMITS}.partial"
        partial.write_text(json.dumps(state))
        partial.replace(path)


@dataclass(frozen=True)
class RequestCount:
    """A limit on the requests of all processes together.

    Attributes:
        folder: The folder of the calls.
        limit: The most requests of the job.
    """

    folder: Path
    limit: int

    def take(self) -> None:
        """Count a request of any process; see `oteval.evaluators.evaluator.RequestLimit`.

        Raises:
            BudgetSpent: All processes together have sent as many as they may.
        """
        with _limits(self.folder) as state:
            count = state.get("requests", 0)
            if count >= self.limit:
                raise BudgetSpent(f"budget: max_judge_calls of {self.limit} is spent")
            state["requests"] = count + 1


@dataclass
class FolderBudget(CostBudget):
    """A limit on the costs of all processes together.

    Attributes:
        folder: The folder of the calls.
        evaluator: The evaluator whose costs are limited.
    """

    folder: Path = Path()
    evaluator: str = ""

    def reserve(self, estimate: float) -> float:
        """Reserve the estimated cost of a request, in US dollars, and return it.

        Raises:
            BudgetSpent: The rest of the budget is smaller.
        """
        with self._shared():
            return super().reserve(estimate)

    def settle(self, reserved: float, cost: float) -> None:
        """Replace a reservation with the real cost; a cost of 0 releases it."""
        with self._shared():
            super().settle(reserved, cost)

    @contextmanager
    def _shared(self) -> Iterator[None]:
        with _limits(self.folder) as state:
            budgets = state.setdefault("budgets", {})
            budget = budgets.setdefault(self.evaluator, {"spent": 0.0, "reserved": 0.0})
            self.spent, self.reserved = budget["spent"], budget["reserved"]
            yield
            budgets[self.evaluator] = {"spent": self.spent, "reserved": self.reserved}
