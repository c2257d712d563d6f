"""The gRPC client and forwarding over gRPC, to a real server."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from oteval.base.clients.grpc_client import GrpcClient
from oteval.serve.publish.forwarder import Forwarder

from ...make import score
from .test_forwarder import request, trace

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@dataclass
class Collector:
    """An OTLP/gRPC endpoint with scripted responses.

    Attributes:
        url: Its URL.
        requests: The method, metadata and body of each accepted request.
        answers: The codes of the next responses, each with the delay it asks for (s).
        response: The body of each accepted request's response.
    """

    url: str = ""
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    answers: list[tuple[grpc.StatusCode, float | None]] = field(default_factory=list)
    response: bytes = b""


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, state: Collector) -> None:
        self.state = state

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        def take(body: bytes, context: grpc.ServicerContext) -> bytes:
            if self.state.answers:
                code, delay = self.state.answers.pop(0)
                if delay is not None:
                    context.set_trailing_metadata((("grpc-status-details-bin", _status(delay)),))
                context.abort(code, "as told")
            known = {key: str(value) for key, value in context.invocation_metadata()}
            self.state.requests.append((details.method, known, body))
            return self.state.response

        return grpc.unary_unary_rpc_method_handler(take)


def _status(delay: float) -> bytes:
    """Return a google.rpc.Status with a RetryInfo."""
    info = RetryInfo(retry_delay=Duration(seconds=int(delay), nanos=round(delay % 1 * 1e9)))
    detail = AnyMessage()
    detail.Pack(info)
    return Status(code=8, details=[detail]).SerializeToString()


@pytest.fixture
def collector() -> Iterator[Collector]:
    state = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((_Handler(state),))
    port = server.add_insecure_port("127.0.0.1:0")
    state.url = f"grpc://127.0.0.1:{port}"
    server.start()
    yield state
    server.stop(0).wait()


def test_the_bytes_and_headers_arrive(collector: Collector) -> None:
    """A request arrives byte for byte, compressed or not; headers become metadata."""
    for compress in (False, True):
        client = GrpcClient(collector.url, {"Authorization": "Bearer x"}, compress=compress)
        payload = request((1, 1)) + bytes([0xBA, 0x3E, 0x03]) + b"new"

        assert client.export("traces", payload).is_accepted
        method, metadata, body = collector.requests[-1]
        assert (method, body) == (TRACES, payload)
        assert metadata["authorization"] == "Bearer x"
        client.close()


def test_tls_uses_the_same_certificates_as_https(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With grpcs the certificate is checked against the machine's, or those of SSL_CERT_FILE."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    named = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    files = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run([*made, *named, *files], check=True, capture_output=True)
    state = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((_Handler(state),))
    pair = (key.read_bytes(), certificate.read_bytes())
    port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials([pair]))
    server.start()

    answers = []
    for trusted in (None, str(certificate)):
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", trusted)
        client = GrpcClient(f"grpcs://localhost:{port}", timeout=5.0)
        answers.append(client.export("traces", request((1, 1))).is_accepted)
        client.close()
    server.stop(0).wait()

    assert answers == [False, True]


def test_json_becomes_protobuf(collector: Collector) -> None:
    """A JSON request is sent as protobuf, with the same ids and numbers."""
    span = {
        "traceId": trace(7),
        "spanId": f"{9:016x}",
        "kind": 2,
        "startTimeUnixNano": "17",
        "attributes": [{"key": "traceId", "value": {"stringValue": "no id"}}],
        "later": {"x": 1},
    }
    value = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    log = {"traceId": trace(7), "spanId": f"{9:016x}", "body": {"intValue": "5"}}
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]}
    client = GrpcClient(collector.url)

    assert client.export("traces", json.dumps(value).encode(), "json").is_accepted
    assert client.export("logs", json.dumps(logs).encode(), "json").is_accepted
    bad = client.export("traces", b'{"resourceSpans": 3}', "json")
    client.close()

    found = ExportTraceServiceRequest.FromString(collector.requests[0][2])
    sent = found.resource_spans[0].scope_spans[0].spans[0]
    assert (sent.trace_id.hex(), sent.span_id.hex()) == (trace(7), f"{9:016x}")
    assert (sent.kind, sent.start_time_unix_nano) == (2, 17)
    assert sent.attributes[0].value.string_value == "no id"
    record = ExportLogsServiceRequest.FromString(collector.requests[1][2])
    assert record.resource_logs[0].scope_logs[0].log_records[0].trace_id.hex() == trace(7)
    assert bad.is_refused


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_a_partial_success_is_read(collector: Collector, encoding: str) -> None:
    """The response is protobuf, even to a request that was JSON."""
    response = ExportTraceServiceResponse()
    response.partial_success.rejected_spans = 2
    response.partial_success.error_message = "too old"
    collector.response = response.SerializeToString()
    client = GrpcClient(collector.url)

    result = client.export("traces", b"{}" if encoding == "json" else request((1, 1)), encoding)
    client.close()

    assert result.rejected("traces") == (2, "too old")


@pytest.mark.parametrize(
    ("code", "delay", "is_refused", "wait"),
    [
        (grpc.StatusCode.UNAVAILABLE, None, False, 0.0),
        (grpc.StatusCode.UNAVAILABLE, 2.5, False, 2.5),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 7.0, False, 7.0),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, None, True, 0.0),
        (grpc.StatusCode.INVALID_ARGUMENT, None, True, 0.0),
        (grpc.StatusCode.UNAUTHENTICATED, None, False, 0.0),
        (grpc.StatusCode.UNIMPLEMENTED, None, False, 0.0),
    ],
)
def test_which_failures_are_retried(
    collector: Collector, code: grpc.StatusCode, delay: float | None, is_refused: bool, wait: float
) -> None:
    """OTLP's rules apply; failures that new settings would cure are retried, as over HTTP."""
    collector.answers = [(code, delay)]
    client = GrpcClient(collector.url)

    answer = client.export("traces", request((1, 1)))
    client.close()

    assert not answer.is_accepted
    assert (answer.is_refused, answer.retry_after) == (is_refused, wait)
    assert answer.reason == f"{code.name}: as told"


def test_an_unreachable_endpoint_is_retried() -> None:
    """A request that nobody answers is not refused for good."""
    client = GrpcClient("grpc://127.0.0.1:9", timeout=1.0)

    answer = client.export("traces", request((1, 1)))
    client.close()

    assert not answer.is_accepted
    assert not answer.is_refused
    assert answer.reason


def test_forwarding_over_grpc_attaches_scores(collector: Collector, tmp_path: Path) -> None:
    """The forwarder sends held spans with their scores, after an attempt that failed."""
    collector.answers = [(grpc.StatusCode.UNAVAILABLE, 0.1)]
    forwarder = Forwarder(tmp_path, GrpcClient(collector.url), deadline=30)
    now = time.time_ns()
    forwarder.take("traces", "protobuf", request((1, 1), (1, 2)), (1, 1), now)
    forwarder.release({trace(1): [score(1)]})
    until = time.monotonic() + 10
    while not collector.requests and time.monotonic() < until:
        time.sleep(0.02)
    state = forwarder.state()
    forwarder.close(1.0)

    found = ExportTraceServiceRequest.FromString(collector.requests[0][2])
    spans = found.resource_spans[0].scope_spans[0].spans
    assert [span.span_id[-1] for span in spans] == [1, 2]
    assert spans[0].attributes[0].key == "oteval.score.e"
    assert state["failures"] == {"503": 1}
