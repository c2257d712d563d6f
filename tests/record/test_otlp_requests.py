"""Tests of the export requests that are built in place."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState

from oteval.record.otlp_requests import logs_request, spans_request

VALUES: dict[str, Any] = {
    "text": "gr\u00fc\u00df",
    "empty": "",
    "count": -3,
    "yes": True,
    "share": 0.5,
    "names": ("a", "b"),
    "none": (),
}
REMOTE = SpanContext(7, 9, True, TraceFlags(1), TraceState([("a", "b"), ("c", "d")]))


def test_spans_are_encoded_as_by_the_exporters() -> None:
    """Parents, links, events, errors, resources and scopes are where OpenTelemetry puts them."""
    exporter = InMemorySpanExporter()
    for service in ("one", "two"):
        provider = TracerProvider(resource=Resource({"service.name": service}, "http://schema"))
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        for scope in ("x", "y"):
            tracer = provider.get_tracer(scope, "1.0", schema_url="http://scope")
            links = [Link(REMOTE, {"n": 1})]
            with tracer.start_as_current_span("outer", kind=SpanKind.CLIENT, links=links) as span:
                span.set_attributes(VALUES)
                span.add_event("it happened", {"where": "here"}, 17)
                span.set_status(StatusCode.ERROR, "it broke")
                tracer.start_span("inner").end()
    spans = exporter.get_finished_spans()

    assert spans_request(spans) == encode_spans(spans)


def test_log_records_are_encoded_as_by_the_exporters() -> None:
    """Bodies of every shape are, and attributes."""
    exporter = InMemoryLogRecordExporter()
    provider = LoggerProvider(resource=Resource({"service.name": "one"}))
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    logger = provider.get_logger("x")
    for body in ("text", None, 3, b"data", [], {}, {"a": {"b": [1, None, {"c": ""}]}, "d": VALUES}):
        logger.emit(
            timestamp=5,
            body=body,
            attributes=VALUES,
            event_name="e",
            severity_number=SeverityNumber.WARN,
            severity_text="WARN",
        )
    records = exporter.get_finished_logs()

    assert len(records) == 7
    assert logs_request(records) == encode_logs(records)


def test_a_value_without_a_message_is_refused() -> None:
    """The exporter then omits it, and says so."""
    exporter = InMemoryLogRecordExporter()
    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    provider.get_logger("x").emit(body={"a": {1, 2}})

    with pytest.raises(TypeError, match="no message for set"):
        logs_request(exporter.get_finished_logs())
