"""Lost executors, second attempts, large conversations and bad rows change no other score."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.clock import family
from benchmarks.served import until
from benchmarks.spark_cluster import SparkCluster
from oteval.model import Span
from oteval.store.telemetry_rows import span_table

from ...make import alike
from .evaluators import SLOW
from .rows import RULES, Rows, conversation, in_store, of_spark, on_spark

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("default")]
_LARGE = 100_000
_RULES = """
evaluators:
  - {name: errors, type: tool_errors}
  - {name: call, type: python, call: "tests.extras.spark.evaluators:NAME"}
"""
_SCORE = ("trajectory_id", "evaluator", "status", "score", "passed")


@pytest.fixture(scope="module")
def spark(session: Callable[..., Any]) -> Any:
    """A session that attempts slow tasks a second time."""
    return session(
        spark__speculation="true",
        spark__speculation__interval="100ms",
        spark__speculation__quantile="0.1",
        spark__speculation__multiplier="1",
        spark__speculation__minTaskRuntime="100ms",
    )


def _conversations(count: int, question: str = "Where is it?") -> list[Span]:
    return [
        span
        for number in range(1, count + 1)
        for span in conversation(
            number, turns=2, calls=2, question=question if number == 1 else "Where is it?"
        )
    ]


def _verdicts(scores: Rows) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in _SCORE) for row in scores]


class _Killer(threading.Thread):
    """Kills the executor that waits, and lets the others go on.

    Attributes:
        killed: The executor's process; 0 before that.
    """

    def __init__(self, cluster: SparkCluster, marks: Path) -> None:
        super().__init__(daemon=True)
        self._cluster, self._marks = cluster, marks
        self.killed = 0

    def run(self) -> None:
        try:
            (waiting, *_) = until(lambda: list(self._marks.glob("waits-*")), 600)
            worker = int(waiting.name.partition("-")[2])
            (executor,) = [one for one in self._cluster.executors() if worker in family(one)]
            os.kill(executor, signal.SIGKILL)
            self.killed = executor
        finally:
            (self._marks / "go").touch()


def test_an_executor_killed_in_the_middle_changes_nothing(
    spark: Any, cluster: SparkCluster, marks: Path, tmp_path: Path
):
    """An executor dies by SIGKILL in one of its later tasks; all rows are as in a store."""
    spans = [*_conversations(100), *alike(15, random.Random(3))]
    rules = _RULES.replace("NAME", "waits_for_a_kill")
    killer = _Killer(cluster, marks)
    killer.start()

    found = on_spark(spark, spans, [], tmp_path, rules)

    killer.join()
    assert killer.killed
    calls = sum(mark.stat().st_size for mark in marks.glob("calls-*"))
    assert calls > len(found[0]) >= 200
    runs, scores = in_store(
        spans, [], tmp_path, rules.replace("waits_for_a_kill", "waits_for_a_copy")
    )
    assert found[0] == runs
    assert _verdicts(found[1]) == _verdicts(scores)


def test_a_task_attempted_twice_at_once_has_its_rows_once(spark: Any, marks: Path, tmp_path: Path):
    """The first attempt ends only after the second one has begun; no run or score is double."""
    spans = _conversations(50, SLOW)
    rules = _RULES.replace("NAME", "waits_for_a_copy")

    found = on_spark(spark, spans, [], tmp_path, rules)

    assert len(list(marks.glob("slow-*"))) > 1
    runs = [row["trajectory_id"] for row in found[0]]
    assert len(runs) == len(set(runs)) == 100
    assert len(found[1]) == 200
    assert {row["status"] for row in found[1]} == {"ok"}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of one conversation of 100,000 spans beside ten small ones."""
    folder = tmp_path_factory.mktemp("large")
    spans = [*conversation(1_000, turns=_LARGE // 10, calls=4), *_conversations(10)]
    assert len(spans) > _LARGE
    pq.write_table(span_table(spans, 1), folder / "spans.parquet")
    return folder


@pytest.mark.large
def test_a_conversation_of_100_000_spans_is_scored_in_one_task(spark: Any, large: Path):
    """It has all of its turns, each with its scores, and so have the small ones."""
    runs, scores = of_spark(spark, large)

    assert len(runs) == _LARGE // 10 + 20
    turns = [row["turn"] for row in runs if row["conversation_id"] == "conversation-1000"]
    assert sorted(turns) == list(range(1, _LARGE // 10 + 1))
    verdicts = [(row["trajectory_id"], row["evaluator"]) for row in scores]
    assert len(verdicts) == len(set(verdicts))
    assert sum(row["evaluator"] == "errors" for row in scores) == len(runs)


@pytest.mark.large
def test_a_conversation_that_is_too_large_has_gaps(spark: Any, large: Path):
    """Each trace of it has a run that no evaluator passes; the small ones are scored."""
    runs, scores = of_spark(spark, large, group_bytes=1 << 20)

    gaps = {row["trajectory_id"]: row["gap_codes"] for row in runs}
    assert len(gaps) == len(runs) == _LARGE // 10 + 20
    assert sum(codes == ["too_large"] for codes in gaps.values()) == _LARGE // 10
    passed = [row for row in scores if row["passed"]]
    assert not [row for row in passed if gaps[row["trajectory_id"]] == ["too_large"]]
    assert len({row["trajectory_id"] for row in passed}) > 0


def test_bad_rows_are_gaps_of_their_traces_alone(spark: Any, tmp_path: Path):
    """Missing ids, text that is no JSON and absurd times: one run each, and none of them passes."""
    spans = _conversations(10)
    rows = span_table(spans, 1).to_pylist()
    extra = {"trace_id": f"{7:032x}", "conversation_id": None, "seq": 1_000_000}
    bad = [
        {**rows[0], **extra, "trace_id": None},
        {**rows[0], **extra, "trace_id": f"{8:032x}", "span_id": None},
        {**rows[0], **extra, "attributes": '{"gen_ai.operation.name": "invoke_ag'},
        {**rows[0], **extra, "trace_id": f"{9:032x}", "attributes": "[1]"},
        {**rows[0], **extra, "trace_id": f"{10:032x}", "start_ns": None},
    ]
    absurd = [
        {
            **rows[0],
            **extra,
            "trace_id": f"{11:032x}",
            "start_ns": -(1 << 63),
            "end_ns": (1 << 63) - 1,
        },
        {**rows[0], **extra, "trace_id": f"{12:032x}", "start_ns": (1 << 63) - 1, "end_ns": 0},
    ]
    table = pa.Table.from_pylist([*rows, *bad, *absurd], span_table([], 1).schema)
    pq.write_table(table, tmp_path / "spans.parquet")

    runs, scores = of_spark(spark, tmp_path)

    gaps = {row["trace_id"]: row["gap_codes"] for row in runs}
    broken = ["", *(f"{number:032x}" for number in range(7, 11))]
    assert [gaps[trace] for trace in broken] == [["internal_error"]] * len(broken)
    assert len(runs) == len(gaps) == 20 + len(broken) + len(absurd)
    passed = {row["trace_id"] for row in scores if row["passed"]}
    assert not passed & set(broken)
    expected = in_store(spans, [], tmp_path, RULES)
    good = {row["trajectory_id"] for row in expected[0]}
    assert [row for row in runs if row["trajectory_id"] in good] == expected[0]
    assert [row for row in scores if row["trajectory_id"] in good] == expected[1]
