"""OTLP protobuf messages to spans and log records.

Requests with traces and with logs have the same outer fields. Without further information, their
records distinguish them: the first field of a span is its trace id, and the first field of a log
record is a fixed 64-bit time, so a log record that is parsed as a span never has a trace id.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as WireLog
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from oteval.base.errors import InputError
from oteval.model import Attributes, Event, Link, LogRecord, Span, named_event

from .decoded import (
    MAX_KIND,
    MAX_SEVERITY,
    MAX_STATUS,
    MAX_TIME,
    Decoded,
    Origin,
    prefix_problems,
    short_repr,
)
from .json_fields import InvalidValueError, bytes_value, double_value

__all__ = [
    "attribute_value",
    "decode_protobuf",
    "decode_protobuf_logs",
    "decode_protobuf_traces",
    "origin_of",
    "resource_of",
    "span_of",
]

# The number of records that are inspected to distinguish spans from log records.
_SAMPLE = 100
_NO_TRACE = bytes(16)
_NO_SPAN = bytes(8)


def decode_protobuf(data: bytes) -> Decoded:
    """Decode a request with traces or with logs.

    Args:
        data: The bytes of one message.

    Returns:
        The spans or log records, and the problems.

    Raises:
        InputError: The bytes are not a request.
    """
    traces = _parse_traces(data)
    spans = [] if traces is None else list(islice(_spans(traces), _SAMPLE))
    if traces is not None and any(span.trace_id for span in spans):
        return _traces(traces)
    logs = _parse_logs(data)
    records = [] if logs is None else list(islice(_records(logs), _SAMPLE))
    if logs is not None and records and (not spans or _unknown(records) < _unknown(spans)):
        return _logs(logs)
    if traces is not None and (spans or not _unknown([traces, *traces.resource_spans])):
        return _traces(traces)
    raise InputError("the bytes are not an OTLP protobuf request")


def decode_protobuf_traces(data: bytes) -> Decoded:
    """Decode the bytes of an ExportTraceServiceRequest.

    Raises:
        InputError: The bytes are not such a request.
    """
    request = _parse_traces(data)
    if request is None:
        raise InputError("the bytes are not an OTLP protobuf request for traces")
    return _traces(request)


def decode_protobuf_logs(data: bytes) -> Decoded:
    """Decode the bytes of an ExportLogsServiceRequest.

    Raises:
        InputError: The bytes are not such a request.
    """
    request = _parse_logs(data)
    if request is None:
        raise InputError("the bytes are not an OTLP protobuf request for logs")
    return _logs(request)


def _parse_traces(data: bytes) -> ExportTraceServiceRequest | None:
    try:
        return ExportTraceServiceRequest.FromString(data)
    except DecodeError:
        return None


def _parse_logs(data: bytes) -> ExportLogsServiceRequest | None:
    try:
        return ExportLogsServiceRequest.FromString(data)
    except DecodeError:
        return None


def _unknown(messages: Iterable[Any]) -> int:
    """The number of unknown fields of the messages themselves."""
    return sum(len(UnknownFieldSet(message)) for message in messages)


def _spans(request: ExportTraceServiceRequest) -> Iterable[WireSpan]:
    return (s for r in request.resource_spans for group in r.scope_spans for s in group.spans)


def _records(request: ExportLogsServiceRequest) -> Iterable[WireLog]:
    return (
        record
        for resource in request.resource_logs
        for group in resource.scope_logs
        for record in group.log_records
    )


def _traces(request: ExportTraceServiceRequest) -> Decoded:
    out = Decoded()
    for group in request.resource_spans:
        resource = resource_of(group.resource, out.problems)
        for scoped in group.scope_spans:
            origin = origin_of(scoped.scope, resource, out.problems)
            for item in scoped.spans:
                if (span := span_of(item, origin, out)) is not None:
                    out.spans.append(span)
    return out.closed()


def _logs(request: ExportLogsServiceRequest) -> Decoded:
    out = Decoded()
    for group in request.resource_logs:
        resource = resource_of(group.resource, out.problems)
        for scoped in group.scope_logs:
            origin = origin_of(scoped.scope, resource, out.problems)
            out.logs.extend(_log(item, origin, out.problems) for item in scoped.log_records)
    return out.closed()


def resource_of(resource: Resource, problems: list[str]) -> Attributes:
    """Return the attributes of a resource, and add its problems to a list."""
    return _prefixed("resource", resource.attributes, problems)


def origin_of(scope: InstrumentationScope, resource: Attributes, problems: list[str]) -> Origin:
    """Return the origin of the spans of a scope, and add its problems to a list."""
    attributes = _prefixed("scope", scope.attributes, problems)
    return Origin(resource, scope.name, scope.version, attributes)


def _prefixed(name: str, items: Iterable[KeyValue], problems: list[str]) -> Attributes:
    start = len(problems)
    attributes = _attributes(items, problems)
    problems[start:] = [f"{name}: {problem}" for problem in problems[start:]]
    return attributes


def span_of(raw: WireSpan, origin: Origin, out: Decoded) -> Span | None:
    """A span, or None if it has no ids and is skipped."""
    problems = out.problems
    start = len(problems)
    trace_id, span_id, parent_id = raw.trace_id, raw.span_id, raw.parent_span_id
    if len(trace_id) != 16 or len(span_id) != 8 or trace_id == _NO_TRACE or span_id == _NO_SPAN:
        out.skip_span(raw.name, _no_id(trace_id, span_id))
        return None
    if len(parent_id) != 8 or parent_id == _NO_SPAN:
        if parent_id.strip(b"\0"):
            problems.append(
                f"parentSpanId {short_repr(parent_id.hex())} is not a span id; left out"
            )
        parent_id = b""
    events, links = raw.events, raw.links
    code, message = (raw.status.code, raw.status.message) if raw.HasField("status") else (0, "")
    span = Span(
        trace_id.hex(),
        span_id.hex(),
        parent_id.hex(),
        raw.name,
        _limited(raw.kind, "kind", MAX_KIND, problems),
        _limited(raw.start_time_unix_nano, "startTimeUnixNano", MAX_TIME, problems),
        _limited(raw.end_time_unix_nano, "endTimeUnixNano", MAX_TIME, problems),
        _limited(code, "status.code", MAX_STATUS, problems),
        message,
        _attributes(raw.attributes, problems),
        _events(events, problems) if events else (),
        _links(links, problems) if links else (),
        origin.scope,
        origin.version,
        origin.attributes,
        origin.resource,
        raw.trace_state,
        raw.flags,
        raw.dropped_attributes_count,
        raw.dropped_events_count,
        raw.dropped_links_count,
    )
    if len(problems) > start:
        prefix_problems(problems, start, "span", span.name)
    return span


def _no_id(trace_id: bytes, span_id: bytes) -> str:
    if len(trace_id) != 16 or trace_id == _NO_TRACE:
        return f"traceId {short_repr(trace_id.hex())} is not a trace id"
    return f"spanId {short_repr(span_id.hex())} is not a span id"


def _events(items: Iterable[WireSpan.Event], problems: list[str]) -> tuple[Event, ...]:
    return tuple(
        Event(
            item.name,
            _limited(item.time_unix_nano, "event timeUnixNano", MAX_TIME, problems),
            _attributes(item.attributes, problems),
            item.dropped_attributes_count,
        )
        for item in items
    )


def _links(items: Iterable[WireSpan.Link], problems: list[str]) -> tuple[Link, ...]:
    out = []
    for item in items:
        trace_id = _id(item.trace_id, _NO_TRACE)
        span_id = _id(item.span_id, _NO_SPAN)
        if trace_id and span_id:
            out.append(Link(trace_id, span_id, _attributes(item.attributes, problems)))
        else:
            problems.append("a link without valid ids; left out")
    return tuple(out)


def _log(raw: WireLog, origin: Origin, problems: list[str]) -> LogRecord:
    start = len(problems)
    attributes = _attributes(raw.attributes, problems)
    event_name = raw.event_name
    event_name = event_name or named_event(attributes)
    trace_id, span_id = _id(raw.trace_id, _NO_TRACE), _id(raw.span_id, _NO_SPAN)
    if trace_id is None:
        problems.append(f"traceId {short_repr(raw.trace_id.hex())} is not a trace id; left out")
    if span_id is None:
        problems.append(f"spanId {short_repr(raw.span_id.hex())} is not a span id; left out")
    record = LogRecord(
        trace_id or "",
        span_id or "",
        _limited(raw.time_unix_nano, "timeUnixNano", MAX_TIME, problems),
        _limited(raw.observed_time_unix_nano, "observedTimeUnixNano", MAX_TIME, problems),
        event_name,
        _limited(raw.severity_number, "severityNumber", MAX_SEVERITY, problems),
        raw.severity_text,
        _body(raw.body, problems),
        attributes,
        origin.scope,
        origin.version,
        origin.resource,
        raw.dropped_attributes_count,
    )
    if len(problems) > start:
        prefix_problems(problems, start, "log record", event_name)
    return record


def _body(raw: AnyValue, problems: list[str]) -> Any:
    try:
        return attribute_value(raw)
    except InvalidValueError as error:
        problems.append(f"body {error}; left out")
        return None


def _id(raw: bytes, zeros: bytes) -> str | None:
    """An id in hex; "" if it is missing or all zeros, None if its length is wrong."""
    if not raw or raw == zeros:
        return ""
    return raw.hex() if len(raw) == len(zeros) else None


def _limited(value: int, name: str, limit: int, problems: list[str]) -> int:
    if 0 <= value <= limit:
        return value
    problems.append(f"{name} {value} is not a number from 0 to {limit}; taken as 0")
    return 0


def _attributes(items: Iterable[KeyValue], problems: list[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for item in items:
        key = item.key
        if not key:
            problems.append("an attribute without a key; left out")
            continue
        value = item.value
        if text := value.string_value:
            out[key] = text
            continue
        try:
            out[key] = attribute_value(value)
        except InvalidValueError as error:
            problems.append(f"attribute {short_repr(key)} {error}; left out")
    return out


def attribute_value(value: AnyValue) -> Any:
    """The Python value of an AnyValue.

    Raises:
        InvalidValueError: It has an unknown kind.
    """
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value
    if kind == "int_value":
        return value.int_value
    if kind == "double_value":
        return double_value(value.double_value)
    if kind == "bool_value":
        return value.bool_value
    if kind == "array_value":
        return [attribute_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {item.key: attribute_value(item.value) for item in value.kvlist_value.values}
    if kind == "bytes_value":
        return bytes_value(value.bytes_value)
    if kind is None:
        return None
    raise InvalidValueError(f"has a value of the unknown kind {str(kind)!r}")
