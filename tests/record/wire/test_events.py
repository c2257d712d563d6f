"""Exchanges as log events: the same bytes come back over every path of export."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    InMemoryLogRecordExporter,
    SimpleLogRecordProcessor,
)

from oteval.base.redaction.secrets import SecretRedactor
from oteval.ingest.otlp.from_json import decode_json
from oteval.ingest.otlp.from_protobuf import decode_protobuf_logs
from oteval.ingest.sdk_objects import log_record_of
from oteval.model import LogRecord
from oteval.model.recording import Chunk, Exchange, UnreadableExchange, from_log, to_event
from oteval.record.otlp_json import log_lines
from oteval.record.wire.recorder import WireRecorder
from oteval.serve.inprocess import InProcess
from oteval.store import Store

from ...commands import Run
from ...otlp_endpoint import listening

WHOLE = Exchange(
    method="POST",
    url="https://model.example/v1/chat/completions",
    request_headers={"content-type": "application/json"},
    request_body='{"text": "grüße \\u0000 \\"x\\""}'.encode(),
    status=200,
    response_headers={"content-type": "text/event-stream"},
    chunks=(Chunk(b"data: {}\r\n\r\n", 5), Chunk("data: ä".encode()[:-1], 7), Chunk(b"\xa4", 9)),
    is_complete=True,
    start_ns=1_700_000_000_000_000_001,
    end_ns=1_700_000_000_000_000_010,
)
FAILED = Exchange("GET", "http://h/", error="ReadTimeout: too slow", is_complete=False, start_ns=1)
BINARY = Exchange(
    "PUT", "http://h/", request_body=bytes(range(256)), status=204, chunks=(Chunk(b"a\0b", 1),)
)
REDACTOR = SecretRedactor(environment={})
EMPTY = Exchange("GET", "http://h/", status=200, start_ns=3, end_ns=4)


def emit(provider: LoggerProvider, exchanges: Sequence[Exchange]) -> None:
    recorder = WireRecorder(provider, redactor=REDACTOR)
    for exchange in exchanges:
        recorder.emit(exchange, "", None)
    assert recorder.recorded == len(exchanges)


Path_ = Callable[[Path, Sequence[Exchange], Run], list[LogRecord]]


def over_http(_folder: Path, exchanges: Sequence[Exchange], _oteval: Run) -> list[LogRecord]:
    """The SDK's exporter, and the decoder of the receiver."""
    provider = LoggerProvider()
    with listening() as endpoint, Store() as store:
        exporter = OTLPLogExporter(f"{endpoint.url}/v1/logs")
        provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
        emit(provider, exchanges)
        provider.shutdown()
        for body in endpoint.bodies("/v1/logs"):
            store.spans.write((), decode_protobuf_logs(body).logs)
        return stored(store)


def over_a_file(folder: Path, exchanges: Sequence[Exchange], oteval: Run) -> list[LogRecord]:
    """A file of OTLP/JSON lines, loaded by the command."""
    provider, exporter = LoggerProvider(), InMemoryLogRecordExporter()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    emit(provider, exchanges)
    provider.shutdown()
    file = folder / "traces.jsonl"
    file.write_bytes(b"".join(log_lines(exporter.get_finished_logs())))
    assert oteval("ingest", file, "--db", folder / "file.duckdb").status == 0
    with Store(folder / "file.duckdb") as store:
        return stored(store)


def in_process(folder: Path, exchanges: Sequence[Exchange], _oteval: Run) -> list[LogRecord]:
    """The processor that writes into a database."""
    inner = InProcess(folder / "direct.duckdb")
    provider = LoggerProvider()
    provider.add_log_record_processor(inner.logs)
    emit(provider, exchanges)
    inner.force_flush()
    inner.shutdown()
    with Store(folder / "direct.duckdb") as store:
        return stored(store)


def stored(store: Store) -> list[LogRecord]:
    return [record for page in store.spans.log_pages() for record in page]


@pytest.mark.parametrize("path", [over_http, over_a_file, in_process])
def test_every_path_of_export_keeps_every_byte(path: Path_, tmp_path: Path, oteval: Run) -> None:
    """Text, text with NUL, half characters at borders of chunks, binary data, failures."""
    exchanges = [WHOLE, FAILED, BINARY, EMPTY]
    found = [from_log(record) for record in path(tmp_path, exchanges, oteval)]
    assert len(found) == len(exchanges)
    assert all(exchange in found for exchange in exchanges)


exporter = InMemoryLogRecordExporter()
provider = LoggerProvider()
provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))

_BYTES = st.one_of(st.binary(max_size=60), st.text(max_size=40).map(lambda t: t.encode("utf-8")))


@given(_BYTES, st.lists(_BYTES.filter(bool), max_size=5), st.text(max_size=20))
@settings(max_examples=60)
def test_any_bytes_come_back(request: bytes, pieces: list[bytes], error: str) -> None:
    """Bodies and their division into chunks, through the SDK's objects and OTLP/JSON."""
    exchange = Exchange(
        "POST",
        "http://h/",
        request_body=request,
        status=200,
        chunks=tuple(Chunk(data, index) for index, data in enumerate(pieces)),
        error=error.encode("utf-8", "replace").decode(),
    )
    exporter.clear()
    emit(provider, [exchange])
    (emitted,) = exporter.get_finished_logs()
    found = from_log(log_record_of(emitted))
    assert found == exchange
    (line,) = log_lines([emitted])
    (decoded,) = decode_json(json.loads(line)).logs
    assert from_log(decoded) == exchange
    assert found is not None
    assert found.response_body == b"".join(pieces)


def test_records_of_other_events_are_not_exchanges() -> None:
    assert from_log(LogRecord(event_name="gen_ai.choice", body={"version": 1})) is None


def _damages() -> Iterator[tuple[str, Any]]:
    def change(*path: str, value: Any) -> Any:
        body: Any = copy.deepcopy(dict(to_event(WHOLE).body))
        inner = body
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value
        return body

    text = WHOLE.request_body.decode()
    yield "has no body", None
    yield "has no body", "text"
    yield "has version 2: upgrade oteval", change("version", value=2)
    yield "version is missing", change("version", value=None)
    yield "url is missing", change("url", value=7)
    yield "request is missing", change("request", value=None)
    yield "request.body has 9 bytes in place of 32", change("request", "body", value=text[:9])
    yield "request.body is damaged", change("request", "encoding", value="base64")
    yield "request.body is damaged", change("request", "body", value={"bytesValue": "AA=="})
    yield "request.headers are damaged", change("request", "headers", value=["x"])
    yield "response.status is missing", change("response", "status", value="200")
    yield "response.body", change("response", "body", value="data: [redacted]")
    yield "response.chunk_sizes are damaged", change("response", "chunk_sizes", value=[1, 2])
    yield "response.chunk_sizes are damaged", change("response", "chunk_sizes", value="x")
    yield (
        "response.chunk_offsets_ns are damaged",
        change("response", "chunk_offsets_ns", value=[""]),
    )
    yield "complete is missing", change("complete", value="yes")


@pytest.mark.parametrize(("message", "body"), list(_damages()))
def test_damaged_events_are_named(message: str, body: Any) -> None:
    """Nothing is read by halves: one line says which part is damaged."""
    record = to_event(WHOLE)
    record.body = body
    with pytest.raises(UnreadableExchange) as raised:
        from_log(record)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_events_of_parts_that_were_not_kept_say_why() -> None:
    with pytest.raises(UnreadableExchange, match=r"^GET http://h/: too large$"):
        from_log(to_event(EMPTY, "too large"))


def test_attributes_are_for_searches() -> None:
    """An SDK may cut them off; the exchange is read from the body alone."""
    event = to_event(WHOLE)
    assert event.attributes == {
        "http.request.method": "POST",
        "url.full": WHOLE.url,
        "server.address": "model.example",
        "http.response.status_code": 200,
    }
    assert to_event(FAILED).attributes["error.type"] == "ReadTimeout"
