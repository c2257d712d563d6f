"""URLs and errors in spans lose secrets without any rule."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from oteval.instrumentation.span_redaction import TelemetryRedactor
from oteval.redaction import ValueRedactor

KEY = "sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2"


def redacted(attributes: dict[str, str], error: str = "") -> Any:
    """Return a span as it is exported."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    try:
        with provider.get_tracer("t").start_as_current_span("s", attributes=attributes):
            if error:
                raise RuntimeError(error)
    except RuntimeError:
        pass
    provider.shutdown()
    (span,) = exporter.get_finished_spans()
    return TelemetryRedactor(ValueRedactor(())).span(span)


def test_keys_in_urls() -> None:
    """A client that puts its key into the query leaves it out of the span."""
    span = redacted(
        {
            "url.full": f"https://ann:pass@host/x?api_key={KEY}&page=2",
            "http.url": "https://host/?code=dGhpc2lzYXNlY3JldA",
            "url.query": f"key={KEY}&page=2",
            "gen_ai.request.model": "m",
        }
    )
    shown = dict(span.attributes)
    assert KEY not in str(shown)
    assert "ann:pass" not in str(shown)
    assert "dGhpc2lzYXNlY3JldA" not in str(shown)
    assert shown["url.query"].endswith("&page=2")
    assert shown["url.full"].startswith("https://[redacted]@host/x?api_key=")
    assert shown["gen_ai.request.model"] == "m"


def test_keys_in_errors() -> None:
    """Servers quote a wrong key; the status, the message and the stack trace lose it."""
    span = redacted({}, f"Incorrect API key provided: {KEY}")
    assert KEY not in span.status.description
    assert KEY not in str([dict(event.attributes) for event in span.events])
    assert "Incorrect API key provided" in span.status.description
