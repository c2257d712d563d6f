"""Requests to an OTLP/gRPC endpoint, the bytes as they are."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ..jsontext import loads
from ..text import shown_url
from .posting import MOST_WAIT, Answer, basic_authorization
from .wire import fields, varint

__all__ = ["GrpcPoster"]

_COLLECTOR = "/opentelemetry.proto.collector"
_METHODS = {
    "traces": f"{_COLLECTOR}.trace.v1.TraceService/Export",
    "logs": f"{_COLLECTOR}.logs.v1.LogsService/Export",
    "metrics": f"{_COLLECTOR}.metrics.v1.MetricsService/Export",
}
_MESSAGES = {"traces": ExportTraceServiceRequest, "logs": ExportLogsServiceRequest}
_IDS = frozenset({"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"})
# What the codes are over HTTP; all others are 503, to be tried again.
_STATUS = {
    "INVALID_ARGUMENT": 400,
    "ALREADY_EXISTS": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "UNIMPLEMENTED": 404,
    "UNKNOWN": 500,
    "INTERNAL": 500,
    "DEADLINE_EXCEEDED": 504,
}
_TOO_MUCH, _BUSY = 413, 429
# An endpoint that comes back is found soon; by itself, gRPC would wait up to two minutes.
_OPTIONS = [("grpc.initial_reconnect_backoff_ms", 500), ("grpc.max_reconnect_backoff_ms", 5000)]


class GrpcPoster:
    """Sends requests to ``grpc://HOST:PORT``, or with TLS to ``grpcs://``; used by one thread.

    Args:
        url: The URL; port 4317 where it has none. A user and password in it are sent as basic
            authorization.
        headers: The metadata of every request.
        compress: Whether bodies are compressed.
        timeout: How long an answer may take (s).
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        compress: bool = False,
        timeout: float = 10.0,
    ) -> None:
        parts = urlsplit(url)
        # gRPC names its target in errors, so the user and password are not part of it.
        place = parts.netloc.rpartition("@")[2]
        target = place if parts.port else f"{place}:4317"
        gzip = grpc.Compression.Gzip if compress else grpc.Compression.NoCompression
        if parts.scheme == "grpcs":
            self._channel = grpc.secure_channel(target, _credentials(), _OPTIONS, gzip)
        else:
            self._channel = grpc.insecure_channel(target, _OPTIONS, gzip)
        self.url = shown_url(url)
        metadata = {name.lower(): value for name, value in (headers or {}).items()}
        if basic := basic_authorization(url):
            metadata.setdefault("authorization", basic)
        self._metadata = tuple(metadata.items())
        self._timeout = timeout

    def post(self, signal: str, body: bytes, encoding: str = "protobuf") -> Answer:
        """Send a request; one in JSON is written as protobuf.

        Args:
            signal: ``traces``, ``logs`` or ``metrics``.
            body: The request.
            encoding: ``protobuf`` or ``json``.
        """
        try:
            message = body if encoding == "protobuf" else _from_json(signal, body)
        except (ValueError, RecursionError, json_format.ParseError) as error:
            return Answer(400, f"cannot be written as protobuf: {error}")
        # Without serialisers, bytes go and come.
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(
            _METHODS[signal]
        )
        try:
            said = call(message, timeout=self._timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            return _answer(error)
        return Answer(200, "OK", 0.0, said)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def _credentials() -> grpc.ChannelCredentials:
    """Return credentials that trust whom requests over HTTPS trust."""
    trusted = ssl.get_default_verify_paths().cafile
    return grpc.ssl_channel_credentials(Path(trusted).read_bytes() if trusted else None)


def _answer(error: Any) -> Answer:
    name = error.code().name
    wait = _retry_delay(dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b""))
    if name == "RESOURCE_EXHAUSTED":
        # By OTLP's rules to be sent again only if it says when: else it is too big, for instance.
        status = _TOO_MUCH if wait is None else _BUSY
    else:
        status = _STATUS.get(name, 503)
    return Answer(status, f"{name}: {error.details()}", wait or 0.0)


def _retry_delay(status: bytes) -> float | None:
    """Return the seconds of the google.rpc.RetryInfo in a google.rpc.Status, if it has one."""
    try:
        for detail in (f for f in fields(status, 0, len(status)) if f.number == 3):
            found = {f.number: status[f.at : f.end] for f in fields(status, detail.at, detail.end)}
            if found.get(1, b"").endswith(b"/google.rpc.RetryInfo"):
                info = found.get(2, b"")
                delay = b"".join(info[f.at : f.end] for f in fields(info, 0, len(info)))
                parts = {f.number: varint(delay, f.at)[0] for f in fields(delay, 0, len(delay))}
                return min(parts.get(1, 0) + parts.get(2, 0) / 1e9, MOST_WAIT)
    except ValueError:
        pass
    return None


def _from_json(signal: str, body: bytes) -> bytes:
    value = _with_ids(loads(body))
    message = json_format.ParseDict(value, _MESSAGES[signal](), ignore_unknown_fields=True)
    return bytes(message.SerializeToString())


def _with_ids(value: Any) -> Any:
    """Return OTLP/JSON with ids as protobuf's JSON has bytes: in base64, not in hex."""
    if isinstance(value, list):
        return [_with_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: b64encode(bytes.fromhex(item)).decode()
        if key in _IDS and isinstance(item, str)
        else _with_ids(item)
        for key, item in value.items()
    }
