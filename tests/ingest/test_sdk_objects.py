"""Spans and log records of the SDK equal those that come over OTLP."""

from __future__ import annotations

from typing import Any

from hypothesis import given, strategies as st
from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.status import Status, StatusCode

from oteval.ingest.otlp import decode_protobuf_logs, decode_protobuf_traces
from oteval.ingest.sdk_objects import log_record_of, span_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INTEGER = st.integers(-(2**63), 2**63 - 1)
SCALAR = TEXT | st.booleans() | INTEGER | st.floats()
ATTRIBUTE = SCALAR | st.lists(TEXT, max_size=3) | st.lists(INTEGER, max_size=3)
ATTRIBUTES = st.dictionaries(TEXT.filter(bool), ATTRIBUTE, max_size=4)
BODY = st.recursive(
    SCALAR | st.none() | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(
    name=TEXT,
    attributes=ATTRIBUTES,
    event=ATTRIBUTES,
    resource=ATTRIBUTES,
    kind=st.sampled_from(list(trace.SpanKind)),
    code=st.sampled_from(list(StatusCode)),
    remote=st.booleans(),
    state=st.booleans(),
)
def test_a_span_equals_the_exported_one(
    name: str,
    attributes: dict[str, Any],
    event: dict[str, Any],
    resource: dict[str, Any],
    kind: trace.SpanKind,
    code: StatusCode,
    remote: bool,
    state: bool,
):
    """Any span is the same after conversion as after OTLP protobuf."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(
        resource=Resource(resource),
        shutdown_on_exit=False,
        span_limits=SpanLimits(max_span_attributes=3, max_events=2),
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    states = trace.TraceState([("a", "1"), ("b", "2")]) if state else None
    parent = trace.SpanContext(5, 6, remote, trace.TraceFlags(1), states)
    context = trace.set_span_in_context(trace.NonRecordingSpan(parent))
    tracer = provider.get_tracer("scope", "1.0", attributes={"s": 1})
    links = [trace.Link(parent, {"l": "x"})]
    span = tracer.start_span(name, context, kind, attributes, links=links)
    for number in range(3):
        span.add_event(f"e{number}", event)
    span.set_status(Status(code, "why" if code is StatusCode.ERROR else None))
    span.end()
    (ended,) = exporter.get_finished_spans()

    (wire,) = decode_protobuf_traces(encode_spans([ended]).SerializeToString()).spans

    assert span_of(ended) == wire


def test_a_root_span_without_scope_or_state_is_too():
    """A span with default values is also the same."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer("t").start_span("s").end()
    (ended,) = exporter.get_finished_spans()

    (wire,) = decode_protobuf_traces(encode_spans([ended]).SerializeToString()).spans

    assert span_of(ended) == wire
    assert span_of(ended).parent_id == ""


@given(
    body=BODY,
    attributes=ATTRIBUTES,
    severity=st.none() | st.sampled_from(list(SeverityNumber)),
    name=st.none() | TEXT,
    time_ns=st.none() | st.integers(1, 2**62),
    inside=st.booleans(),
)
def test_a_log_record_equals_the_exported_one(
    body: Any,
    attributes: dict[str, Any],
    severity: SeverityNumber | None,
    name: str | None,
    time_ns: int | None,
    inside: bool,
):
    """Any log record is the same after conversion as after OTLP protobuf."""
    exporter = InMemoryLogRecordExporter()
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    parent = trace.SpanContext(5, 6, False)
    span = trace.NonRecordingSpan(parent) if inside else trace.INVALID_SPAN
    record = LogRecord(
        timestamp=time_ns,
        observed_timestamp=7,
        context=trace.set_span_in_context(span),
        severity_number=severity,
        severity_text="words",
        body=body,
        attributes=attributes,
        event_name=name,
    )
    provider.get_logger("scope", "1.0").emit(record)
    (emitted,) = exporter.get_finished_logs()

    (wire,) = decode_protobuf_logs(encode_logs([emitted]).SerializeToString()).logs

    assert log_record_of(emitted) == wire
