"""Looking a request through before it is taken: is it one, and which of its parts are no good?"""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ...errors import InputError
from ..otlp import decode_json, parse_json
from ..spool import Encoding, Kind
from .answers import Refused

__all__ = ["Checked", "check", "parsed"]

_NO_TRACE = bytes(16)
_NO_SPAN = bytes(8)
_SKIPPED = "skipped"


class Checked(NamedTuple):
    """What a request holds.

    Attributes:
        good: How many spans or log records are good.
        rejected: How many are not.
        message: Why not, of the first.
    """

    good: int
    rejected: int = 0
    message: str = ""


def parsed(kind: Kind, encoding: Encoding, body: bytes) -> Any:
    """Return the request that a body holds: a message, or a JSON value.

    Raises:
        Refused: It holds none.
    """
    try:
        if encoding == "json":
            return parse_json(body)
        if kind == "traces":
            return ExportTraceServiceRequest.FromString(body)
        return ExportLogsServiceRequest.FromString(body)
    except DecodeError:
        raise Refused(
            400, "malformed", f"the body is no OTLP protobuf request for {kind}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise Refused(400, "malformed", f"the body is no JSON: {error}") from None


def check(kind: Kind, encoding: Encoding, request: Any) -> Checked:
    """Count the parts of a request that can be stored, and those that cannot.

    Raises:
        Refused: It is no request of this kind.
    """
    if encoding == "json":
        return _check_json(kind, request)
    if kind == "logs":
        groups = [g for resource in request.resource_logs for g in resource.scope_logs]
        return Checked(sum(len(group.log_records) for group in groups))
    count = rejected = 0
    message = ""
    for resource in request.resource_spans:
        for group in resource.scope_spans:
            for span in group.spans:
                count += 1
                trace_id, span_id = span.trace_id, span.span_id
                if (
                    len(trace_id) != 16
                    or len(span_id) != 8
                    or trace_id == _NO_TRACE
                    or span_id == _NO_SPAN
                ):
                    rejected += 1
                    message = message or f"span {span.name[:60]!r} has no valid trace or span id"
    return Checked(count - rejected, rejected, message)


def _check_json(kind: Kind, request: Any) -> Checked:
    key, old = ("resourceSpans", "resource_spans")
    if kind == "logs":
        key, old = ("resourceLogs", "resource_logs")
    if not isinstance(request, dict) or (request and not {key, old} & set(request)):
        raise Refused(400, "malformed", f"the body is no OTLP/JSON request: it has no {key!r}")
    if not request:
        return Checked(0)
    try:
        found = decode_json(request)
    except InputError as error:
        raise Refused(400, "malformed", f"the body is no OTLP/JSON request: {error}") from None
    told = [problem for problem in found.problems if problem.endswith(_SKIPPED)] or found.problems
    count = len(found.spans) if kind == "traces" else len(found.logs)
    return Checked(count, found.skipped, told[0] if told else "")
