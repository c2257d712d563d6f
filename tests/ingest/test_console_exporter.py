"""The output of the Python SDK's console exporters gives the same spans as its OTLP export."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.util import ns_to_iso_str

from oteval.base.errors import InputError
from oteval.ingest import read
from oteval.ingest.sdk_objects import span_of
from oteval.model import Span

Format = Callable[[ReadableSpan], str]


def emitted(form: Format | None = None) -> tuple[str, list[Span]]:
    """Return the output of the console exporter for some spans, and the spans."""
    out, memory = io.StringIO(), InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "shop", "n": 1}))
    options = {} if form is None else {"formatter": form}
    for exporter in (ConsoleSpanExporter(out=out, **options), memory):
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("scope")
    with tracer.start_as_current_span("agent", kind=trace.SpanKind.SERVER) as root:
        root.set_attribute("gen_ai.operation.name", "invoke_agent")
        link = trace.Link(root.get_span_context(), {"why": "test"})
        with tracer.start_as_current_span("tool", links=[link]) as inner:
            inner.add_event("said", {"text": 'two\nlines "and" 日本', "list": [1, 2]})
            inner.set_attributes({"float": 1.5, "flag": True, "texts": ["a", "b"]})
            inner.set_status(trace.StatusCode.ERROR, "no")
    return out.getvalue(), [span_of(span) for span in memory.get_finished_spans()]


def kept(span: Span) -> Span:
    """Return a span without the information that the console exporter omits."""
    events = tuple(replace(event, time_ns=printed(event.time_ns)) for event in span.events)
    start_ns, end_ns = printed(span.start_ns), printed(span.end_ns)
    return replace(span, scope="", flags=0, events=events, start_ns=start_ns, end_ns=end_ns)


def printed(time_ns: int) -> int:
    """Return a time rounded to microseconds like in the SDK."""
    when = datetime.fromisoformat(ns_to_iso_str(time_ns))
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


def spans_of(path: Path) -> tuple[list[Span], list[str]]:
    """Return the spans and problems of a file."""
    batches = list(read(path))
    problems = [str(problem) for batch in batches for problem in batch.problems]
    return [span for batch in batches for span in batch.spans], problems


@pytest.mark.parametrize(
    "form", [None, lambda span: span.to_json(indent=None) + "\n", lambda span: span.to_json()]
)
def test_printed_spans_are_read(tmp_path: Path, form: Format | None):
    """All printed fields are read: from several lines, one line each, or all on one line."""
    text, spans = emitted(form)
    path = tmp_path / "out.txt"
    path.write_text(text)

    assert spans_of(path) == ([kept(span) for span in spans], [])


def test_other_output_between_spans_is_reported_and_skipped(tmp_path: Path):
    """Other lines in standard output cause no loss of spans."""
    text, spans = emitted()
    parts = text.split("\n}\n")
    path = tmp_path / "out.txt"
    path.write_text("hello\n" + "\n}\nanswer: 42\n".join(parts))

    found, problems = spans_of(path)

    assert found == [kept(span) for span in spans]
    assert problems
    assert all("not valid JSON" in problem for problem in problems)


def test_printed_log_records_are_read(tmp_path: Path):
    """Printed log records keep their body, ids and attributes."""
    record = {
        "body": {"content": "hi"},
        "severity_number": 9,
        "severity_text": "INFO",
        "attributes": {"gen_ai.system": "openai", "event.name": "gen_ai.user.message"},
        "dropped_attributes": 2,
        "timestamp": "2026-11-20T08:00:00.000001Z",
        "observed_timestamp": "2026-11-20T08:00:00.000002Z",
        "trace_id": "0x" + "a" * 32,
        "span_id": "0x" + "b" * 16,
        "trace_flags": 1,
        "resource": {"attributes": {"service.name": "shop"}, "schema_url": ""},
        "event_name": "",
    }
    path = tmp_path / "logs.txt"
    path.write_text(json.dumps(record, indent=4) + "\n")

    (batch,) = read(path)
    (log,) = batch.logs

    assert (log.trace_id, log.span_id) == ("a" * 32, "b" * 16)
    assert (log.body, log.event_name) == ({"content": "hi"}, "gen_ai.user.message")
    assert (log.time_ns % 10**9, log.observed_ns % 10**9) == (1000, 2000)
    assert (log.severity, log.dropped_attributes) == (9, 2)
    assert log.resource == {"service.name": "shop"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"start_time": "yesterday"}, "start_time 'yesterday' is not an ISO time"),
        ({"kind": "SpanKind.ODD"}, "kind 'SpanKind.ODD' is not one of INTERNAL"),
        ({"parent_id": "0xzz"}, "parent_id '0xzz' is not a span id"),
        ({"attributes": [1]}, "attributes is a list instead of an object"),
        ({"status": {"status_code": 7}}, "status_code 7 is not one of UNSET"),
        ({"events": [{"name": 1}, 2]}, "1 element of events is not an object"),
    ],
)
def test_an_invalid_field_is_reported(tmp_path: Path, changes: dict[str, Any], problem: str):
    """The span is kept with a default value, and the field is reported."""
    text, spans = emitted(lambda span: span.to_json(indent=None) + "\n")
    line = {**json.loads(text.splitlines()[0]), **changes}
    path = tmp_path / "out.jsonl"
    path.write_text(json.dumps(line) + "\n")

    (found,), problems = spans_of(path)

    assert found.span_id == spans[0].span_id
    assert problem in problems[0]


def test_a_span_without_ids_is_skipped(tmp_path: Path):
    """Such a span cannot be stored, and a file without any other is refused."""
    text, _ = emitted(lambda span: span.to_json(indent=None) + "\n")
    lines = [json.loads(line) for line in text.splitlines()]
    path = tmp_path / "out.jsonl"
    path.write_text(json.dumps({**lines[0], "context": None}) + "\n" + json.dumps(lines[1]))

    found, problems = spans_of(path)

    assert len(found) == 1
    assert "has no trace id and span id; span skipped" in problems[0]
    path.write_text(json.dumps({**lines[0], "context": {}}) + "\n")
    with pytest.raises(InputError, match="span skipped"):
        list(read(path))


def test_older_versions_print_the_resource_at_the_top_level(tmp_path: Path):
    """A resource without the key ``attributes`` is the attributes themselves."""
    text, _ = emitted(lambda span: span.to_json(indent=None) + "\n")
    line = {**json.loads(text.splitlines()[0]), "resource": {"service.name": "old"}}
    path = tmp_path / "out.jsonl"
    path.write_text(json.dumps(line) + "\n")

    assert spans_of(path)[0][0].service == "old"
