"""Every container gives the same agents for the same spans."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from oteval.ingest import json_documents, read
from oteval.ingest.containers import decode
from oteval.model import LogRecord, Span, Trajectory
from oteval.reconstruct import reconstruct

from ..make import CAPTURES, TRACES, capture
from .builders import framed, request, span
from .containers import (
    base64_ids,
    jaeger,
    jaeger_documents,
    json_row,
    lines,
    log_row,
    parquet,
    text,
    trace_row,
    unflattened,
    with_old_names,
)

Files = list[bytes]
PRETTY = orjson.OPT_INDENT_2


def requests(name: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return a capture's OTLP/JSON request of spans and that of log records."""
    logs = TRACES / f"{name}.logs.json"
    read_logs = orjson.loads(logs.read_bytes()) if logs.exists() else None
    return orjson.loads((TRACES / f"{name}.json").read_bytes()), read_logs


def messages(name: str) -> list[bytes]:
    """Return a capture's requests as protobuf."""
    traces, logs = requests(name)
    out = [ParseDict(base64_ids(traces), ExportTraceServiceRequest(), ignore_unknown_fields=True)]
    if logs:
        out.append(ParseDict(base64_ids(logs), ExportLogsServiceRequest()))
    return [message.SerializeToString() for message in out]


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def of_traces(traces: Any, name: str) -> Files:
    """Return a container of spans, with the log records of the capture unchanged."""
    logs = requests(name)[1]
    return [orjson.dumps(traces), *([orjson.dumps(logs)] if logs else [])]


def otlp_logs(records: Sequence[LogRecord], name: str) -> Files:
    return [(TRACES / f"{name}.logs.json").read_bytes()] if records else []


def log_rows(records: Sequence[LogRecord]) -> list[dict[str, Any]]:
    return [log_row(record) for record in records]


Make = Callable[[str, list[Span], list[LogRecord]], Files]
# Containers that hold everything.
EXACT: dict[str, Make] = {
    "tempo": lambda name, *_: of_traces({"batches": requests(name)[0]["resourceSpans"]}, name),
    "tempo_v2": lambda name, *_: of_traces(
        {"trace": base64_ids(requests(name)[0]), "status": "COMPLETE"}, name
    ),
    "tempo_old": lambda name, *_: of_traces(with_old_names(requests(name)[0]), name),
    "jaeger_v3": lambda name, *_: of_traces({"result": requests(name)[0]}, name),
    "collector_lines": lambda name, *_: [
        b"\n".join(orjson.dumps(one) for one in requests(name) if one)
    ],
    "collector_proto": lambda name, *_: [framed(*messages(name))],
    "collector_proto_zstd": lambda name, *_: [framed(*map(zstd, messages(name)))],
    "collector_json_zstd": lambda name, *_: [
        framed(*(zstd(orjson.dumps(one)) for one in requests(name) if one))
    ],
}
# Jaeger holds microseconds, and lists and objects as text; it holds no log records.
JAEGER: dict[str, Make] = {
    "jaeger": lambda name, spans, logs: [
        orjson.dumps(jaeger(spans, short_ids=True)),
        *otlp_logs(logs, name),
    ],
    "jaeger_pretty": lambda name, spans, logs: [
        orjson.dumps(jaeger(spans), option=PRETTY),
        *otlp_logs(logs, name),
    ],
    "jaeger_elasticsearch": lambda name, spans, logs: [
        lines(jaeger_documents(spans)),
        *otlp_logs(logs, name),
    ],
}
# ClickHouse's maps hold all as text, and its tables no counts of what was dropped.
CLICKHOUSE: dict[str, Make] = {
    "clickhouse_lines": lambda _, spans, logs: [
        lines(map(trace_row, spans)) + lines(log_rows(logs))
    ],
    "clickhouse_json_type": lambda _, spans, logs: [
        lines(map(json_row, spans)) + lines(log_rows(logs))
    ],
    "clickhouse_old": lambda _, spans, logs: [
        lines(trace_row(item, old=True) for item in spans) + lines(log_rows(logs))
    ],
    "clickhouse_parquet": lambda _, spans, logs: [
        parquet([trace_row(item) for item in spans], row_group=3),
        *([parquet(log_rows(logs))] if logs else []),
    ],
    "clickhouse_parquet_unflattened": lambda _, spans, logs: [
        parquet([unflattened(trace_row(item)) for item in spans], binary=True),
        *([parquet(log_rows(logs), binary=True)] if logs else []),
    ],
}
WITH_COUNTS = ("openinference_attrcount_28",)


def put_and_read(
    path: Path, name: str, make: Make
) -> tuple[list[Span], list[LogRecord], list[Span], list[LogRecord]]:
    """Return a capture's spans and log records, and those read from a container of them."""
    spans, logs = capture(name)
    return spans, logs, *read_back(path, name, make, spans, logs)


def read_back(
    path: Path, name: str, make: Make, spans: list[Span], logs: list[LogRecord]
) -> tuple[list[Span], list[LogRecord]]:
    """Return what is read from a container of a capture's spans and log records."""
    found: list[Span] = []
    found_logs: list[LogRecord] = []
    for number, data in enumerate(make(name, spans, logs)):
        file = path / f"{number}"
        file.write_bytes(data)
        for batch in read(file):
            assert batch.problems == []
            found += batch.spans
            found_logs += batch.logs
    return found, found_logs


def plain(value: Any, *, times: bool) -> Any:
    """Return a trajectory without its attributes, whose types a container may lose."""
    if isinstance(value, list):
        return [plain(item, times=times) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: plain(item, times=times)
        for key, item in value.items()
        if key != "attributes" and (times or not key.endswith("_ns"))
    }


def told(found: list[Trajectory], *, times: bool) -> Any:
    rows = [plain(trajectory.as_dict(), times=times) for trajectory in found]
    for row in rows:
        row["gaps"].sort(key=json.dumps)
    return sorted(rows, key=lambda row: row["trajectory_id"])


@pytest.mark.parametrize("name", CAPTURES)
def test_lossless_containers(tmp_path: Path, name: str) -> None:
    """Files of Tempo and the Collector give identical spans and log records."""
    before = capture(name)

    for container, make in EXACT.items():
        assert read_back(tmp_path, name, make, *before) == before, container


@pytest.mark.parametrize("name", CAPTURES)
def test_agents_from_jaeger(tmp_path: Path, name: str) -> None:
    """Spans from Jaeger give the same trajectories as the original spans."""
    spans, logs = capture(name)
    before = told(reconstruct(spans, logs), times=False)

    for container, make in JAEGER.items():
        found = reconstruct(*read_back(tmp_path, name, make, spans, logs))
        assert told(found, times=False) == before, container


@pytest.mark.parametrize("name", [name for name in CAPTURES if name not in WITH_COUNTS])
def test_agents_from_clickhouse(tmp_path: Path, name: str) -> None:
    """Spans from ClickHouse give the same times and trajectories as the original spans."""
    spans, logs = capture(name)
    times = [(item.start_ns, item.end_ns) for item in spans]
    before = told(reconstruct(spans, logs), times=True)

    for container, make in CLICKHOUSE.items():
        found, found_logs = read_back(tmp_path, name, make, spans, logs)
        assert [(item.start_ns, item.end_ns) for item in found] == times, container
        assert told(reconstruct(found, found_logs), times=True) == before, container


def test_clickhouse_loses_the_number_of_dropped_attributes(tmp_path: Path) -> None:
    """A span with dropped attributes is the same except for their number."""
    name = WITH_COUNTS[0]

    spans, _, found, _ = put_and_read(tmp_path, name, CLICKHOUSE["clickhouse_lines"])

    assert any(item.dropped_attributes for item in spans)
    assert not any(item.dropped_attributes for item in found)
    for one, other in zip(spans, found, strict=True):
        assert {k: text(v) for k, v in one.attributes.items()} == {
            k: text(v) for k, v in other.attributes.items()
        }


@pytest.mark.parametrize("container", [*EXACT, *JAEGER, *CLICKHOUSE])
def test_containers_value_by_value(
    tmp_path: Path, container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a container value by value gives the same spans as parsing it whole."""
    make = {**EXACT, **JAEGER, **CLICKHOUSE}[container]
    _, _, whole, whole_logs = put_and_read(tmp_path, "google_adk_native", make)
    monkeypatch.setattr(json_documents, "LONG_LINE", 100)

    _, _, found, found_logs = put_and_read(tmp_path, "google_adk_native", make)

    assert (found, found_logs) == (whole, whole_logs)


def test_a_partial_trace_is_reported(tmp_path: Path) -> None:
    """A partial response of Tempo is reported, whether it is parsed whole or in parts."""
    answer = {"trace": request(span()), "status": "PARTIAL", "message": "trace too large"}
    for option in (0, PRETTY):
        file = tmp_path / "x"
        file.write_bytes(orjson.dumps(answer, option=option))

        (batch,) = read(file)

        assert len(batch.spans) == 1
        assert [str(problem) for problem in batch.problems] == [
            f"{file}:1: Tempo answered with a part of the trace ('trace too large')"
        ]


def test_containers_in_one_file(tmp_path: Path) -> None:
    """The format of each line is recognised by its keys."""
    spans, logs = capture("google_adk_native")
    otlp = (TRACES / "google_adk_native.json").read_bytes().replace(b"\n", b"")
    file = tmp_path / "x"
    rows = lines([jaeger(spans), trace_row(spans[0]), log_row(logs[0]), *jaeger_documents(spans)])
    file.write_bytes(otlp + b"\n" + rows)

    batches = list(read(file))

    ids = [item.span_id for batch in batches for item in batch.spans]
    own = [item.span_id for item in spans]
    assert sorted(ids) == sorted([*own, *own, own[0], *own])
    assert sum(len(batch.logs) for batch in batches) == 1
    assert not any(batch.problems for batch in batches)


@pytest.mark.parametrize(
    "document",
    [
        {"traces": [{"traceID": "1", "rootServiceName": "x"}]},
        {"TraceId": "1", "Start": "2024-01-01 00:00:00", "End": "2024-01-01 00:00:01"},
        {"spans": [{"spanId": "1"}]},
        {"result": {"result": {"result": {"result": {"result": {"result": {"data": []}}}}}}},
        {"trace": None},
        {"data": {"resourceSpans": []}},
        [1, {"a": 2}],
    ],
)
def test_other_objects_are_refused(document: Any) -> None:
    """An object that only resembles a container is refused."""
    with pytest.raises(ValueError, match="is not an OTLP request"):
        decode(document)
