"""Spans and log records lose secrets without any rule."""

from __future__ import annotations

import json
from typing import Any

from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from oteval.base.redaction import ValueRedactor
from oteval.base.redaction.exchange_secrets import PROCESS_SECRETS
from oteval.record.span_redaction import TelemetryRedactor

KEY = "sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2"


def redacted(attributes: dict[str, Any], error: str = "", **event: Any) -> Any:
    """Return a span as it is exported."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    try:
        with provider.get_tracer("t").start_as_current_span("s", attributes=attributes) as one:
            if event:
                one.add_event("event", event)
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


def test_keys_in_content_and_events() -> None:
    """Of known forms, and under names of secrets; the rest of the content stays."""
    messages = [{"role": "user", "parts": [{"type": "text", "content": f"use {KEY}, please"}]}]
    span = redacted(
        {
            "gen_ai.input.messages": json.dumps(messages),
            "gen_ai.tool.call.arguments": '{"user": "ann", "password": "hunter"}',
            "http.request.header.authorization": ["Custom abcdef12"],
            "process.command_args": ["agent", "--api-key", "abcdef12", "--verbose"],
            "app.db_password": "hunter",
            "gen_ai.usage.input_tokens": 12,
            "gen_ai.request.max_tokens": 100,
        },
        log=f"signed in with {KEY}",
    )
    shown = dict(span.attributes)
    assert json.loads(shown["gen_ai.input.messages"])[0]["parts"][0]["content"] == (
        "use [redacted], please"
    )
    assert shown["gen_ai.tool.call.arguments"] == '{"user": "ann", "password": "[redacted]"}'
    assert shown["http.request.header.authorization"] == ("[redacted]",)
    assert shown["process.command_args"] == ("agent", "--api-key", "[redacted]", "--verbose")
    assert shown["app.db_password"] == "[redacted]"
    assert (shown["gen_ai.usage.input_tokens"], shown["gen_ai.request.max_tokens"]) == (12, 100)
    assert dict(span.events[0].attributes) == {"log": "signed in with [redacted]"}


def test_a_span_without_secrets_stays_the_same_object() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer("t").start_span("s", attributes={"url.full": "http://x/?page=2"}).end()
    (span,) = exporter.get_finished_spans()
    assert TelemetryRedactor(ValueRedactor(())).span(span) is span


def test_keys_that_the_process_has_sent() -> None:
    """A key of no known form, once it was in a header; words for servers without keys stay."""
    PROCESS_SECRETS.add(["ownform.a1b2c3d4", "not-needed"])
    span = redacted({"answer": "invalid ownform.a1b2c3d4, not-needed"}, "ownform.a1b2c3d4 failed")
    assert dict(span.attributes) == {"answer": "invalid [redacted], not-needed"}
    assert span.status.description == "RuntimeError: [redacted] failed"
    assert "ownform.a1b2c3d4" not in str(dict(span.events[0].attributes))


def test_keys_in_log_records() -> None:
    record = LogRecord(
        body={"text": f"key {KEY}", "deep": {"password": "hunter"}}, attributes={"error": KEY}
    )
    emitted = ReadableLogRecord(record, Resource.get_empty())
    shown = TelemetryRedactor(ValueRedactor(())).log_record(emitted).log_record
    assert shown.body == {"text": "key [redacted]", "deep": {"password": "[redacted]"}}
    assert dict(shown.attributes) == {"error": "[redacted]"}


def test_a_password_that_stands_again_in_another_attribute() -> None:
    """An argument names it; the note, the event and the status of the same span repeat it."""
    secret = "x8Kq2" + "LmP0z"
    span = redacted(
        {
            "gen_ai.tool.call.arguments": json.dumps({"user": "ann", "password": secret}),
            "note": f"signed in with {secret}",
            "app.raw": f"a {secret} b".encode(),
            "words": ["one", secret],
        },
        f"{secret} was refused",
        log=f"retry {secret}",
    )
    shown = [dict(each.attributes) for each in (span, *span.events)]
    assert secret not in f"{shown} {span.status.description}"
    assert secret.encode() not in span.attributes["app.raw"]
    assert span.attributes["note"] == "signed in with [redacted]"
    assert span.attributes["words"] == ("one", "[redacted]")


def test_words_at_names_do_not_spread_in_a_span() -> None:
    """A password that is a word is removed at its name only."""
    span = redacted({"app.db_password": "sunshine", "note": "sunshine in Paris"})
    assert dict(span.attributes) == {"app.db_password": "[redacted]", "note": "sunshine in Paris"}
