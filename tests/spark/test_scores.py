"""Spark gives the trajectories and scores of a store."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from oteval.config import parse_config
from oteval.errors import InputError
from oteval.model import LogRecord, Span
from oteval.spark import score
from oteval.store.telemetry_rows import log_table, span_table

from ..make import CAPTURES, alike, capture
from ..pipeline.test_trace_scores import _OTHERS, of_file, plain, stored

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
    pytest.mark.filterwarnings("default"),
]
_RULES = """
evaluators:
  - {name: errors, type: tool_errors}
  - {name: half, type: tool_errors, sample: 0.5}
  - {name: agents, type: loops, where: {agent: [support, researcher]}}
"""


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql", reason="PySpark is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        builder = sql.SparkSession.builder.master("local[2]")
        settings = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        yield session
        session.stop()


def on_spark(
    spark: Any, spans: list[Span], logs: list[LogRecord], folder: Path
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of the trajectories and scores that Spark makes of Parquet files."""
    pq.write_table(span_table(spans, 1), folder / "spans.parquet")
    pq.write_table(log_table(logs, 1), folder / "logs.parquet")
    frames = [spark.read.parquet(str(folder / f"{kind}.parquet")) for kind in ("spans", "logs")]
    found = score(frames[0], parse_config(_RULES), frames[1])
    runs, scores = (frame.toArrow().to_pylist() for frame in found)
    return plain(runs), plain(scores)


def in_store(
    spans: list[Span], logs: list[LogRecord], base: Path
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of a store; a run that was read again while it was filled has a later `rev`.

    Spark reads each run whole, so all runs have the revision 1 there.
    """
    runs, scores = stored(spans, logs, parse_config(_RULES), base)
    return [{**row, "rev": 1} for row in runs], [{**row, "rev": 1} for row in scores]


def test_captures_shapes_and_frameworks_have_the_rows_of_a_store(spark: Any, tmp_path: Path):
    """All columns are equal when all files are scored together, in several buckets."""
    spans, logs = [], []
    for some, records in [capture(name) for name in CAPTURES] + [of_file(p) for p in _OTHERS]:
        spans += some
        logs += records

    found = on_spark(spark, spans, logs, tmp_path)

    assert len(found[0]) > 150
    assert found == in_store(spans, logs, tmp_path)


def test_runs_are_joined_by_their_messages(spark: Any, tmp_path: Path):
    """Chats without an id are joined across buckets as in a store."""
    spans = alike(15, random.Random(1))

    found = on_spark(spark, spans, [], tmp_path)

    assert found == in_store(spans, [], tmp_path)
    assert any(row["history_id"] for row in found[0])


def test_traces_with_several_conversations_connect_them(spark: Any, tmp_path: Path):
    """A trace that has spans of two conversations is scored with the traces of both."""
    spans = alike(6, random.Random(2))
    traces = sorted({span.trace_id for span in spans})
    spans = [
        replace(
            span,
            attributes={
                **span.attributes,
                "gen_ai.conversation.id": str(
                    (traces.index(span.trace_id) + (not span.parent_id)) // 2
                ),
            },
        )
        for span in spans
    ]

    assert on_spark(spark, spans, [], tmp_path) == in_store(spans, [], tmp_path)


def test_an_evaluator_that_asks_a_model_is_refused(spark: Any, tmp_path: Path):
    """Judges would ask without a limit on all executors, so the error names the evaluator."""
    pq.write_table(span_table([], 1), tmp_path / "spans.parquet")
    rules = "evaluators: [{name: kind, type: judge, model: 'openai:m', prompt: 'Kind? {outputs}'}]"

    with pytest.raises(InputError, match="'kind' asks a model"):
        score(spark.read.parquet(str(tmp_path / "spans.parquet")), parse_config(rules))
