"""The receiver on real sockets: correct responses to valid and to hostile requests."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import cache
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from benchmarks.served import until
from oteval.base.durable_log import LogReader
from oteval.base.redaction import RedactionRule
from oteval.ingest.receiver import http as receiver_http
from oteval.ingest.receiver.auth import Access
from oteval.ingest.receiver.grpc import GrpcReceiver
from oteval.ingest.receiver.http import HttpReceiver, HttpServer
from oteval.ingest.receiver.intake import Intake
from oteval.ingest.receiver.redaction import Redactor
from oteval.ingest.spool import Position, Record, Spool

PROTOBUF = "application/x-protobuf"
LIMIT = 1 << 20
TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
METRICS = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


class _Running:
    """A receiver with both its servers, in threads of this process."""

    def __init__(self, folder: Path, access: Access, quota: int = 64 << 20) -> None:
        self.folder = folder
        self.seen: list[tuple[str, str]] = []
        self.spool = Spool(folder, quota=quota, reserve=0)
        self.intake = Intake(
            self.spool, Redactor([]), lambda kind, outcome, *_: self.seen.append((kind, outcome))
        )
        self._sock = socket.create_server(("127.0.0.1", 0))
        self.port = self._sock.getsockname()[1]
        receiver = HttpReceiver(self.intake, access, limit=LIMIT, body_timeout=0.5)
        self._server = HttpServer(receiver.application())
        self._grpc = GrpcReceiver(self.intake, access, "127.0.0.1:0", limit=LIMIT)
        self._grpc.start()
        self.grpc_port = self._grpc.port
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._server.serve([self._sock])), daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._grpc.stop(0).wait()
        self._server.should_exit = True
        self._thread.join()
        self._sock.close()
        self.spool.close()

    def post(
        self, body: bytes, content: str = PROTOBUF, path: str = "/v1/traces", **headers: str
    ) -> tuple[int, bytes, Mapping[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        known = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request("POST", path, body, {"content-type": content, **known})
            answer = connection.getresponse()
            return answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
        finally:
            connection.close()

    def call(
        self,
        body: bytes,
        method: str = TRACES,
        token: str = "",
        compression: grpc.Compression | None = None,
    ) -> bytes:
        options = [("grpc.use_local_subchannel_pool", 1)]
        metadata = [("authorization", f"Bearer {token}")] if token else None
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}", options) as channel:
            send = channel.unary_unary(method)
            return bytes(send(body, timeout=20, metadata=metadata, compression=compression))

    def spooled(self) -> list[Record]:
        reader = LogReader(self.folder, Position())
        found = list(reader.records())
        reader.close()
        return found

    def is_well(self) -> bool:
        """Whether another client is served as if nothing had happened."""
        return self.post(traces(1))[0] == 200 and self.call(traces(1)) == b""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[_Running]:
    found = _Running(tmp_path / "spool", Access())
    yield found
    found.close()


def traces(count: int, **fields: object) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(count):
        scope.spans.add(trace_id=b"t" * 16, span_id=struct.pack(">Q", number + 1), **fields)
    return request.SerializeToString()


def test_traces_are_durable_when_acknowledged(running: _Running) -> None:
    """A 200 with an empty body, and the request as it came in the spool."""
    body = traces(3)

    answer = running.post(body)

    assert answer[:2] == (200, b"")
    assert answer[2]["content-type"] == PROTOBUF
    assert [(r.kind, r.encoding, r.payload) for r in running.spooled()] == [
        ("traces", "protobuf", body)
    ]


def test_json_and_logs_and_metrics(running: _Running) -> None:
    """JSON is answered with JSON; logs are spooled as logs; metrics succeed and are dropped."""
    span = {"traceId": "11" * 16, "spanId": "22" * 8, "name": "n"}
    document = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    logs = ExportLogsServiceRequest()
    logs.resource_logs.add().scope_logs.add().log_records.add(severity_text="INFO")

    as_json = running.post(document, "application/json; charset=utf-8")
    as_logs = running.post(logs.SerializeToString(), path="/v1/logs")
    as_metrics = running.post(b"\x0a\x00", path="/v1/metrics")
    over_grpc = running.call(b"\x0a\x00", METRICS)

    assert as_json[:2] == (200, b"{}")
    assert as_json[2]["content-type"] == "application/json"
    assert (as_logs[:2], as_metrics[:2], over_grpc) == ((200, b""), (200, b""), b"")
    assert [(r.kind, r.encoding) for r in running.spooled()] == [
        ("traces", "json"),
        ("logs", "protobuf"),
    ]


@cache
def bomb() -> bytes:
    """Return 50 MB as 50 KB of gzip; it takes a tenth of a second, so not when tests are found."""
    return gzip.compress(b"\0" * (50 * LIMIT), mtime=0)


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_compressed_requests_are_spooled_decompressed(running: _Running, name: str) -> None:
    """The spool contains the request as the sender meant it."""
    body = traces(50)
    packed = gzip.compress(body) if name == "gzip" else zlib.compress(body)

    answer = running.post(packed, content_encoding=name)

    assert answer[0] == 200
    assert running.spooled()[0].payload == body


def test_grpc_compressed_and_plain(running: _Running) -> None:
    """Both ways of a gRPC sender give the same bytes in the spool."""
    body = traces(50)

    running.call(body)
    running.call(body, compression=grpc.Compression.Gzip)

    assert [r.payload for r in running.spooled()] == [body, body]


def test_spans_without_ids_are_reported(running: _Running) -> None:
    """Valid spans are accepted, the others counted with a reason: a partial success."""
    request = ExportTraceServiceRequest.FromString(traces(3))
    request.resource_spans[0].scope_spans[0].spans[1].span_id = b"x"

    status, body, _ = running.post(request.SerializeToString())
    found = ExportTraceServiceResponse.FromString(body).partial_success
    over_grpc = ExportTraceServiceResponse.FromString(running.call(request.SerializeToString()))

    assert (status, found.rejected_spans) == (200, 1)
    assert "no valid trace or span id" in found.error_message
    assert over_grpc.partial_success == found


@pytest.mark.parametrize(
    ("body", "content", "headers", "status"),
    [
        (b"\xff\xff\xff", PROTOBUF, {}, 400),
        (traces(1, name="nnnn").replace(b"nnnn", b"\xff\xfe\xfd\xfc"), PROTOBUF, {}, 400),
        (b"{", "application/json", {}, 400),
        (b"[1]", "application/json", {}, 400),
        (b"[" * 100_000, "application/json", {}, 400),
        (b'{"x": 1}', "application/json", {}, 400),
        (b"hello", "text/plain", {}, 415),
        (b"", "", {}, 415),
        (traces(1), PROTOBUF, {"content_encoding": "br"}, 415),
        (b"no gzip", PROTOBUF, {"content_encoding": "gzip"}, 400),
        (gzip.compress(traces(9), mtime=0)[:-20], PROTOBUF, {"content_encoding": "gzip"}, 400),
        (b"\0" * (LIMIT + 1), PROTOBUF, {}, 413),
        (bomb, PROTOBUF, {"content_encoding": "gzip"}, 413),
    ],
    ids=(
        *("malformed", "not-utf8", "cut-json", "list", "deep-json", "other-json", "type"),
        *("no-type", "encoding", "no-gzip", "cut-gzip", "oversized", "bomb"),
    ),
)
def test_bad_requests_get_their_status(
    running: _Running,
    body: bytes | Callable[[], bytes],
    content: str,
    headers: dict[str, str],
    status: int,
) -> None:
    """Each has the right status and a google.rpc.Status; nothing is spooled; others are served."""
    answer = running.post(body() if callable(body) else body, content, **headers)

    assert answer[0] == status
    if content == "application/json":
        assert json.loads(answer[1])["message"]
    else:
        assert status_pb2.Status.FromString(answer[1]).message
    assert running.spooled() == []
    assert running.is_well()


def test_a_body_that_is_longer_than_allowed_is_cut_off(running: _Running) -> None:
    """Without a declared length, reading stops at the limit."""

    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield b"\0" * (1 << 18)

    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=20)
    try:
        connection.request("POST", "/v1/traces", endless(), {"content-type": PROTOBUF})
        status = connection.getresponse().status
    except (BrokenPipeError, ConnectionResetError):
        status = 413  # it closed while we sent
    connection.close()

    assert status == 413
    assert running.is_well()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"\xff\xff\xff", grpc.StatusCode.INVALID_ARGUMENT),
        (bomb, grpc.StatusCode.INVALID_ARGUMENT),
        (b"\0" * (LIMIT + 1), grpc.StatusCode.INVALID_ARGUMENT),
    ],
    ids=("malformed", "bomb", "oversized"),
)
def test_bad_calls_get_their_code(
    running: _Running, body: bytes | Callable[[], bytes], code: grpc.StatusCode
) -> None:
    """Over gRPC the same is refused, and other callers are served."""
    with pytest.raises(grpc.RpcError) as found:
        running.call(body() if callable(body) else body)

    assert found.value.code() is code
    assert running.is_well()


def test_a_bomb_that_grpc_itself_would_decompress(running: _Running) -> None:
    """A message that the channel compressed is not decompressed past the limit either."""
    with pytest.raises(grpc.RpcError) as found:
        running.call(b"\0" * (50 * LIMIT), compression=grpc.Compression.Gzip)

    assert found.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert running.is_well()


def test_ten_thousand_spans_deep(running: _Running) -> None:
    """A chain of 10,000 spans is only a big request."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(1, 10_001):
        parent = struct.pack(">Q", number - 1) if number > 1 else b""
        scope.spans.add(
            trace_id=b"t" * 16, span_id=struct.pack(">Q", number), parent_span_id=parent
        )

    answer = running.post(request.SerializeToString())

    assert answer[:2] == (200, b"")


def test_headers_that_never_end(running: _Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred connections that send a byte now and then are closed; others are served."""
    monkeypatch.setattr(receiver_http, "HEADER_TIMEOUT", 0.5)
    slow = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(100)]
    for one in slow:
        one.sendall(b"POST /v1/traces HTTP/1.1\r\nx: ")

    well = running.is_well()
    closed = 0
    for one in slow:
        one.settimeout(10)
        closed += one.recv(100) == b""
        one.close()

    assert well
    assert closed == 100


def test_a_body_that_never_ends(running: _Running) -> None:
    """A sender that is too slow gets a response."""
    with socket.create_connection(("127.0.0.1", running.port)) as one:
        head = f"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: {PROTOBUF}\r\n"
        one.sendall(f"{head}content-length: 1000\r\n\r\n".encode() + b"\x0a")
        one.settimeout(10)
        answer = one.recv(1000)

    assert answer.startswith(b"HTTP/1.1 408")
    assert running.is_well()


def test_tokens(tmp_path: Path) -> None:
    """Without the ingest token nothing is taken, over either protocol; a read token is none."""
    running = _Running(tmp_path / "spool", Access.of(ingest="in", read="out"))
    try:
        without = running.post(traces(1))
        with_read = running.post(traces(1), authorization="Bearer out")
        right = running.post(traces(1), authorization="Bearer in")
        with pytest.raises(grpc.RpcError) as refused:
            running.call(traces(1), token="out")
        over_grpc = running.call(traces(1), token="in")
    finally:
        running.close()

    assert (without[0], with_read[0], right[0]) == (401, 401, 200)
    assert without[2]["www-authenticate"] == "Bearer"
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert over_grpc == b""


def test_a_full_spool_asks_to_come_again(tmp_path: Path) -> None:
    """503 with Retry-After over HTTP, RESOURCE_EXHAUSTED with RetryInfo over gRPC."""
    running = _Running(tmp_path / "spool", Access(), quota=4096)
    try:
        while (answer := running.post(traces(50)))[0] == 200:
            pass
        with pytest.raises(grpc.RpcError) as refused:
            running.call(traces(50))
    finally:
        running.close()
    details = dict(refused.value.trailing_metadata())["grpc-status-details-bin"]
    status = status_pb2.Status.FromString(details)
    info = error_details_pb2.RetryInfo()
    status.details[0].Unpack(info)

    assert (answer[0], answer[2]["retry-after"]) == (503, "1")
    assert "quota" in status_pb2.Status.FromString(answer[1]).message
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert info.retry_delay.seconds == 1


def test_redacted_values_are_never_written(running: _Running) -> None:
    """Values by key and text by pattern are redacted in the spool, in both encodings."""
    running.intake.redactor = Redactor(
        [RedactionRule(("user.*",)), RedactionRule((), r"\d{4}-\d{4}", "[card]")]
    )
    request = ExportTraceServiceRequest.FromString(traces(1, name="pay 1234-5678"))
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.attributes.add(key="user.email").value.string_value = "a@b.example"
    nested = span.attributes.add(key="m").value.kvlist_value.values.add(key="user.name")
    nested.value.string_value = "Ann"
    attribute = {"key": "user.email", "value": {"stringValue": "a@b.example"}}
    spans = [{"traceId": "12" * 16, "spanId": "12" * 8, "name": "1234-5678"}]
    spans[0]["attributes"] = [attribute]  # type: ignore[assignment]
    document = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}

    running.post(request.SerializeToString())
    running.post(json.dumps(document).encode(), "application/json")

    written = b"".join(path.read_bytes() for path in running.folder.glob("*.spool"))
    assert not any(secret in written for secret in (b"a@b", b"Ann", b"1234-5678"))
    assert written.count(b"[redacted]") == 3
    assert written.count(b"[card]") == 2


def test_methods_and_paths_that_are_not_there(running: _Running) -> None:
    """GET is 405, another path 404."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=20)
    connection.request("GET", "/v1/traces")
    first = connection.getresponse()
    first.read()
    connection.request("POST", "/v1/other", b"")
    second = connection.getresponse()
    second.read()
    connection.close()

    assert (first.status, second.status) == (405, 404)


def test_requests_are_counted_by_outcome(running: _Running) -> None:
    """The observer gets the reason of a refusal, for metrics."""
    running.post(traces(1))
    running.post(b"\xff")
    # The answer may arrive before the request is counted.
    until(lambda: len(running.seen) >= 2)

    assert running.seen == [("traces", "ok"), ("traces", "malformed")]


def test_nothing_waits_for_an_empty_request(running: _Running) -> None:
    """A request without spans is a success at once."""
    assert running.post(b"")[:2] == (200, b"")
    assert running.spooled() == []
    assert isinstance(running.intake.accept("traces", "protobuf", b"").durable, Future)
