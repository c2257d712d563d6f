"""The answers OTLP has for what went wrong, and its bodies for success.

See https://opentelemetry.io/docs/specs/otlp/#otlphttp-response and #otlpgrpc-response.
"""

from __future__ import annotations

import orjson
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ..spool import Encoding

__all__ = ["Refused", "status_json", "status_message", "success", "too_busy"]

# google.rpc.Code by HTTP status.
_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 408: 4, 413: 3, 415: 3, 429: 8, 503: 14}


class Refused(Exception):
    """A request that is not taken.

    Attributes:
        status: The HTTP status.
        reason: Why, in one line for the sender.
        kind: The reason's name in metrics.
        retry_after: After how many seconds to send again; None where that is of no use.
    """

    def __init__(self, status: int, kind: str, reason: str, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.kind = kind
        self.reason = reason
        self.retry_after = retry_after


def too_busy(reason: str, kind: str = "full") -> Refused:
    """Return the answer that asks the sender to come again soon."""
    return Refused(503, kind, reason, retry_after=1)


def success(kind: str, encoding: Encoding, rejected: int = 0, message: str = "") -> bytes:
    """Return the body of a success.

    Args:
        kind: "traces", "logs" or "metrics".
        encoding: What the body is to be.
        rejected: How many spans or records were left out.
        message: Why.
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


def status_json(refused: Refused) -> bytes:
    """Return the google.rpc.Status of a refusal as JSON."""
    return orjson.dumps({"code": _CODES.get(refused.status, 2), "message": refused.reason})


def status_message(refused: Refused, code: int | None = None) -> bytes:
    """Return the google.rpc.Status of a refusal as protobuf.

    Args:
        refused: The refusal.
        code: The google.rpc.Code, by default that of the HTTP status.
    """
    body = b"\x08" + _varint(_CODES.get(refused.status, 2) if code is None else code)
    body += _field(2, refused.reason.encode())
    if refused.retry_after is not None:
        # google.rpc.RetryInfo has one field, a Duration.
        delay = Duration(seconds=refused.retry_after).SerializeToString()
        info = AnyMessage(type_url="type.googleapis.com/google.rpc.RetryInfo")
        info.value = _field(1, delay)
        body += _field(3, info.SerializeToString())
    return body


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
