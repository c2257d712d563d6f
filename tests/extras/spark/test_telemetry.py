"""What executors decode: files, lines of JSON and other tables, without a JVM."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from oteval.base.errors import InputError
from oteval.extras.spark.columns import clickhouse_names
from oteval.extras.spark.telemetry import decode_files, decode_lines, decode_tables
from oteval.ingest import read
from oteval.store.telemetry_rows import SPAN_COLUMNS, spans_of

from ...make import TRACES

FILE = TRACES / "genai_openai_chat_eventonly.json"
LOGS = TRACES / "genai_openai_chat_eventonly.logs.json"


def rows(found: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in found for row in batch.to_pylist()]


def spans(found: list[dict[str, Any]]) -> list[Any]:
    names = SPAN_COLUMNS.split(", ")
    table = pa.Table.from_pylist([row["span"] for row in found if row["kind"] == "span"])
    return spans_of(table.select(names))


def files(**content: bytes) -> list[pa.RecordBatch]:
    paths = [f"file:/data/{name}" for name in content]
    return [pa.record_batch({"path": paths, "content": list(content.values())})]


def lines(path: str, start: int, *values: str) -> pa.RecordBatch:
    count = len(values)
    columns = {"path": [path] * count, "start": [start] * count, "value": list(values)}
    return pa.record_batch(columns)


def test_a_file_gives_the_spans_and_log_records_of_ingest():
    """Plain and compressed, with the place of the file in the order of all files."""
    batches = files(a=FILE.read_bytes(), b=gzip.compress(LOGS.read_bytes()))

    found = rows(decode_files(batches, {"/data/a": 0, "/data/b": 1}))

    expected = [span for batch in read(FILE) for span in batch.spans]
    records = [record for batch in read(LOGS) for record in batch.logs]
    assert [(s.span_id, s.attributes) for s in spans(found)] == [
        (s.span_id, s.attributes) for s in expected
    ]
    kinds = Counter(row["kind"] for row in found)
    assert kinds == {"span": len(expected), "log": len(records)}
    assert all(row["log"]["seq"] > 1 << 39 for row in found if row["kind"] == "log")


def test_bad_lines_are_counted_by_file_and_the_others_kept():
    """Damage, another document and an empty file each give a row with the reason."""
    whole = json.dumps(json.loads(FILE.read_text()))
    batches = [
        lines("file:///data/a%20b", 0, whole, "{broken", ""),
        lines("file:///data/a%20b", 900, '{"other": 1}'),
        lines("file:///data/c", 0, "no json"),
    ]

    found = rows(decode_lines(batches, {"/data/a b": 0, "/data/c": 1}))

    problems = [row["problem"] for row in found if row["kind"] == "problem"]
    assert Counter(one["file"] for one in problems) == {"/data/a b": 2, "/data/c": 1}
    assert "not valid JSON" in problems[0]["reason"]
    assert "keys 'other'" in problems[1]["reason"]
    assert len(spans(found)) == len([s for batch in read(FILE) for s in batch.spans])


def test_numbers_of_spans_follow_the_order_of_files_and_blocks():
    """Of repeated spans, the first of the first file counts, however tasks divide the files."""
    whole = json.dumps(json.loads(FILE.read_text()))
    ranks = {"/data/a": 0, "/data/b": 1}
    first = rows(decode_lines([lines("file:///data/a", 0, whole)], ranks))
    later = rows(decode_lines([lines("file:///data/a", len(whole), whole)], ranks))
    other = rows(decode_lines([lines("file:///data/b", 0, whole)], ranks))

    numbers = [
        [row["span"]["seq"] for row in found if row["kind"] == "span"]
        for found in (first, later, other)
    ]

    assert max(numbers[0]) < min(numbers[1])
    assert max(numbers[1]) < min(numbers[2])


def test_rows_of_another_table_are_spans_by_a_mapping():
    """Timestamps, maps and kinds by name; a row without a valid id is reported by its column."""
    start = datetime(2026, 11, 20, 8, tzinfo=UTC)
    columns = {"trace_id": "trace", "span_id": "id", "name": "title", "start": "begun"}
    names = clickhouse_names({**columns, "attributes": "attrs", "duration_ns": "ns"})
    values = {
        "trace": ["1" * 32, "?"],
        "id": ["2" * 16, "3" * 16],
        "title": ["chat m", "x"],
        "begun": pa.array([start, start], pa.timestamp("us", "UTC")),
        "attrs": pa.array(
            [[("gen_ai.usage.input_tokens", "12"), ("k", "v")], []],
            pa.map_(pa.string(), pa.string()),
        ),
        "ns": [5, 5],
    }
    batch = pa.record_batch({name: values[column] for name, column in names.items()})

    found = rows(decode_tables([batch], "the table", {k: repr(v) for k, v in names.items()}))

    (one,) = spans(found)
    assert (one.trace_id, one.name, one.end_ns - one.start_ns) == ("1" * 32, "chat m", 5)
    assert one.start_ns == int(start.timestamp()) * 10**9
    assert one.attributes == {"gen_ai.usage.input_tokens": 12, "k": "v"}
    (problem,) = [row["problem"] for row in found if row["kind"] == "problem"]
    assert problem["file"] == "the table"
    assert "'trace' '?' is not a valid id" in problem["reason"]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"trace": "t"}, "unknown field 'trace'"),
        ({"trace_id": "t"}, "'span_id' is missing"),
        ({"trace_id": "t", "span_id": "s", "name": "s", "start": "s"}, "'end' or 'duration_ns'"),
    ],
)
def test_a_wrong_mapping_is_named(columns: dict[str, str], reason: str):
    """The error names the field."""
    with pytest.raises(InputError, match=reason):
        clickhouse_names(columns)
