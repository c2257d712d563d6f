from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from oteval.model import Event, Link, LogRecord, Span, semconv
from oteval.store import Store

from ..make import CAPTURES, capture

PROMOTED = sorted({key for keys in (semconv.INPUT, semconv.OUTPUT) for key in keys})
PROMOTED += [*semconv.TOKENS_IN, *semconv.AGENT_NAME, *semconv.CONVERSATION_ID, "error.type"]

texts = st.text(max_size=8)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
special = st.sampled_from(
    [{"bytesValue": "AAE="}, {"doubleValue": "NaN"}, {"doubleValue": "-Infinity"}]
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts | special,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
attributes = st.dictionaries(texts | st.sampled_from(PROMOTED), values, max_size=5)
times = st.integers(0, 2**63 - 1)
counts = st.integers(0, 2**32 - 1)
events = st.builds(Event, texts, times, attributes, counts)
links = st.builds(Link, st.just("c" * 32), st.just("d" * 16), attributes)
spans = st.builds(
    Span,
    trace_id=st.just("a" * 32),
    span_id=st.sampled_from(["1" * 16, "2" * 16, "3" * 16]),
    parent_id=st.sampled_from(["", "b" * 16]),
    name=texts,
    kind=st.integers(0, 5),
    start_ns=times,
    end_ns=times,
    status_code=st.integers(0, 2),
    status_message=texts,
    attributes=attributes,
    events=st.lists(events, max_size=2).map(tuple),
    links=st.lists(links, max_size=2).map(tuple),
    scope=texts,
    scope_version=texts,
    scope_attributes=attributes,
    resource=attributes,
    trace_state=texts,
    flags=counts,
    dropped_attributes=counts,
    dropped_events=counts,
    dropped_links=counts,
)
records = st.builds(
    LogRecord,
    trace_id=st.just("a" * 32),
    span_id=st.sampled_from(["", "1" * 16]),
    time_ns=times,
    observed_ns=times,
    event_name=texts,
    severity=st.integers(0, 24),
    severity_text=texts,
    body=values,
    attributes=attributes,
    scope=texts,
    scope_version=texts,
    resource=attributes,
    dropped_attributes=st.integers(0, 2**31 - 1),
)


def read_back(
    store: Store, spans: list[Span], records: list[LogRecord]
) -> tuple[list[Span], list[LogRecord]]:
    """Return what a store has of the traces of spans and records, without its numbers."""
    back, logs = store.spans.of_traces(list({item.trace_id for item in [*spans, *records]}))
    return (
        [replace(span, seq=0) for span in sorted(back, key=lambda span: span.seq)],
        [replace(record, seq=0) for record in sorted(logs, key=lambda record: record.seq)],
    )


def stored(spans: list[Span], records: list[LogRecord] | None = None) -> tuple[Any, Any]:
    """Return spans and records after a round trip through a new store, without their numbers."""
    with Store() as store:
        store.spans.write(spans, records or [])
        return read_back(store, spans, records or [])


@pytest.mark.parametrize("name", CAPTURES)
def test_captures_survive_the_store(store: Store, name: str):
    """What is stored of a real trace is read back equal; the second time, all is a duplicate."""
    spans, records = capture(name)
    store.spans.write(spans, records)

    back = read_back(store, spans, records)
    again = store.spans.write(spans, records)

    assert back == (spans, records)
    assert (again.stored, again.duplicate) == (0, len(spans) + len(records))
    assert again.conflicts == []
    assert store.spans.count() == (len(spans), len(records))


@settings(max_examples=12, deadline=None)
@given(st.lists(spans, max_size=3, unique_by=lambda span: span.span_id))
def test_any_span_survives_the_store(given_spans: list[Span]):
    """Odd values, and promoted attributes of every type, survive the store."""
    back, _ = stored(given_spans)

    assert back == given_spans


@settings(max_examples=12, deadline=None)
@given(records)
def test_any_log_record_survives_the_store(record: LogRecord):
    """A record's body and attributes survive the store, whatever their JSON value."""
    _, back = stored([], [record])

    assert back == [record]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": "a\ud800b"}, {"name": "a\ufffdb"}),
        (
            {"attributes": {"k": "\ud800", "\udfff": 1}},
            {"attributes": {"k": "\ufffd", "\ufffd": 1}},
        ),
        ({"attributes": {"input.value": "\ud83d"}}, {"attributes": {"input.value": "\ufffd"}}),
        ({"resource": {"service.name": "\ud800"}}, {"resource": {"service.name": "\ufffd"}}),
    ],
)
def test_a_lone_surrogate_becomes_the_replacement_character(
    fields: dict[str, Any], expected: dict[str, Any]
):
    """Text that UTF-8 cannot hold is stored with a replacement character."""
    back, _ = stored([Span("a" * 32, "1" * 16, **fields)])

    assert back == [Span("a" * 32, "1" * 16, **expected)]


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.usage.input_tokens": True},
        {"gen_ai.usage.input_tokens": "12"},
        {"gen_ai.usage.output_tokens": 1.5},
        {"gen_ai.agent.name": 5},
        {"gen_ai.input.messages": [{"role": "user"}]},
        {"error.type": {"a": 1}},
    ],
)
def test_a_promoted_attribute_of_another_type_is_kept(attributes: dict[str, Any]):
    """A value that does not fit its column stays an attribute, and the span is stored."""
    span = Span("a" * 32, "1" * 16, attributes=attributes)

    back, _ = stored([span])

    assert back == [span]


def test_a_service_name_need_not_be_text():
    """A resource with a number as its service.name is stored with the number as text."""
    span = Span("a" * 32, "1" * 16, resource={"service.name": 7})

    back, _ = stored([span])

    assert back == [span]
    assert back[0].service == "7"
