"""Stored spans and log records as OTLP requests."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from ..base.jsontext import canonical, dumps, encodable
from ..model import LogRecord, Span

__all__ = ["log_request", "span_request"]

_INT64 = 1 << 63
_UINT64 = (1 << 64) - 1
_UINT32 = (1 << 32) - 1

Extra = Mapping[tuple[str, str], Mapping[str, Any]]
"""Attributes to add to spans, by trace and span id."""


def span_request(spans: Iterable[Span], extra: Extra | None = None) -> ExportTraceServiceRequest:
    """A request with spans, grouped by resource and scope.

    Args:
        spans: The spans.
        extra: Attributes to add to spans; they replace attributes of the same name.
    """
    more = extra or {}
    request = ExportTraceServiceRequest()
    scopes: dict[tuple[str, str, str, str], trace_pb2.ScopeSpans] = {}
    resources: dict[str, trace_pb2.ResourceSpans] = {}
    for span in spans:
        resource = canonical(span.resource)
        key = (resource, span.scope, span.scope_version, canonical(span.scope_attributes))
        if key not in scopes:
            if resource not in resources:
                resources[resource] = request.resource_spans.add(
                    resource=Resource(attributes=_attributes(span.resource))
                )
            scopes[key] = resources[resource].scope_spans.add(scope=_scope(span))
        scopes[key].spans.append(_span(span, more.get((span.trace_id, span.span_id), {})))
    return request


def log_request(records: Iterable[LogRecord]) -> ExportLogsServiceRequest:
    """A request with log records, grouped by resource and scope."""
    request = ExportLogsServiceRequest()
    scopes: dict[tuple[str, str, str], logs_pb2.ScopeLogs] = {}
    for record in records:
        key = (canonical(record.resource), record.scope, record.scope_version)
        if key not in scopes:
            resource = request.resource_logs.add(
                resource=Resource(attributes=_attributes(record.resource))
            )
            scope = InstrumentationScope(
                name=encodable(record.scope), version=encodable(record.scope_version)
            )
            scopes[key] = resource.scope_logs.add(scope=scope)
        scopes[key].log_records.append(_log(record))
    return request


def _log(record: LogRecord) -> logs_pb2.LogRecord:
    return logs_pb2.LogRecord(
        time_unix_nano=_time(record.time_ns),
        observed_time_unix_nano=_time(record.observed_ns),
        severity_number=record.severity,  # type: ignore[arg-type]
        severity_text=encodable(record.severity_text),
        body=_value(record.body),
        attributes=_attributes(record.attributes),
        dropped_attributes_count=record.dropped_attributes & _UINT32,
        trace_id=bytes.fromhex(record.trace_id),
        span_id=bytes.fromhex(record.span_id),
        event_name=encodable(record.event_name),
    )


def _scope(span: Span) -> InstrumentationScope:
    return InstrumentationScope(
        name=encodable(span.scope),
        version=encodable(span.scope_version),
        attributes=_attributes(span.scope_attributes),
    )


def _span(span: Span, extra: Mapping[str, Any]) -> trace_pb2.Span:
    return trace_pb2.Span(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_id),
        trace_state=encodable(span.trace_state),
        flags=span.flags & _UINT32,
        name=encodable(span.name),
        kind=span.kind,  # type: ignore[arg-type]
        start_time_unix_nano=_time(span.start_ns),
        end_time_unix_nano=_time(span.end_ns),
        attributes=_attributes({**span.attributes, **extra}),
        dropped_attributes_count=span.dropped_attributes & _UINT32,
        events=[
            trace_pb2.Span.Event(
                name=encodable(event.name),
                time_unix_nano=_time(event.time_ns),
                attributes=_attributes(event.attributes),
                dropped_attributes_count=event.dropped_attributes & _UINT32,
            )
            for event in span.events
        ],
        dropped_events_count=span.dropped_events & _UINT32,
        links=[
            trace_pb2.Span.Link(
                trace_id=bytes.fromhex(link.trace_id),
                span_id=bytes.fromhex(link.span_id),
                attributes=_attributes(link.attributes),
            )
            for link in span.links
        ],
        dropped_links_count=span.dropped_links & _UINT32,
        status=trace_pb2.Status(
            code=span.status_code,  # type: ignore[arg-type]
            message=encodable(span.status_message),
        ),
    )


def _time(nanoseconds: int) -> int:
    return max(0, min(nanoseconds, _UINT64))


def _attributes(values: Mapping[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=encodable(key), value=_value(value)) for key, value in values.items()]


def _value(value: Any) -> AnyValue:
    """An attribute's value as an OTLP message."""
    if value is None:
        return AnyValue()
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        if -_INT64 <= value < _INT64:
            return AnyValue(int_value=value)
        return AnyValue(string_value=str(value))
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=encodable(value))
    if isinstance(value, Mapping):
        return _of_mapping(value)
    if isinstance(value, Iterable):
        return AnyValue(array_value=ArrayValue(values=[_value(item) for item in value]))
    return AnyValue(string_value=encodable(dumps(value)))


def _of_mapping(value: Mapping[str, Any]) -> AnyValue:
    """A mapping as an OTLP message.

    Some mappings represent bytes and special floats in the store; they become these values.
    """
    if len(value) == 1:
        ((kind, text),) = value.items()
        try:
            if kind == "bytesValue":
                return AnyValue(bytes_value=base64.b64decode(text, validate=True))
            if kind == "doubleValue":
                return AnyValue(double_value=float(text))
        except (ValueError, TypeError):
            pass  # an ordinary mapping with that key
    return AnyValue(kvlist_value=KeyValueList(values=_attributes(value)))
