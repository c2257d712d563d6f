"""Ended spans and log records of OpenTelemetry's SDK as OTLP/JSON: one request per line.

A line has spans or log records that share a resource and a scope, in the JSON encoding of OTLP's
export requests: ids in hexadecimal, 64-bit integers as text.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..base.jsontext import dumps

__all__ = ["log_lines", "span_lines"]

# OTLP's SpanFlags: whether `is_remote` of the parent is known, and its value.
_KNOWS_REMOTE, _IS_REMOTE = 0x100, 0x200
_MAX_INT = 2**63


def span_lines(spans: Iterable[Any]) -> list[bytes]:
    """Export requests for spans, each a line of JSON including the end of line."""
    return _lines(spans, "Spans", "spans", _span)


def log_lines(records: Iterable[Any]) -> list[bytes]:
    """Export requests for log records, each a line of JSON including the end of line."""
    return _lines(records, "Logs", "logRecords", _log_record)


def _lines(
    items: Iterable[Any], signal: str, name: str, encode: Callable[[Any], dict[str, Any]]
) -> list[bytes]:
    groups: dict[tuple[int, int], list[Any]] = {}
    for item in items:
        key = (id(item.resource), id(item.instrumentation_scope))
        groups.setdefault(key, []).append(item)
    lines = []
    for group in groups.values():
        resource, scope = group[0].resource, group[0].instrumentation_scope
        of_scope = {"scope": _scope(scope), name: [encode(item) for item in group]}
        of_resource = {"resource": _resource(resource), f"scope{signal}": [of_scope]}
        if scope is not None and scope.schema_url:
            of_scope["schemaUrl"] = scope.schema_url
        if resource is not None and resource.schema_url:
            of_resource["schemaUrl"] = resource.schema_url
        lines.append(dumps({f"resource{signal}": [of_resource]}).encode() + b"\n")
    return lines


def _span(span: Any) -> dict[str, Any]:
    context, parent, status = span.context, span.parent, span.status
    flags = _KNOWS_REMOTE | (_IS_REMOTE if parent is not None and parent.is_remote else 0)
    encoded = {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "name": span.name,
        "kind": span.kind.value + 1,
        "startTimeUnixNano": str(span.start_time or 0),
        "endTimeUnixNano": str(span.end_time or 0),
        "attributes": _attributes(span.attributes),
        "flags": flags,
        "status": {"code": status.status_code.value},
    }
    if parent is not None:
        encoded["parentSpanId"] = f"{parent.span_id:016x}"
    if status.description:
        encoded["status"]["message"] = status.description
    if context.trace_state:
        states = context.trace_state.items()
        encoded["traceState"] = ",".join(f"{key}={value}" for key, value in states)
    if span.events:
        encoded["events"] = [_event(event) for event in span.events]
    if span.links:
        encoded["links"] = [_link(link) for link in span.links]
    for key, count in (
        ("droppedAttributesCount", span.dropped_attributes),
        ("droppedEventsCount", span.dropped_events),
        ("droppedLinksCount", span.dropped_links),
    ):
        if count:
            encoded[key] = count
    return encoded


def _event(event: Any) -> dict[str, Any]:
    encoded = {
        "name": event.name,
        "timeUnixNano": str(event.timestamp),
        "attributes": _attributes(event.attributes),
    }
    if dropped := getattr(event, "dropped_attributes", 0):
        encoded["droppedAttributesCount"] = dropped
    return encoded


def _link(link: Any) -> dict[str, Any]:
    return {
        "traceId": f"{link.context.trace_id:032x}",
        "spanId": f"{link.context.span_id:016x}",
        "attributes": _attributes(link.attributes),
    }


def _log_record(emitted: Any) -> dict[str, Any]:
    record = emitted.log_record
    encoded: dict[str, Any] = {
        "timeUnixNano": str(record.timestamp or 0),
        "observedTimeUnixNano": str(record.observed_timestamp or 0),
        "attributes": _attributes(record.attributes),
    }
    if record.trace_id:
        encoded["traceId"] = f"{record.trace_id:032x}"
    if record.span_id:
        encoded["spanId"] = f"{record.span_id:016x}"
    if record.trace_flags:
        encoded["flags"] = int(record.trace_flags)
    if record.severity_number is not None:
        encoded["severityNumber"] = record.severity_number.value
    if record.severity_text:
        encoded["severityText"] = record.severity_text
    if record.body is not None:
        encoded["body"] = _value(record.body)
    if record.event_name:
        encoded["eventName"] = record.event_name
    if emitted.dropped_attributes:
        encoded["droppedAttributesCount"] = emitted.dropped_attributes
    return encoded


def _scope(scope: Any) -> dict[str, Any]:
    if scope is None:
        return {}
    encoded: dict[str, Any] = {"name": scope.name}
    if scope.version:
        encoded["version"] = scope.version
    if scope.attributes:
        encoded["attributes"] = _attributes(scope.attributes)
    return encoded


def _resource(resource: Any) -> dict[str, Any]:
    return {"attributes": _attributes(resource.attributes)} if resource is not None else {}


def _attributes(attributes: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    if not attributes:
        return []
    return [{"key": str(key), "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and -_MAX_INT <= value < _MAX_INT:
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value if math.isfinite(value) else _NOT_FINITE[str(value)]}
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": _attributes(value)}}
    if isinstance(value, Sequence):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value)}


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
