"""Requests that are decoded together give the rows that they give one by one."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from google.protobuf.json_format import ParseDict, ParseError
from hypothesis import given, settings, strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from oteval.base.durable_log import Position, Record
from oteval.base.errors import OtevalError
from oteval.ingest import decode_protobuf_traces
from oteval.ingest.otlp.wire_fields import PADDING, WireBuffer, read_fields
from oteval.serve.decoder_child import ChunkBuilder
from oteval.store.telemetry_rows import span_table

from ..ingest.builders import trace_requests

DATA = Path(__file__).parents[1] / "data"
IDS = {"traceId", "spanId", "parentSpanId"}


def together(requests: list[bytes], folder: Path) -> tuple[list[dict[str, Any]], list[str], int]:
    """Return rows, problems and the number of rejected requests, as the server decodes them."""
    builder = ChunkBuilder(lambda _: False, folder)
    for data in requests:
        builder.add(Record("traces", "protobuf", 1, data, Position(0, 1)))
    chunk = builder.build(Position(0, 1), 0)
    chunk.spans.validate(full=True)
    return chunk.spans.drop_columns(["seq"]).to_pylist(), chunk.problems, chunk.rejected


def one_by_one(requests: list[bytes]) -> tuple[list[dict[str, Any]], list[str], int]:
    """Return the same, decoded into an object for each span."""
    tables, problems, rejected = [span_table((), 0)], [], 0
    for data in requests:
        try:
            decoded = decode_protobuf_traces(data)
        except OtevalError:
            rejected += 1
            continue
        tables.append(span_table(decoded.spans, 0))
        problems += decoded.problems
    rows = pa.concat_tables(tables).drop_columns(["seq"]).to_pylist()
    return rows, problems[:20], rejected


def assert_equal(requests: list[bytes], folder: Path) -> None:
    rows, problems, rejected = together(requests, folder)
    expected_rows, expected_problems, expected_rejected = one_by_one(requests)
    assert rows == expected_rows
    assert rejected == expected_rejected
    assert [
        problem for problem in problems if not problem.startswith("kept in ")
    ] == expected_problems


@settings(max_examples=150, deadline=None)
@given(st.lists(trace_requests, min_size=1, max_size=4))
@pytest.mark.slow
def test_random_requests(tmp_path_factory: pytest.TempPathFactory, sent: list[Any]) -> None:
    """Any requests, valid or not, give equal rows and problems in the same order."""
    folder = tmp_path_factory.getbasetemp() / "rejected"
    assert_equal([request.SerializeToString() for request in sent], folder)


@settings(max_examples=300, deadline=None)
@given(trace_requests, st.integers(0, 1 << 16), st.binary(max_size=3), st.integers(0, 3))
@pytest.mark.slow
def test_damaged_requests(
    tmp_path_factory: pytest.TempPathFactory, sent: Any, at: int, inserted: bytes, cut: int
) -> None:
    """A corrupted request is read in the same way, or rejected by both decoders."""
    folder = tmp_path_factory.getbasetemp() / "rejected"
    data = sent.SerializeToString()
    at %= len(data) + 1
    assert_equal([data[:at] + inserted + data[at + cut :]], folder)


def test_real_captures(tmp_path: Path) -> None:
    """All captures that protobuf can encode, decoded together, give equal rows."""
    requests = []
    for path in sorted(DATA.glob("*/**/*.json*")):
        for line in path.read_bytes().splitlines():
            try:
                document = orjson.loads(line)
                message = ParseDict(_with_bytes(document), ExportTraceServiceRequest())
            except (ValueError, ParseError, AttributeError, TypeError):
                continue
            if message.resource_spans:
                requests.append(message.SerializeToString())

    assert len(requests) > 25
    assert_equal(requests, tmp_path)


def _with_bytes(value: Any) -> Any:
    """Return OTLP/JSON with ids in base64, as protobuf's own mapping has them."""
    if isinstance(value, list):
        return [_with_bytes(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64encode(bytes.fromhex(item)).decode() if key in IDS else _with_bytes(item)
        for key, item in value.items()
    }


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 400])
def test_a_span_of_many_attributes(tmp_path: Path, count: int) -> None:
    """A span of hundreds of attributes among small ones is read whole."""
    sent = ExportTraceServiceRequest()
    spans = sent.resource_spans.add().scope_spans.add().spans
    for number in range(1, 81):
        span = spans.add(trace_id=bytes([number] * 16), span_id=bytes([number] * 8), name="é")
        for index in range(count if number == 40 else 2):
            attribute = span.attributes.add(key=f"gen_ai.prompt.{index}.content.of.a.long.key")
            attribute.value.string_value = "ü" * index
    assert_equal([sent.SerializeToString()], tmp_path)


def test_a_character_divided_between_two_texts(tmp_path: Path) -> None:
    """Two texts that are valid UTF-8 only when joined are rejected, as by protobuf."""
    sent = ExportTraceServiceRequest()
    spans = sent.resource_spans.add().scope_spans.add().spans
    for number in (1, 2):
        spans.add(trace_id=bytes([number] * 16), span_id=bytes([number] * 8), name="abcd")
    data = sent.SerializeToString().replace(b"abcd", b"abc\xc3", 1).replace(b"abcd", b"\xa9bcd")

    rows, _, rejected = together([data], tmp_path)

    assert rows == []
    assert rejected == 1


def test_keys_of_equal_sums_are_told_apart() -> None:
    """Texts that differ only in the middle are different."""
    texts = [b"gen_ai.a" + middle + b".content" for middle in (b"12345678", b"12345679")]
    texts += [b"", b"a", b"b", b"ab", b"1234567", b"12345678", *texts]
    data = b"".join(texts)
    buffer = WireBuffer(data + PADDING)
    ends = [sum(map(len, texts[: index + 1])) for index in range(len(texts))]
    end = np.array(ends)
    start = end - np.array([len(text) for text in texts])

    first, which = buffer.distinct(start, end)

    assert [texts[first[index]] for index in which] == texts
    assert len(first) == len(set(texts))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 80))
def test_any_bytes_are_fields_or_left_out(data: bytes, cut: int) -> None:
    """Fields never extend beyond their message, whatever the bytes are."""
    cut = min(cut, len(data))
    start, end = np.array([0, cut]), np.array([cut, len(data)])

    fields = read_fields(WireBuffer(data + PADDING), start, end)

    assert (fields.start >= start[fields.message]).all()
    assert (fields.end <= end[fields.message]).all()
    assert (fields.start <= fields.end).all()
