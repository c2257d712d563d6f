"""Objects of OpenTelemetry's Python SDK to spans and log records, without encoding them.

The result is the same as if the SDK's OTLP exporter had sent them to `oteval.ingest.otlp`. The SDK
is not imported; its objects are only accessed by their attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..model import Attributes, Event, Link, LogRecord, Span, named_event
from .otlp.json_fields import bytes_value, double_value

__all__ = ["attributes_of", "log_record_of", "span_of", "value_of"]

# OTLP's SpanFlags: whether `is_remote` of the parent is known, and its value.
_KNOWS_REMOTE, _IS_REMOTE = 0x100, 0x200
# OTLP numbers the kinds from 1, the SDK from 0.
_KIND_OFFSET = 1


def span_of(span: Any) -> Span:
    """Convert an ended span.

    Args:
        span: An ``opentelemetry.sdk.trace.ReadableSpan``.
    """
    context, parent, scope = span.context, span.parent, span.instrumentation_scope
    flags = _KNOWS_REMOTE | (_IS_REMOTE if parent is not None and parent.is_remote else 0)
    state = context.trace_state
    return Span(
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        f"{parent.span_id:016x}" if parent is not None else "",
        span.name,
        span.kind.value + _KIND_OFFSET,
        span.start_time or 0,
        span.end_time or 0,
        span.status.status_code.value,
        span.status.description or "",
        attributes_of(span.attributes),
        tuple(_event(event) for event in span.events),
        tuple(_link(link) for link in span.links),
        scope.name if scope else "",
        (scope.version or "") if scope else "",
        attributes_of(scope.attributes if scope else None),
        attributes_of(span.resource.attributes),
        ",".join(f"{key}={value}" for key, value in state.items()) if state else "",
        flags,
        span.dropped_attributes,
        span.dropped_events,
        span.dropped_links,
    )


def log_record_of(emitted: Any) -> LogRecord:
    """Convert a log record.

    Args:
        emitted: The object that the SDK passes to a log record processor, an
            ``opentelemetry.sdk._logs.ReadWriteLogRecord`` or ``ReadableLogRecord``.
    """
    record, scope = emitted.log_record, emitted.instrumentation_scope
    attributes = attributes_of(record.attributes)
    event_name = record.event_name or ""
    event_name = event_name or named_event(attributes)
    return LogRecord(
        f"{record.trace_id:032x}" if record.trace_id else "",
        f"{record.span_id:016x}" if record.span_id else "",
        record.timestamp or 0,
        record.observed_timestamp or 0,
        event_name,
        record.severity_number.value if record.severity_number is not None else 0,
        record.severity_text or "",
        value_of(record.body),
        attributes,
        scope.name if scope else "",
        (scope.version or "") if scope else "",
        attributes_of(emitted.resource.attributes if emitted.resource else None),
        emitted.dropped_attributes,
    )


def _event(event: Any) -> Event:
    dropped = getattr(event, "dropped_attributes", 0)
    return Event(event.name, event.timestamp, attributes_of(event.attributes), dropped)


def _link(link: Any) -> Link:
    context = link.context
    ids = (f"{context.trace_id:032x}", f"{context.span_id:016x}")
    return Link(*ids, attributes_of(link.attributes))


def attributes_of(attributes: Mapping[str, Any] | None) -> Attributes:
    """Convert attributes to the values that they would have after decoding from OTLP."""
    if not attributes:
        return {}
    return {key: value_of(value) for key, value in attributes.items()}


def value_of(value: Any) -> Any:
    """Convert an attribute's value to the value that it would have after decoding from OTLP."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return double_value(value)
    if isinstance(value, bytes):
        return bytes_value(value)
    if isinstance(value, Mapping):
        return {str(key): value_of(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [value_of(item) for item in value]
    return str(value)
