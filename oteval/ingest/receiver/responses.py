"""Responses to OTLP requests, as HTTP and gRPC bodies: success, partial success and refusal.

See https://opentelemetry.io/docs/specs/otlp/#otlphttp-response and #otlpgrpc-response.
"""

from __future__ import annotations

import orjson
from google.protobuf.duration_pb2 import Duration
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ..spool import Encoding

__all__ = ["RequestRefused", "status_json", "status_protobuf", "success_body", "too_busy"]

_CODES = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    405: Code.UNIMPLEMENTED,
    408: Code.DEADLINE_EXCEEDED,
    413: Code.INVALID_ARGUMENT,
    415: Code.INVALID_ARGUMENT,
    429: Code.RESOURCE_EXHAUSTED,
    503: Code.UNAVAILABLE,
}


class RequestRefused(Exception):
    """The receiver refuses a request.

    Attributes:
        status: The HTTP status.
        kind: The name of the reason in metrics.
        reason: The reason in one line, for the sender.
        retry_after: Seconds after which the sender may try again; None if a retry is useless.
    """

    def __init__(self, status: int, kind: str, reason: str, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.kind = kind
        self.reason = reason
        self.retry_after = retry_after


def too_busy(reason: str, kind: str = "full") -> RequestRefused:
    """The refusal that asks the sender to retry in a second."""
    return RequestRefused(503, kind, reason, retry_after=1)


def success_body(kind: str, encoding: Encoding, rejected: int = 0, message: str = "") -> bytes:
    """The body of a success, or of a partial success if anything was rejected.

    Args:
        kind: ``traces``, ``logs`` or ``metrics``.
        encoding: The encoding of the body.
        rejected: The number of spans or log records that were left out.
        message: The reason for leaving them out.
    """
    if encoding == "json":
        if not rejected and not message:
            return b"{}"
        name = "rejectedSpans" if kind == "traces" else "rejectedLogRecords"
        return orjson.dumps({"partialSuccess": {name: str(rejected), "errorMessage": message}})
    if not rejected and not message:
        return b""
    if kind == "traces":
        traces = ExportTraceServiceResponse()
        traces.partial_success.rejected_spans = rejected
        traces.partial_success.error_message = message
        return traces.SerializeToString()
    logs = ExportLogsServiceResponse()
    logs.partial_success.rejected_log_records = rejected
    logs.partial_success.error_message = message
    return logs.SerializeToString()


def status_json(refused: RequestRefused) -> bytes:
    """A refusal as ``google.rpc.Status`` in JSON."""
    return orjson.dumps({"code": _code(refused), "message": refused.reason})


def status_protobuf(refused: RequestRefused, code: int | None = None) -> bytes:
    """A refusal as ``google.rpc.Status`` in protobuf, with `RetryInfo` if a retry may help.

    Args:
        refused: The refusal.
        code: The ``google.rpc.Code``. The default is the code for the HTTP status.
    """
    status = Status(code=_code(refused) if code is None else code, message=refused.reason)
    if refused.retry_after is not None:
        delay = Duration(seconds=refused.retry_after)
        status.details.add().Pack(RetryInfo(retry_delay=delay))
    return bytes(status.SerializeToString())


def _code(refused: RequestRefused) -> int:
    return int(_CODES.get(refused.status, Code.UNKNOWN))
