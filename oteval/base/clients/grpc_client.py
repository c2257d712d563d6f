"""Requests to an OTLP/gRPC endpoint. Importing this module imports gRPC, which is slow."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ..jsontext import loads
from ..text import shown_url
from .http_connection import Credentials, basic_authorization
from .otlp_client import MAX_RETRY_AFTER, ExportResult

__all__ = ["GrpcClient"]

_COLLECTOR = "/opentelemetry.proto.collector"
_METHODS = {
    "traces": f"{_COLLECTOR}.trace.v1.TraceService/Export",
    "logs": f"{_COLLECTOR}.logs.v1.LogsService/Export",
    "metrics": f"{_COLLECTOR}.metrics.v1.MetricsService/Export",
}
_REQUESTS = {"traces": ExportTraceServiceRequest, "logs": ExportLogsServiceRequest}
_IDS = frozenset({"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"})
# The HTTP status for each gRPC code; other codes become 503, which is retried.
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
_TOO_LARGE, _BUSY = 413, 429
# Reconnect soon after the endpoint is back; by default gRPC waits for up to two minutes.
_OPTIONS = [("grpc.initial_reconnect_backoff_ms", 500), ("grpc.max_reconnect_backoff_ms", 5000)]


class GrpcClient:
    """An `OtlpClient` for ``grpc://HOST:PORT``, or with TLS for ``grpcs://``.

    Args:
        url: The URL; the default port is 4317. A user and password in it are sent as basic
            authorization.
        headers: The metadata of every request.
        compress: Whether to compress bodies with gzip.
        timeout: Seconds to wait for a response.
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
        # gRPC shows its target in error messages, so the target has no user and password.
        host = parts.netloc.rpartition("@")[2]
        target = host if parts.port else f"{host}:4317"
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
        self._credentials = Credentials(metadata)
        self._timeout = timeout

    def export(self, signal: str, body: bytes, encoding: str = "protobuf") -> ExportResult:
        """Send a request; a JSON request is converted to protobuf. See `OtlpClient.export`."""
        try:
            message = body if encoding == "protobuf" else _to_protobuf(signal, body)
        except (ValueError, RecursionError, json_format.ParseError) as error:
            return ExportResult(400, f"cannot be converted to protobuf: {error}")
        # Without serializers, the channel sends and returns bytes.
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(
            _METHODS[signal]
        )
        try:
            response = call(message, timeout=self._timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            return self._failure(error)
        return ExportResult(200, "OK", 0.0, response, credentials=self._credentials)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _failure(self, error: Any) -> ExportResult:
        name = error.code().name
        metadata = dict(error.trailing_metadata() or ())
        retry_after = _retry_delay(metadata.get("grpc-status-details-bin", b""))
        if name == "RESOURCE_EXHAUSTED":
            # OTLP: retry only if the endpoint names a delay; else the request may be too large.
            status = _TOO_LARGE if retry_after is None else _BUSY
        else:
            status = _STATUS.get(name, 503)
        reason = self._credentials.removed_from(f"{name}: {error.details()}")
        return ExportResult(status, reason, retry_after or 0.0)


def _credentials() -> grpc.ChannelCredentials:
    """Return credentials that trust the same certificates as HTTPS requests."""
    trusted = ssl.get_default_verify_paths().cafile
    return grpc.ssl_channel_credentials(Path(trusted).read_bytes() if trusted else None)


def _retry_delay(details: bytes) -> float | None:
    """The delay (s) of the google.rpc.RetryInfo in a google.rpc.Status, if it has one."""
    info = RetryInfo()
    try:
        for detail in Status.FromString(details).details:
            if detail.Unpack(info):
                delay = info.retry_delay
                return min(float(delay.seconds + delay.nanos / 1e9), MAX_RETRY_AFTER)
    except DecodeError:
        pass
    return None


def _to_protobuf(signal: str, body: bytes) -> bytes:
    value = _base64_ids(loads(body))
    message = json_format.ParseDict(value, _REQUESTS[signal](), ignore_unknown_fields=True)
    return bytes(message.SerializeToString())


def _base64_ids(value: Any) -> Any:
    """Replace the hex ids of OTLP/JSON by base64, which protobuf's JSON has for bytes."""
    if isinstance(value, list):
        return [_base64_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: b64encode(bytes.fromhex(item)).decode()
        if key in _IDS and isinstance(item, str)
        else _base64_ids(item)
        for key, item in value.items()
    }
