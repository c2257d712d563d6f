"""Jobs in a session of this machine: files that cannot be read, results at addresses, mappings."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oteval.base.errors import InputError
from oteval.extras.spark import map_columns, read_traces, score, score_files, sources
from oteval.extras.spark.output import local_results
from oteval.scoring.config import parse_config
from oteval.scoring.otlp_requests import span_request
from oteval.store.telemetry_rows import span_table

from ...make import CAPTURES, TRACES, alike
from .test_job import stored_rows

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
    source = tmp_path / "my traces [1] #2"
    source.mkdir()
    (source / "good.parquet").write_bytes(WHOLE)
    for name, content in BROKEN.items():
        (source / name).write_bytes(content)

    problems = score_files(spark, [source], parse_config(RULES), tmp_path / "my out %20")

    named = {Path(problem.file).name: problem.reason for problem in problems}
    assert set(named) == set(BROKEN)
    assert all(named.values())
    assert "no column 'start_ns'" in named["no start.parquet"]
    assert "has the type string" in named["text times.parquet"]
    assert "rows are lost" in named["middle [1].parquet"]
    assert "is empty" in named["empty.parquet"]
    runs = pq.read_table(next((tmp_path / "my out %20").glob("results-*/trajectories")))
    traces = {span.trace_id for span in SPANS}
    assert traces <= set(runs["trace_id"].to_pylist())
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()


def test_large_files_are_read_by_their_content(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Protobuf is not divided into lines; of gzip that is cut off, the lines before that count."""
    monkeypatch.setattr(sources, "_WHOLE_BYTES", 100)
    documents = [json.loads((TRACES / f"{name}.json").read_text()) for name in CAPTURES[:12]]
    lines = "".join(f"{json.dumps(document)}\n" for document in documents).encode()
    packed = gzip.compress(lines, mtime=0)
    (tmp_path / "whole.jsonl").write_bytes(lines)
    (tmp_path / "cut off.json.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "spans.pb").write_bytes(span_request(SPANS).SerializeToString())
    (tmp_path / "garbage.pb").write_bytes(BROKEN["garbage.pb"])

    problems = score_files(spark, [tmp_path], parse_config(RULES), tmp_path / "out")

    named = {Path(problem.file).name: problem for problem in problems}
    assert set(named) == {"cut off.json.gz", "garbage.pb"}
    assert named["garbage.pb"].parts == 1
    assert "cannot be read to its end" in named["cut off.json.gz"].reason
    runs = pq.read_table(next((tmp_path / "out").glob("results-*/trajectories")))
    assert {span.trace_id for span in SPANS} <= set(runs["trace_id"].to_pylist())


def test_results_go_to_an_address(spark: Any, tmp_path: Path):
    """Another file system than that of this machine: the same rows; results there are refused."""
    (tmp_path / "good.parquet").write_bytes(WHOLE)
    box = tmp_path / "box"
    box.mkdir()
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    settings.set("fs.viewfs.mounttable.box.link./out", box.as_uri())
    address = "viewfs://box/out/results"
    config = parse_config(RULES)
    source = tmp_path / "good.parquet"

    score_files(spark, [source], config, address, time_ns=5)
    score_files(spark, [source], config, tmp_path / "here", time_ns=5)

    assert sorted(path.name for path in (box / "results").iterdir())[-1] == "results.json"
    with local_results(address, spark) as folder:
        assert stored_rows(folder) == stored_rows(tmp_path / "here")
    assert not folder.exists()
    with pytest.raises(InputError, match="viewfs://box/out/results: has results already"):
        score_files(spark, [source], config, address)
    score_files(spark, [source], config, address, overwrite=True)
    assert len(list((box / "results").glob("results-*"))) == 1


@pytest.mark.parametrize(
    ("out", "rules", "reason"),
    [
        ("foo://bucket/out", RULES, 'No FileSystem for scheme "foo"'),
        (
            "viewfs://box/out",
            "evaluators: [{name: j, type: judge, model: 'openai:m', prompt: 'ok? {outputs}'}]",
            "'j' asks a model, and judges share their answers in a folder",
        ),
    ],
)
def test_addresses_that_cannot_have_results_are_named(
    spark: Any, tmp_path: Path, out: str, rules: str, reason: str
):
    """The error has the address, before any file is read."""
    with pytest.raises(InputError, match=reason) as caught:
        score_files(spark, [tmp_path / "gone"], parse_config(rules), out)

    assert str(caught.value).startswith(f"{out}: ")


def test_only_what_was_kept_for_the_results_is_released(spark: Any, tmp_path: Path):
    """A table that the caller keeps stays, and so does what another scoring shares."""
    (tmp_path / "good.parquet").write_bytes(WHOLE)
    own = spark.range(7).cache()
    assert own.count() == 7
    traces = read_traces(spark, [tmp_path / "good.parquet"])
    first = score(traces.spans, parse_config(RULES), traces.logs)
    second = score(traces.spans, parse_config(RULES), traces.logs)
    runs = second.trajectories.count()

    first.release()

    assert own.storageLevel.useMemory
    assert second.trajectories.count() == runs == first.trajectories.count()
    second.release()
    traces.release()
    assert own.storageLevel.useMemory
    own.unpersist()
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()


def test_nested_columns_are_mapped(spark: Any):
    """Through structs and maps; a column whose own name has dots comes first."""
    table = spark.sql(
        "SELECT named_struct('trace', repeat('1', 32), 'span.id', repeat('2', 16)) AS ids, "
        "'chat m' AS `span.name`, named_struct('name', 'wrong') AS span, "
        "map('from', timestamp '2026-11-20 08:00:00', "
        "'to', timestamp '2026-11-20 08:00:02') AS at, "
        "named_struct('attrs', map('gen_ai.usage.input_tokens', '12')) AS rest, "
        "named_struct('deep', named_struct('attrs', map('service.name', 'desk'))) AS resource"
    )
    columns = {
        "trace_id": "ids.trace",
        "span_id": "ids.span.id",
        "name": "span.name",
        "start": "at.from",
        "end": "at.to",
        "attributes": "rest.attrs",
        "resource": "resource.deep.attrs",
    }

    (span,) = map_columns(table, columns).spans.collect()

    assert (span.trace_id, span.span_id, span.name) == ("1" * 32, "2" * 16, "chat m")
    assert span.end_ns - span.start_ns == 2_000_000_000
    assert json.loads(span.resource) == {"service.name": "desk"}
    assert span.input_tokens == 12
    with pytest.raises(InputError, match=r"resource is 'resource\.flat', but the table has ids"):
        map_columns(table, {**columns, "resource": "resource.flat"})
