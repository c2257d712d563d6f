"""Rows of ClickHouse's otel tables give the original spans and log records."""

from __future__ import annotations

import io
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from oteval.base.errors import InputError
from oteval.ingest import Batch, read
from oteval.ingest.containers import decode
from oteval.model import Event, Link, LogRecord, Span

from .containers import json_row, lines, log_row, moment, parquet, trace_row, unflattened

T = 1_700_000_000_123_456_789
FULL = Span(
    "5b8efff798038103d269b633813fc60c",
    "eee19b7ec3c1b174",
    "00000000000000aa",
    "chat",
    3,
    T,
    T + 7,
    2,
    "it broke",
    {"s": "x", "a.b": "y", "gen_ai.usage.input_tokens": 12},
    (Event("e", T + 1, {"k": "v"}), Event("f", T + 2, {})),
    (Link("a" * 32, "b" * 16, {"l": "m"}),),
    "lib",
    "1.2",
    resource={"service.name": "svc", "host.name": "h"},
    trace_state="k=v",
)
LOG = LogRecord(
    FULL.trace_id,
    FULL.span_id,
    T,
    T,
    "gen_ai.choice",
    9,
    "INFO",
    {"content": "hi", "n": [1]},
    {"event.name": "gen_ai.choice"},
    "lib",
    "1",
    {"service.name": "svc"},
)


def load(path: Path, data: bytes) -> tuple[list[Batch], list[str]]:
    file = path / "x.parquet"
    file.write_bytes(data)
    batches = list(read(file, chunk=8))
    problems = [str(p).removeprefix(f"{path}/") for batch in batches for p in batch.problems]
    return batches, problems


def spans(batches: list[Batch]) -> list[Span]:
    return [span for batch in batches for span in batch.spans]


ROW = trace_row(FULL)
FORMS: dict[str, bytes] = {
    "lines": lines([ROW]),
    "old": lines([trace_row(FULL, old=True)]),
    "json": lines([json_row(FULL)]),
    "json_text": lines([ROW | {"SpanAttributes": orjson.dumps(FULL.attributes).decode()}]),
    "unflattened": lines([unflattened(ROW)]),
    "tuples": lines(
        [
            unflattened(ROW)
            | {
                "Events": [[moment(T + 1), "e", {"k": "v"}], [moment(T + 2), "f", {}]],
                "Links": [["a" * 32, "b" * 16, "", {"l": "m"}]],
            }
        ]
    ),
    "pretty": orjson.dumps(ROW, option=orjson.OPT_INDENT_2),
    "list": orjson.dumps([ROW], option=orjson.OPT_INDENT_2),
    "answer": orjson.dumps({"meta": [{"name": "TraceId"}], "data": [ROW], "rows": 1}),
    "pretty_answer": orjson.dumps({"meta": [], "data": [ROW]}, option=orjson.OPT_INDENT_2),
    "parquet": parquet([ROW]),
    "parquet_old": parquet([trace_row(FULL, old=True) | {"Duration": 7}]),
    "parquet_unflattened": parquet([unflattened(ROW)]),
    "parquet_of_bytes": parquet([ROW], binary=True),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form(tmp_path: Path, form: str) -> None:
    """The span is the same for all versions of the table, and in all formats."""
    batches, told = load(tmp_path, FORMS[form])

    assert spans(batches) == [FULL]
    assert told == []


@pytest.mark.parametrize("data", [lines([log_row(LOG)]), parquet([log_row(LOG)])])
def test_log_records(tmp_path: Path, data: bytes) -> None:
    """The body of a log record is an object again."""
    batches, told = load(tmp_path, data)

    assert [log for batch in batches for log in batch.logs] == [LOG]
    assert told == []


def test_the_name_of_an_event_in_old_tables() -> None:
    """Tables without a column for the event's name have it among the attributes."""
    row = log_row(LOG)
    del row["EventName"]

    assert decode(row).logs == [LOG]


@pytest.mark.parametrize(
    ("body", "expected"),
    [("", None), ("text", "text"), ("{cut", "{cut"), ('["a"]', ["a"]), ("12", "12")],
)
def test_bodies(body: str, expected: Any) -> None:
    """Only objects and lists in a body are parsed; a number may have been text."""
    (log,) = decode(log_row(LOG) | {"Body": body}).logs

    assert log.body == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-11-14 22:13:20.123456789", T),
        ("2023-11-14T22:13:20.123456789Z", T),
        ("2023-11-15 00:13:20.123456789+02:00", T),
        ("2023-11-14 22:13:20", T // 10**9 * 10**9),
        ("2023-11-14 22:13:20.123", T // 10**6 * 10**6),
        ("1700000000.123456789", T),
        ("1700000000", T // 10**9 * 10**9),
        (1_700_000_000, T // 10**9 * 10**9),
        (1_700_000_000_123, T // 10**6 * 10**6),
        (1_700_000_000_123_456, T // 10**3 * 10**3),
        (T, T),
        (None, 0),
    ],
)
def test_times(text: Any, expected: int) -> None:
    """All formats of times in ClickHouse are read, to the nanosecond."""
    decoded = decode(ROW | {"Timestamp": text, "Duration": 0})

    assert decoded.spans[0].start_ns == expected
    assert decoded.problems == []


def test_the_service_may_be_only_in_its_column() -> None:
    """A row whose resource lacks the service takes it from the column."""
    (span,) = decode(ROW | {"ResourceAttributes": {"a": "b"}}).spans

    assert span.resource == {"a": "b", "service.name": "svc"}


def test_nulls_in_a_json_column() -> None:
    """A path that is null in a row is not an attribute."""
    (span,) = decode(ROW | {"SpanAttributes": {"a": {"b": None, "c": 1}}}).spans

    assert span.attributes == {"a.c": 1}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_units_of_times_in_parquet(tmp_path: Path, unit: str) -> None:
    """A time is the same in columns of all precisions."""
    table = pq.read_table(io.BytesIO(parquet([ROW])))
    place = table.schema.get_field_index("Timestamp")
    column = table["Timestamp"].cast(pa.timestamp(unit, "UTC"), safe=False)
    sink = pa.BufferOutputStream()
    pq.write_table(table.set_column(place, "Timestamp", column), sink)
    scale = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]

    (span,) = spans(load(tmp_path, bytes(sink.getvalue()))[0])

    assert span.start_ns == T // scale * scale


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"TraceId": "x"}, "TraceId 'x' is not a valid id in hex; span skipped"),
        ({"SpanId": None}, "SpanId None is not a valid id in hex; span skipped"),
        ({"Timestamp": "yesterday"}, "Timestamp 'yesterday' is not a time; taken as 0"),
        ({"Timestamp": "2023-99-99 00:00:00"}, "is not a time; taken as 0"),
        ({"Duration": "-5"}, "Duration '-5' is not a number"),
        ({"SpanKind": "odd"}, "SpanKind 'odd' is not a number from 0 to 5; taken as 0"),
        ({"StatusCode": []}, "StatusCode [] is not a number from 0 to 2; taken as 0"),
        ({"ParentSpanId": "z"}, "ParentSpanId 'z' is not a span id; left out"),
        ({"SpanAttributes": 7}, "SpanAttributes is the value 7 instead of a map; left out"),
        ({"SpanAttributes": "{cut"}, "SpanAttributes is text instead of a map; left out"),
        ({"Events": [5]}, "1 element of Events is not an object; left out"),
        ({"Links": "x"}, "Links is text instead of a list; left out"),
        ({"Links": [{}]}, "a link without valid ids; left out"),
    ],
)
def test_invalid_fields_are_reported(fields: dict[str, Any], reason: str) -> None:
    """An invalid field is one problem that names the span and the column."""
    decoded = decode(ROW | fields)

    assert len(decoded.problems) == 1
    assert decoded.problems[0].startswith("span 'chat': ")
    assert reason in decoded.problems[0]
    assert len(decoded.spans) == ("skipped" not in reason)


def test_a_bad_row_of_a_parquet_file_is_reported(tmp_path: Path) -> None:
    """The row is reported by its number, and all other rows are read, in all row groups."""
    rows = [trace_row(replace(FULL, span_id=f"{n:016x}")) for n in range(1, 20)]
    rows[11]["TraceId"] = "none"

    batches, told = load(tmp_path, parquet(rows, row_group=5))

    assert [int(s.span_id, 16) for s in spans(batches)] == [*range(1, 12), *range(13, 20)]
    assert told == [
        "x.parquet: row 12: span 'chat': TraceId 'none' is not a valid id in hex; span skipped"
    ]


def test_a_bad_line_is_reported(tmp_path: Path) -> None:
    """A truncated line is reported by its number, and the rows around it are read."""
    rows = [trace_row(replace(FULL, span_id=f"{n:016x}")) for n in range(1, 4)]
    first, second, third = lines(rows).splitlines()

    for cut in (1, 20, second.index(b'"SpanAttributes":') + 17, len(second) - 1):
        batches, told = load(tmp_path, b"\n".join([first, second[:cut], third]))

        assert [int(s.span_id) for s in spans(batches)] == [1, 3], second[:cut]
        assert len(told) == 1


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    """ClickHouse's text may be any bytes; those that are not UTF-8 are replaced."""
    table = pq.read_table(io.BytesIO(parquet([ROW, ROW], binary=True)))
    names = pa.array([b"a\xff", b"b"], pa.binary())
    place = table.schema.get_field_index("SpanName")
    for kind in (pa.binary(), pa.string()):
        column = pa.Array.from_buffers(kind, 2, names.buffers())
        sink = pa.BufferOutputStream()
        pq.write_table(table.set_column(place, "SpanName", column), sink)

        batches, told = load(tmp_path, bytes(sink.getvalue()))

        assert [s.name for s in spans(batches)] == ["a\ufffd", "b"]
        assert told == []


def test_damaged_parquet_files(tmp_path: Path) -> None:
    """A damaged row group is reported, and the others are read; without a footer nothing is."""
    rows = [trace_row(replace(FULL, span_id=f"{n:016x}")) for n in range(1, 31)]
    rows[29]["TraceId"] = "none"
    whole = parquet(rows, row_group=10)
    place = pq.ParquetFile(io.BytesIO(whole)).metadata.row_group(1).column(1)
    start = place.dictionary_page_offset or place.data_page_offset
    damaged = whole[:start] + b"\xff" * 20 + whole[start + 20 :]

    batches, told = load(tmp_path, damaged)

    assert [int(s.span_id, 16) for s in spans(batches)] == [*range(1, 11), *range(21, 30)]
    assert len(told) == 2
    assert told[0].startswith("x.parquet: rows 11 to 20 cannot be read (")
    assert told[1].startswith("x.parquet: row 30: ")
    for cut in (4, 100, len(whole) - 1):
        with pytest.raises(InputError, match=r"x\.parquet: a damaged Parquet file \("):
            load(tmp_path, whole[:cut])


def test_another_parquet_file_is_refused(tmp_path: Path) -> None:
    """Another table is one error that names its columns."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1], "b": [2]}), sink)

    with pytest.raises(InputError, match="a Parquet file with the columns 'a', 'b' has no spans"):
        load(tmp_path, bytes(sink.getvalue()))


def test_a_parquet_file_without_rows(tmp_path: Path) -> None:
    """A table without rows is not an error."""
    table = pq.read_table(io.BytesIO(parquet([ROW]))).slice(0, 0)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)

    assert load(tmp_path, bytes(sink.getvalue())) == ([], [])


def test_parquet_from_a_pipe_or_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Parquet file that is not seekable is read from a temporary copy."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: int) -> int:
            raise io.UnsupportedOperation("a pipe")

    data = parquet([ROW])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Pipe(data)))

    assert spans(list(read("-"))) == [FULL]
    assert not sys.stdin.buffer.closed
    assert spans(load(tmp_path, pa.Codec("zstd").compress(data, asbytes=True))[0]) == [FULL]


@pytest.mark.slow
def test_progress_and_memory_of_parquet(tmp_path: Path) -> None:
    """One row group of many rows is read in parts, and the bytes read never decrease."""
    random = Random(1)
    texts = [random.randbytes(1000).hex() for _ in range(20_000)]
    rows = [trace_row(replace(FULL, attributes={"a": value})) for value in texts]
    file = tmp_path / "x"
    file.write_bytes(parquet(rows))
    del rows, texts
    assert file.stat().st_size > 18 << 20

    pa.default_memory_pool().release_unused()
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    counts, most = [], 0
    for batch in read(file, chunk=512):
        counts.append(batch.bytes_read)
        most = max(most, pa.total_allocated_bytes() - before)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak + most < 14 << 20
    assert counts == sorted(counts)
    assert len(counts) > 5
    assert counts[-1] == file.stat().st_size


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from(["Timestamp", "Name", "key", "TraceId"]), inner)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*ROW, "Events", "Links"]), junk, max_size=6))
def test_arbitrary_fields_never_raise(fields: dict[str, Any]) -> None:
    """Arbitrary values in a row are read or reported."""
    decoded = decode(ROW | fields)

    assert len(decoded.spans) == 1 or decoded.problems
    for span in decoded.spans:
        assert 0 <= span.start_ns <= span.end_ns < 2**63
        assert all(isinstance(key, str) for key in span.attributes)


@given(st.dictionaries(st.sampled_from([*log_row(LOG)]), junk, max_size=6))
def test_arbitrary_fields_of_logs_never_raise(fields: dict[str, Any]) -> None:
    """The same is true for log records, of which none is ever left out."""
    assert len(decode(log_row(LOG) | fields).logs) == 1
