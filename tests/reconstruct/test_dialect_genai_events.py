"""The conventions until 1.36: messages as events, wherever emitters put them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from oteval.ingest import decode_json
from oteval.model import Event, LogRecord, Span
from oteval.reconstruct import reconstruct

from .builders import TRACE, brief, codes, only, span

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.system": "x", "gen_ai.request.model": "m"}
SAID = [("user", "q"), ("assistant", "a")]


def call(name: str = "c", start: int = 1, **fields: Any) -> Span:
    return span(name, start, attributes={**CHAT, **fields.pop("attributes", {})}, **fields)


def record(name: str, body: Any, time: int = 2, **fields: Any) -> LogRecord:
    return LogRecord(TRACE, time_ns=time, event_name=name, body=body, **fields)


def logs(time: int = 2, **fields: Any) -> list[LogRecord]:
    answer = {"index": 0, "message": {"role": "assistant", "content": "a"}}
    question = record("gen_ai.user.message", {"content": "q"}, time, **fields)
    return [question, record("gen_ai.choice", answer, time + 1, **fields)]


def test_the_content_of_an_event_may_be_json():
    """Azure AI puts a message's JSON into one attribute of the event, beside the current keys."""
    events = (
        Event("gen_ai.user.message", 1, {"gen_ai.event.content": '{"content": "q"}'}),
        Event("gen_ai.choice", 2, {"gen_ai.event.content": '{"message": {"content": "a"}}'}),
    )
    trajectory = only(call(attributes={"gen_ai.provider.name": "azure"}, events=events))

    assert brief(trajectory.messages) == SAID
    assert trajectory.gaps == ()


def test_a_record_without_a_body_has_its_message_in_its_attributes():
    """Some exporters put the body's fields into the attributes."""
    records = [replace(log, body=None, attributes=log.body, span_id="c") for log in logs()]

    assert brief(only(call(), logs=records).messages) == SAID


@pytest.mark.parametrize("prompt", ["q", "user: q", '[{"role": "user", "content": "q"}]'])
def test_prompt_and_completion_are_read(prompt: str):
    """The oldest events hold a prompt as text, as lines with roles, or as JSON."""
    events = (
        Event("gen_ai.content.prompt", 1, {"gen_ai.prompt": prompt}),
        Event("gen_ai.content.completion", 2, {"gen_ai.completion": "a"}),
    )
    trajectory = only(call(events=events))

    assert brief(trajectory.messages) == SAID
    assert trajectory.gaps == ()


def test_a_prompt_without_its_completion_is_a_gap():
    """One of the two events alone is not a whole model call."""
    events = (Event("gen_ai.content.prompt", 1, {"gen_ai.prompt": "q"}),)

    assert codes(only(call(events=events))) != []


def test_records_without_a_span_belong_to_the_call_that_was_running():
    """They belong to the only model call of the trace, or to the one that was running."""
    spans = [call("c", 1, end=10), call("d", 20, end=30)]
    trajectory = only(
        span("w", 1, end=40), *(replace(s, parent_id="w") for s in spans), logs=logs(21)
    )

    assert brief(trajectory.messages)[-2:] == SAID


def test_a_span_that_was_exported_twice_is_one_call_for_records_without_a_span():
    """An exporter that tries again sends equal spans."""
    assert brief(only(call(), call(), logs=logs()).messages) == SAID


@pytest.mark.parametrize(
    ("value", "code"),
    [("<REDACTED>", "redacted"), ('[{"role": "user", "par', "content_truncated")],
)
def test_hidden_and_cut_content_in_an_event_is_a_gap(value: str, code: str):
    """Content is read alike in a span's attributes and in its event."""
    name = "gen_ai.client.inference.operation.details"
    answer = '[{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}]'
    content = {"gen_ai.input.messages": value, "gen_ai.output.messages": answer}

    kind = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "x"}
    in_event = only(span("c", 1, attributes=kind, events=(Event(name, 2, content),)))

    assert code in codes(in_event)
    assert codes(in_event) == codes(only(span("c", 1, attributes=kind | content)))


def test_records_that_two_calls_may_have_are_left():
    """Records without a span belong to neither of two calls at the same time."""
    spans = [call("c", 1, end=10, parent="w"), call("d", 1, end=10, parent="w")]
    trajectory = only(span("w", 1, end=40), *spans, logs=logs(2))

    assert "content_not_captured" in codes(trajectory)


def test_a_result_that_comes_twice_is_one():
    """Bedrock's instrumentation writes a result as a tool's event and as a user's."""
    blocks = [{"toolResult": {"toolUseId": "k", "content": [{"text": "bad"}], "status": "error"}}]
    tool_use = {"toolUse": {"toolUseId": "k", "name": "look", "input": {"x": 1}}}
    records = [
        record("gen_ai.user.message", {"content": [{"text": "q"}]}, span_id="c"),
        record("gen_ai.assistant.message", {"content": [tool_use]}, 3, span_id="c"),
        record("gen_ai.tool.message", {"id": "k", "content": [{"text": "bad"}]}, 4, span_id="c"),
        record("gen_ai.user.message", {"content": blocks}, 5, span_id="c"),
        record("gen_ai.choice", {"message": {"content": [{"text": "a"}]}}, 6, span_id="c"),
    ]
    trajectory = only(call(), logs=records)

    assert brief(trajectory.messages) == [
        ("user", "q"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "bad"),
        ("assistant", "a"),
    ]
    assert trajectory.messages[2].is_error


@pytest.mark.parametrize("key", ["event.name", "otel.event.name"])
def test_an_events_name_may_be_an_attribute(key: str):
    """Exporters from before OTLP's event names put them into the attributes."""
    raw = {"traceId": TRACE, "spanId": "b" * 16, "timeUnixNano": "1"}
    named = {"key": key, "value": {"stringValue": "gen_ai.choice"}}
    document = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{**raw, "attributes": [named]}]}]}]}

    [log] = decode_json(json.loads(json.dumps(document))).logs

    assert log.event_name == "gen_ai.choice"


def test_the_creation_of_an_agent_is_no_run():
    """`create_agent` spans are not runs, beside a run or alone."""
    attributes = {"gen_ai.operation.name": "create_agent", "gen_ai.system": "x"}
    alone = span("a", 1, attributes=attributes, trace="b" * 32)

    assert reconstruct([alone]) == []
    assert len(reconstruct([alone, call()], [replace(log, span_id="c") for log in logs()])) == 1


def test_a_history_that_begins_with_a_result_is_a_gap():
    """The provider (`previous_response_id`) or another trace holds the earlier history."""
    records = [
        record("gen_ai.tool.message", {"id": "k", "content": "r"}, span_id="c"),
        *(replace(log, span_id="c") for log in logs(5)[1:]),
    ]

    assert codes(only(call(), logs=records)) == ["history_missing"]
