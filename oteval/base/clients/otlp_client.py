"""Requests to an OTLP endpoint: the client's interface, the result of a request, OTLP over HTTP."""

from __future__ import annotations

import gzip
import http.client
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple, Protocol

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ..text import shown_url
from .http_connection import Credentials, HttpConnection

__all__ = [
    "MAX_RETRY_AFTER",
    "ExportResult",
    "HttpClient",
    "OtlpClient",
    "open_client",
]

_CONTENT_TYPES = {"protobuf": "application/x-protobuf", "json": "application/json"}
# A retry may succeed: the endpoint is busy or away, or its settings have to be corrected.
_RETRYABLE = frozenset({401, 403, 404, 405, 407, 408, 425, 429, 500, 502, 503, 504})
_FIRST_FAILURE, _INTERNAL_ERROR = 300, 500
# The longest wait that an endpoint may request, in seconds.
MAX_RETRY_AFTER = 300.0
# Bytes of a response that are read.
_MAX_BODY = 4 << 20

_Response = (
    type[ExportTraceServiceResponse]
    | type[ExportLogsServiceResponse]
    | type[ExportMetricsServiceResponse]
)
_RESPONSES: Mapping[str, _Response] = {
    "traces": ExportTraceServiceResponse,
    "logs": ExportLogsServiceResponse,
    "metrics": ExportMetricsServiceResponse,
}
_REJECTED = {
    "traces": "rejected_spans",
    "logs": "rejected_log_records",
    "metrics": "rejected_data_points",
}


class ExportResult(NamedTuple):
    """An endpoint's response to one request.

    Attributes:
        status: The HTTP status; 0 if the endpoint could not be reached.
        reason: The status in words, or why the endpoint could not be reached.
        retry_after: Seconds that the endpoint asks to wait; 0 if it does not.
        body: The response body.
        encoding: The encoding of the body, ``protobuf`` or ``json``.
        credentials: The credentials of the request, which are removed from messages in the body.
    """

    status: int
    reason: str = ""
    retry_after: float = 0.0
    body: bytes = b""
    encoding: str = "protobuf"
    credentials: Credentials = Credentials({})

    @property
    def is_accepted(self) -> bool:
        """Whether the endpoint accepted the request, perhaps without some of its items."""
        return 200 <= self.status < 300

    @property
    def is_refused(self) -> bool:
        """Whether the endpoint will never accept this request."""
        return 400 <= self.status < 500 and self.status not in _RETRYABLE

    @property
    def is_internal_error(self) -> bool:
        """Whether the endpoint failed, because of its state or because of this request."""
        return self.status == _INTERNAL_ERROR

    def rejected(self, signal: str) -> tuple[int, str]:
        """How many items an accepted request lost by OTLP's ``partial_success``, and why.

        Args:
            signal: ``traces``, ``logs`` or ``metrics``.

        Returns:
            The number of spans, log records or data points, and the endpoint's message. A body
            that cannot be parsed rejects nothing.
        """
        response = _RESPONSES[signal]()
        try:
            if self.encoding == "json":
                json_format.Parse(self.body or b"{}", response, ignore_unknown_fields=True)
            else:
                response.ParseFromString(self.body)
        except (DecodeError, json_format.ParseError, ValueError, RecursionError):
            return 0, ""
        partial = response.partial_success
        rejected = max(0, getattr(partial, _REJECTED[signal]))
        return rejected, self.credentials.removed_from(partial.error_message)


class OtlpClient(Protocol):
    """A connection to an OTLP endpoint; used by one thread.

    Attributes:
        url: The base URL without a password, fit for logs.
    """

    url: str

    def export(self, signal: str, body: bytes, encoding: str = "protobuf") -> ExportResult:
        """Send a request.

        Args:
            signal: ``traces``, ``logs`` or ``metrics``.
            body: The request.
            encoding: ``protobuf`` or ``json``.
        """

    def close(self) -> None:
        """Close the connection."""


def open_client(
    url: str,
    headers: Mapping[str, str] | None = None,
    *,
    compress: bool = False,
    timeout: float = 10.0,
) -> OtlpClient:
    """A client for an endpoint: gRPC for ``grpc://`` and ``grpcs://``, otherwise HTTP.

    Args:
        url: The base URL. A user and password in it are sent as basic authorization.
        headers: Headers of every request.
        compress: Whether to compress bodies with gzip.
        timeout: Seconds to wait for a response.
    """
    if url.startswith("grpc"):
        # Imported only when needed: importing gRPC is slow.
        from .grpc_client import GrpcClient

        return GrpcClient(url, headers, compress=compress, timeout=timeout)
    return HttpClient(url, headers, compress=compress, timeout=timeout)


class HttpClient:
    """An `OtlpClient` for OTLP/HTTP. It keeps one connection open.

    Args:
        url: The base URL. A user and password in it are sent as basic authorization.
        headers: Headers of every request.
        compress: Whether to compress bodies with gzip.
        timeout: Seconds that a request with its whole response may take.
        max_retry_after: The longest wait that the endpoint may request, in seconds.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        compress: bool = False,
        timeout: float = 10.0,
        max_retry_after: float = MAX_RETRY_AFTER,
    ) -> None:
        self._connection = HttpConnection(url, headers or {}, timeout=timeout, most_bytes=_MAX_BODY)
        self._max_retry_after, self._compress = max_retry_after, compress
        self.url = shown_url(url)

    def export(self, signal: str, body: bytes, encoding: str = "protobuf") -> ExportResult:
        """Send a request; see `OtlpClient.export`."""
        headers = {**self._connection.headers, "Content-Type": _CONTENT_TYPES[encoding]}
        if self._compress:
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        is_reused = self._connection.is_open
        target = f"{self._connection.path}/v1/{signal}"
        result = self.post(target, body, headers)
        if result.status == 0 and is_reused:
            # The endpoint may just have closed the idle connection.
            result = self.post(target, body, headers)
        return result._replace(encoding=encoding)

    def post(
        self, target: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> ExportResult:
        """Send any POST request. Redirects are not followed.

        Args:
            target: The path and query.
            body: The body.
            headers: All headers; by default the client's headers.
        """
        try:
            answer = self._connection.exchange(
                "POST", target, body, headers or self._connection.headers
            )
        except (OSError, http.client.HTTPException) as error:
            text = self._connection.credentials.removed_from(f"{type(error).__name__}: {error}")
            return ExportResult(0, text)
        wait = _seconds(answer.headers.get("retry-after"), answer.headers.get("date"))
        retry_after = min(wait, self._max_retry_after)
        credentials = self._connection.credentials
        return ExportResult(
            answer.status,
            credentials.removed_from(answer.reason) if answer.status >= _FIRST_FAILURE else "OK",
            retry_after,
            answer.body,
            credentials=credentials,
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _seconds(value: str | None, date: str | None) -> float:
    """Parse a Retry-After header: a number, or a time; anything else is 0.

    Args:
        value: The header.
        date: The response's Date header; a time is relative to it.
    """
    try:
        return max(0.0, float(value or 0))
    except ValueError:
        pass
    try:
        wait = parsedate_to_datetime(value or "") - parsedate_to_datetime(date or "")
    except (ValueError, TypeError):
        return 0.0
    return max(0.0, wait.total_seconds())
