"""Jobs on files: sources, the folder of results, judges that share answers and limits."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oteval.base.errors import InputError
from oteval.extras.spark import map_columns, output as spark_output, read_traces, score_files
from oteval.scoring import export_parquet, refresh, score
from oteval.scoring.config import Config, parse_config
from oteval.store import ShardedStore, Store

from ...make import CAPTURES, TRACES, alike, capture
from ...model_server import Server, serving, shown, verdict
from ...scoring.test_trace_scores import plain

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
    pytest.mark.filterwarnings("default"),
]
RULES = """
evaluators:
  - {name: errors, type: tool_errors}
  - {name: calls, type: trajectory_match, mode: superset, reference: reference.json}
gates: [{evaluator: errors, min_pass_rate: 0.01}]
"""
REFERENCE = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Return a session that runs a failed task again."""
    sql = pytest.importorskip("pyspark.sql", reason="PySpark is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        builder = sql.SparkSession.builder.master("local[2,4]")
        for name, value in {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
        }.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        yield session
        session.stop()


def stored_rows(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of trajectories and scores of a database or folder of results."""
    with ShardedStore([str(path)]) as store:
        runs = [row for batch in store.trajectories.export() for row in batch.to_pylist()]
        scores = [row for batch in store.scores.export() for row in batch.to_pylist()]
    return [{**row, "rev": 1} for row in plain(runs)], [{**row, "rev": 1} for row in plain(scores)]


def ids(frame: Any) -> Counter[tuple[str, str]]:
    return Counter(
        (row.trace_id, row.span_id) for row in frame.select("trace_id", "span_id").collect()
    )


def test_all_sources_give_their_spans(spark: Any, tmp_path: Path):
    """An export, an archive, ClickHouse's tables, a folder of JSON files, and another table."""
    spans, logs = capture("genai_openai_chat_eventonly")
    wanted = {(span.trace_id, span.span_id) for span in spans}
    with Store(tmp_path / "db.duckdb") as store:
        store.spans.write(spans, logs)
        refresh(store)
        export_parquet(store, tmp_path / "export")
        store.archive.move(tmp_path / "archive", 1 << 62)
    clickhouse = tmp_path / "clickhouse"
    clickhouse.mkdir()
    table = {
        "TraceId": [span.trace_id for span in spans],
        "SpanId": [span.span_id for span in spans],
        "SpanName": [span.name for span in spans],
        "Timestamp": pa.array([span.start_ns for span in spans], pa.timestamp("ns")),
        "Duration": [span.end_ns - span.start_ns for span in spans],
        "SpanAttributes": pa.array(
            [[(k, str(v)) for k, v in span.attributes.items()] for span in spans],
            pa.map_(pa.string(), pa.string()),
        ),
    }
    # Spark reads no timestamps in ns, so that ClickHouse's are written with microseconds.
    micros = {**table, "Timestamp": table["Timestamp"].cast(pa.timestamp("us", "UTC"), safe=False)}
    pq.write_table(pa.table(micros), clickhouse / "otel_traces.parquet")
    files = tmp_path / "files"
    files.mkdir()
    for name in ("genai_openai_chat_eventonly.json", "genai_openai_chat_eventonly.logs.json"):
        text = json.dumps(json.loads((TRACES / name).read_text()))
        (files / f"{name}.gz").write_bytes(gzip.compress(f"{text}\n{{broken\n".encode()))

    for source in ("export", "archive", "clickhouse", "files"):
        found = read_traces(spark, [tmp_path / source])
        assert set(ids(found.spans)) == wanted, source
        if source != "clickhouse":
            assert found.logs is not None
            assert found.logs.count() == len(logs), source
        problems = [(Path(one.file).name, one.parts) for one in found.problems()]
        broken = [(path.name, 1) for path in sorted(files.iterdir())]
        assert problems == (broken if source == "files" else [])
    frame = spark.read.parquet(str(clickhouse)).withColumnRenamed("TraceId", "my id")
    mapped = map_columns(
        frame,
        {
            "trace_id": "my id",
            "span_id": "SpanId",
            "name": "SpanName",
            "start": "Timestamp",
            "duration_ns": "Duration",
            "attributes": "SpanAttributes",
        },
    )
    assert set(ids(mapped.spans)) == wanted


def test_a_path_without_traces_is_named(spark: Any, tmp_path: Path):
    """A missing path, an empty folder, and a Parquet file of another kind."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    (tmp_path / "empty").mkdir()

    for path, reason in (
        (tmp_path / "gone", "no such file"),
        (tmp_path / "empty", "a folder without files"),
        (tmp_path / "other.parquet", "the columns a has no spans or log records"),
    ):
        with pytest.raises(InputError, match=reason):
            read_traces(spark, [path])


def test_a_folder_of_results_has_the_rows_of_a_store(spark: Any, tmp_path: Path):
    """All captures, with a reference in a file: equal in all columns, partitioned by day."""
    (tmp_path / "reference.json").write_text(json.dumps(REFERENCE))
    config = parse_config(RULES)
    with Store(tmp_path / "db.duckdb") as store:
        for name in CAPTURES:
            store.spans.write(*capture(name))
        refresh(store)
        list(score(store, config, tmp_path))
        export_parquet(store, tmp_path / "export")

    problems = score_files(spark, [tmp_path / "export"], config, tmp_path / "out", base=tmp_path)

    assert problems == []
    found = stored_rows(tmp_path / "out")
    assert len(found[0]) > 100
    assert found == stored_rows(tmp_path / "db.duckdb")
    assert list((tmp_path / "out").glob("results-*/scores/date=*/*.parquet"))


@pytest.fixture
def model_server() -> Iterator[Server]:
    """Return a scripted model server."""
    with serving() as server:
        yield server


@pytest.fixture
def judged(tmp_path: Path, model_server: Server) -> Callable[..., Config]:
    """Return a function for a configuration with a judge, beside files of twelve runs."""
    with Store(tmp_path / "db.duckdb") as store:
        store.spans.write(alike(12, random.Random(3)))
        refresh(store)
        export_parquet(store, tmp_path / "export")

    def config(**options: Any) -> Config:
        judge = {
            "name": "kind",
            "type": "judge",
            "model": "openai:m",
            "prompt": "Kind? {outputs}",
            "base_url": model_server.url,
            "max_concurrency": 2,
            **options,
        }
        return parse_config(json.dumps({"evaluators": [judge]}))

    return config


def workers_of(spark: Any) -> list[int]:
    """Return the Python workers of a session: the processes below those of its JVM."""
    above: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            above[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
    jvm = spark.sparkContext._gateway.proc.pid
    daemons = {child for child, parent in above.items() if parent == jvm}
    return [child for child, parent in above.items() if parent in daemons]


def test_a_task_that_fails_asks_nothing_again_that_was_written(
    spark: Any, tmp_path: Path, judged: Callable[..., Config], model_server: Server
):
    """The workers are killed in the middle: every run is judged, each answer written once."""
    killed: list[int] = []

    def script(body: dict[str, Any], number: int) -> Any:
        if number == 5:
            for worker in workers_of(spark):
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)
        return verdict("question 0" in shown(body))

    model_server.script = script
    score_files(spark, [tmp_path / "export"], judged(), tmp_path / "out")

    runs, scores = stored_rows(tmp_path / "out")
    assert killed
    assert len(scores) == len(runs) > 12
    assert {row["status"] for row in scores} == {"ok"}
    written = [
        json.loads(line)["key"]
        for file in (tmp_path / "out" / "judge_calls").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert len(written) == len(set(written))
    # Two questions were under way when the workers were killed.
    assert len(written) <= len(model_server.requests) <= len(written) + 4


def test_a_job_that_runs_again_asks_nothing_that_was_written(
    spark: Any,
    tmp_path: Path,
    judged: Callable[..., Config],
    model_server: Server,
    monkeypatch: pytest.MonkeyPatch,
):
    """The first job fails after the judges, and its folder is unfinished; the next one resumes."""

    def fail(*_: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(spark_output.Output, "finish", fail)
        with pytest.raises(OSError, match="no space left"):
            score_files(spark, [tmp_path / "export"], judged(), tmp_path / "out")
    asked = len(model_server.requests)
    assert asked
    assert (tmp_path / "out" / "unfinished.json").exists()

    score_files(spark, [tmp_path / "export"], judged(), tmp_path / "out")

    runs, scores = stored_rows(tmp_path / "out")
    assert len(model_server.requests) == asked
    assert len(scores) == len(runs)


def test_calls_over_the_limit_of_the_job_are_not_evaluated(
    spark: Any, tmp_path: Path, judged: Callable[..., Config], model_server: Server
):
    """No more requests than allowed, over all tasks; the other runs have the reason."""
    score_files(spark, [tmp_path / "export"], judged(), tmp_path / "out", max_judge_calls=3)

    _, scores = stored_rows(tmp_path / "out")
    assert len(model_server.requests) == 3
    rest = [row for row in scores if row["status"] != "ok"]
    assert rest
    assert {row["status"] for row in rest} == {"not_evaluated"}
    assert all("max_judge_calls of 3 is spent" in row["comment"] for row in rest)


def test_scores_of_judges_and_of_others_are_read_as_one(
    spark: Any, tmp_path: Path, judged: Callable[..., Config], model_server: Server
):
    """They have the same columns, with a timestamp beside each time."""
    model_server.script = lambda *_: verdict(True)
    evaluators = [*judged().evaluators, *parse_config(RULES).evaluators[:1]]
    config = judged().model_copy(update={"evaluators": evaluators})

    score_files(spark, [tmp_path / "export"], config, tmp_path / "out")

    runs, scores = stored_rows(tmp_path / "out")
    assert Counter(row["evaluator"] for row in scores) == {"kind": len(runs), "errors": len(runs)}
    schemas = {
        pq.read_schema(path).remove_metadata()
        for path in (tmp_path / "out").glob("results-*/*scores/date=*/*.parquet")
    }
    assert len(schemas) == 1
    assert {"start_time", "score_time"} <= set(schemas.pop().names)


def test_references_in_a_database_are_refused(spark: Any, tmp_path: Path):
    """The error names the evaluator, and no folder is begun."""
    rules = "evaluators: [{name: same, type: trajectory_match, reference: {name: gold}}]"

    with pytest.raises(InputError, match="'same' reads its reference from a database"):
        score_files(spark, [tmp_path], parse_config(rules), tmp_path / "out")

    assert not (tmp_path / "out").exists()
