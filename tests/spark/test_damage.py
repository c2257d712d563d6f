"""Files that cannot be read: each is named with its reason, and the others are scored."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oteval.config import parse_config
from oteval.spark import score_files
from oteval.store.telemetry_rows import span_table

from ..make import TRACES, alike

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
    pytest.mark.filterwarnings("default"),
]
RULES = "evaluators: [{name: errors, type: tool_errors}]"
SPANS = alike(6, random.Random(3))
TABLE = span_table(SPANS, 1)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Return a session that compiles little."""
    sql = pytest.importorskip("pyspark.sql", reason="PySpark is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = sql.SparkSession.builder.master("local[2]")
        for name, value in {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.log.level": "OFF",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.codegen.wholeStage": "false",
        }.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        yield session
        session.stop()


def written(table: pa.Table) -> bytes:
    """Return a table as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def retyped(name: str, values: list[Any]) -> bytes:
    """Return the spans with another column of a name."""
    place = TABLE.column_names.index(name)
    return written(TABLE.set_column(place, name, pa.array(values)))


def overwritten(content: bytes, first: int, size: int) -> bytes:
    """Return a file with garbage in the middle."""
    return content[:first] + random.Random(1).randbytes(size) + content[first + size :]


WHOLE = written(TABLE)
OTHERS = {"TraceId": ["1" * 32], "SpanId": ["2" * 16], "SpanName": ["x"]}
BROKEN = {
    "garbage.parquet": random.Random(2).randbytes(5_000),
    "truncated.parquet": WHOLE[: len(WHOLE) // 2],
    "empty.parquet": b"",
    "short.parquet": b"PAR1",
    "text.parquet": b'{"resourceSpans": []}',
    "no footer.parquet": WHOLE[:-8] + b"\xff\xff\xff\x7fPAR1",
    "other schema.parquet": written(pa.table({"a": [1]})),
    "no start.parquet": written(TABLE.drop_columns(["start_ns"])),
    "no attributes.parquet": written(TABLE.drop_columns(["attributes"])),
    "text times.parquet": retyped("start_ns", ["yesterday"] * len(TABLE)),
    "timestamps.parquet": retyped(
        "start_ns", TABLE["start_ns"].cast(pa.timestamp("us")).to_pylist()
    ),
    "middle [1].parquet": overwritten(WHOLE, 2_000, 1_500),
    "middle%20{2}.parquet": overwritten(WHOLE, len(WHOLE) // 2, 1_500),
    "times of day.parquet": written(
        pa.table({**OTHERS, "Timestamp": pa.array([1], pa.time64("ns"))})
    ),
    "garbage.pb": random.Random(4).randbytes(3_000),
    "truncated.json": (TRACES / "genai_openai_chat.json").read_bytes()[:700],
    "garbage.json.gz": b"\x1f\x8b" + random.Random(5).randbytes(900),
    "truncated.json.zst": b"\x28\xb5\x2f\xfd" + random.Random(6).randbytes(90),
    "empty.json": b"",
    "picture.png": b"\x89PNG" + random.Random(7).randbytes(200),
}


def test_files_that_cannot_be_read_are_named_and_the_rest_is_scored(spark: Any, tmp_path: Path):
    """Twenty kinds of broken files beside a good one: each has its reason, and all runs a score."""
    source = tmp_path / "traces"
    source.mkdir()
    (source / "good.parquet").write_bytes(WHOLE)
    for name, content in BROKEN.items():
        (source / name).write_bytes(content)

    problems = score_files(spark, [source], parse_config(RULES), tmp_path / "out")

    named = {Path(problem.file).name: problem.reason for problem in problems}
    assert set(named) == set(BROKEN)
    assert all(named.values())
    assert "no column 'start_ns'" in named["no start.parquet"]
    assert "has the type string" in named["text times.parquet"]
    assert "rows are lost" in named["middle [1].parquet"]
    assert "is empty" in named["empty.parquet"]
    runs = pq.read_table(next((tmp_path / "out").glob("results-*/trajectories")))
    traces = {span.trace_id for span in SPANS}
    assert traces <= set(runs["trace_id"].to_pylist())
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()
