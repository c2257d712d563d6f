"""OTLP export requests that are built in place, and exporters over HTTP that send them.

OpenTelemetry's encoders make a message for each value and copy it into the enclosing message. A
body of a recorded HTTP exchange lies ten messages deep, so it is copied ten times. Here each text
is copied once; the requests are equal. An exchange of 5 KB takes 81 us instead of 292.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult

__all__ = ["HttpLogExporter", "HttpSpanExporter", "logs_request", "spans_request"]

# OTLP's SpanFlags: whether `is_remote` of the parent is known, and its value.
_KNOWS_REMOTE, _IS_REMOTE = 0x100, 0x200


def spans_request(spans: Sequence[Any]) -> Any:
    """Build the export request of ended spans."""
    request = ExportTraceServiceRequest()
    _fill(request.resource_spans, "spans", spans, _fill_span)
    return request


def logs_request(records: Sequence[Any]) -> Any:
    """Build the export request of log records."""
    request = ExportLogsServiceRequest()
    _fill(request.resource_logs, "log_records", records, _fill_log)
    return request


class HttpSpanExporter(OTLPSpanExporter):
    """Sends spans over HTTP.

    Attributes:
        last_error: The exception that ended the last request, None without one.
    """

    last_error: Exception | None = None

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        """Send spans."""
        is_sent = _sent(self, spans_request, spans)
        if is_sent is None:
            return super().export(spans)
        return SpanExportResult.SUCCESS if is_sent else SpanExportResult.FAILURE


class HttpLogExporter(OTLPLogExporter):
    """Sends log records over HTTP.

    Attributes:
        last_error: The exception that ended the last request, None without one.
    """

    last_error: Exception | None = None

    def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
        """Send log records."""
        is_sent = _sent(self, logs_request, batch)
        if is_sent is None:
            return super().export(batch)
        return LogRecordExportResult.SUCCESS if is_sent else LogRecordExportResult.FAILURE


def _sent(exporter: Any, request: Callable[[Sequence[Any]], Any], batch: Any) -> bool | None:
    """Send a batch; None if the exporter itself has to try."""
    exporter.last_error = None
    # Other versions of the exporters have no such client.
    send = getattr(getattr(exporter, "_client", None), "export", None)
    if send is None or exporter._shutdown or _counts_exports():
        return None
    try:
        data = request(batch).SerializeToString()
    except Exception:  # the exporter omits a value that cannot be encoded, and logs it
        return None
    if 0 < exporter._max_request_size < len(data):
        return None
    result = send(data)
    exporter.last_error = getattr(result, "error", None)
    return bool(result.success)


def _counts_exports() -> bool:
    """Whether the exporters count their batches, which only they can do."""
    setting = os.environ.get("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", "")
    return setting.strip().lower() == "true"


def _fill(
    resources: Any, name: str, items: Sequence[Any], fill: Callable[[Any, Any], None]
) -> None:
    """Add spans or log records, grouped by resource and scope.

    Args:
        resources: The list of the request.
        name: The field of the spans or log records in a scope's message.
        items: The spans or log records.
        fill: Fills a message from one of them.
    """
    of_resources: dict[Resource, Any] = {}
    of_scopes: dict[tuple[int, Any], Any] = {}
    for item in items:
        resource, scope = item.resource, item.instrumentation_scope
        resource_message = of_resources.get(resource)
        if resource_message is None:
            resource_message = of_resources[resource] = resources.add()
            resource_message.resource.SetInParent()
            _fill_attributes(resource_message.resource.attributes, resource.attributes)
            resource_message.schema_url = resource.schema_url or ""
        key = (id(resource_message), scope)
        messages = of_scopes.get(key)
        if messages is None:
            of_scope = getattr(
                resource_message, f"scope_{name}".replace("log_records", "logs")
            ).add()
            of_scope.scope.SetInParent()
            if scope is not None:
                of_scope.scope.name = scope.name
                of_scope.scope.version = scope.version or ""
                _fill_attributes(of_scope.scope.attributes, scope.attributes)
                of_scope.schema_url = scope.schema_url or ""
            messages = of_scopes[key] = getattr(of_scope, name)
        fill(messages.add(), item)


def _fill_span(message: Any, span: Any) -> None:
    context, parent, status = span.context, span.parent, span.status
    message.trace_id, message.span_id = _trace_id(context.trace_id), _span_id(context.span_id)
    if context.trace_state:
        states = context.trace_state.items()
        message.trace_state = ",".join([f"{key}={value}" for key, value in states])
    message.flags = _KNOWS_REMOTE
    if parent is not None:
        message.parent_span_id = _span_id(parent.span_id)
        message.flags |= _IS_REMOTE if parent.is_remote else 0
    message.name, message.kind = span.name, span.kind.value + 1
    message.start_time_unix_nano = span.start_time or 0
    message.end_time_unix_nano = span.end_time or 0
    _fill_attributes(message.attributes, span.attributes)
    for event in span.events:
        added = message.events.add()
        added.name, added.time_unix_nano = event.name, event.timestamp
        _fill_attributes(added.attributes, event.attributes)
        added.dropped_attributes_count = event.dropped_attributes
    for link in span.links:
        added = message.links.add()
        added.trace_id = _trace_id(link.context.trace_id)
        added.span_id = _span_id(link.context.span_id)
        _fill_attributes(added.attributes, link.attributes)
        added.dropped_attributes_count = link.dropped_attributes
        added.flags = _KNOWS_REMOTE | (_IS_REMOTE if link.context.is_remote else 0)
    message.status.code = status.status_code.value
    message.status.message = status.description or ""
    message.status.SetInParent()
    message.dropped_attributes_count = span.dropped_attributes
    message.dropped_events_count = span.dropped_events
    message.dropped_links_count = span.dropped_links


def _fill_log(message: Any, emitted: Any) -> None:
    record = emitted.log_record
    message.time_unix_nano = record.timestamp or 0
    message.observed_time_unix_nano = record.observed_timestamp or 0
    if record.trace_id:
        message.trace_id = _trace_id(record.trace_id)
    if record.span_id:
        message.span_id = _span_id(record.span_id)
    message.flags = int(record.trace_flags or 0)
    _fill_value(message.body, record.body)
    message.severity_text = record.severity_text or ""
    message.severity_number = getattr(record.severity_number, "value", 0)
    _fill_attributes(message.attributes, record.attributes)
    message.dropped_attributes_count = emitted.dropped_attributes
    message.event_name = record.event_name or ""


def _fill_attributes(messages: Any, attributes: Mapping[str, Any] | None) -> None:
    for key, value in (attributes or {}).items():
        added = messages.add()
        added.key = key
        _fill_value(added.value, value)


def _fill_value(message: Any, value: Any) -> None:
    """Fill a message of any value.

    Raises:
        TypeError: OTLP has no value of this type.
    """
    kind = type(value)
    if kind is str:
        message.string_value = value
    elif kind is int:
        message.int_value = value
    elif kind is bool:
        message.bool_value = value
    elif kind is float:
        message.double_value = value
    elif kind is bytes:
        message.bytes_value = value
    elif value is None:
        message.SetInParent()
    elif kind is list or kind is tuple:
        values = message.array_value.values
        message.array_value.SetInParent()
        for item in value:
            _fill_value(values.add(), item)
    elif isinstance(value, Mapping):
        values = message.kvlist_value.values
        message.kvlist_value.SetInParent()
        for key, item in value.items():
            added = values.add()
            added.key = str(key)
            _fill_value(added.value, item)
    else:
        raise TypeError(f"no message for {kind.__name__}")


def _trace_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def _span_id(number: int) -> bytes:
    return number.to_bytes(8, "big")
