"""A scripted OTLP/HTTP endpoint on loopback, shared by all tests that send traces onwards."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from .loopback import serving


@dataclass
class Downstream:
    """An OTLP/HTTP endpoint.

    Attributes:
        url: Its base URL.
        requests: The path, headers and body of each accepted request.
        answers: The next responses: status, headers and perhaps a body. Later ones are accepted.
        refuses: Decides by the body whether a request gets a 400.
        poison: A request that contains these bytes gets `poison_status`.
        said: The body of responses that have none.
        log_status: The response to requests with logs.
        is_silent: Set when requests are to get no answer.
    """

    url: str = ""
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    answers: list[tuple[Any, ...]] = field(default_factory=list)
    refuses: Callable[[bytes], bool] = lambda _body: False
    poison: bytes = b""
    poison_status: int = 400
    said: bytes = b""
    log_status: int = 200
    is_silent: threading.Event = field(default_factory=threading.Event)
    server: Any = None

    def bodies(self, path: str = "/v1/traces") -> list[bytes]:
        """Return the bodies that arrived at a path, in order."""
        return [body for at, _, body in self.requests if at == path]

    def spans(self) -> list[Any]:
        """Return the protobuf spans that arrived, in order."""
        requests = map(ExportTraceServiceRequest.FromString, self.bodies())
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def log_records(self) -> list[Any]:
        """Return the protobuf log records that arrived, in order."""
        requests = map(ExportLogsServiceRequest.FromString, self.bodies("/v1/logs"))
        return [
            record
            for request in requests
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]


@contextmanager
def listening() -> Iterator[Downstream]:
    """Serve on a free port while the block runs."""
    state = Downstream()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            status, headers, *said = state.answers.pop(0) if state.answers else (200, {})
            answer = said[0] if said else state.said
            if state.poison and state.poison in body:
                status = state.poison_status
            elif state.refuses(body):
                status = 400
            elif self.path == "/v1/logs" and state.log_status != 200:
                status = state.log_status
            if status == 200:
                state.requests.append((self.path, dict(self.headers), body))
            if state.is_silent.is_set():
                self.close_connection = True
                self.connection.recv(1)  # until the client gives up
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            pass

    with serving(Handler) as server:
        state.server, state.url = server, server.url
        yield state
