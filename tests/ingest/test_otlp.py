"""Both encodings of OTLP give the same spans, and bad parts never take good ones along."""

from __future__ import annotations

import base64
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from oteval.base.errors import InputError
from oteval.ingest.otlp import (
    Decoded,
    decode_json,
    decode_protobuf,
    decode_protobuf_logs,
    decode_protobuf_traces,
    parse_json,
)
from oteval.model import Event, Link, LogRecord, Span

from .builders import (
    SPAN,
    TRACE,
    as_json,
    attribute,
    log_message,
    log_request,
    log_requests,
    message,
    request,
    span,
    trace_requests,
)

CAPTURES = Path(__file__).parents[1] / "data" / "traces"


def value_of(**value: Any) -> Any:
    return decode_json(attribute(**value)).spans[0].attributes["a"]


def test_a_span_with_every_field() -> None:
    """Every field of a span arrives where the model has it."""
    raw = {
        "traceId": TRACE,
        "spanId": SPAN,
        "parentSpanId": "1" * 16,
        "traceState": "a=b",
        "flags": 257,
        "name": "chat",
        "kind": 3,
        "startTimeUnixNano": "1544712660000000000",
        "endTimeUnixNano": 1544712661000000000,
        "attributes": [{"key": "a", "value": {"stringValue": "x"}}],
        "droppedAttributesCount": 1,
        "events": [{"name": "e", "timeUnixNano": "5", "droppedAttributesCount": 4}],
        "droppedEventsCount": 2,
        "links": [{"traceId": TRACE, "spanId": SPAN}],
        "droppedLinksCount": 3,
        "status": {"code": 2, "message": "no"},
    }
    document = request(raw)
    document["resourceSpans"][0]["scopeSpans"][0]["scope"]["attributes"] = [
        {"key": "s", "value": {"boolValue": True}}
    ]

    decoded = decode_json(document)

    expected = Span(
        trace_id=TRACE,
        span_id=SPAN,
        parent_id="1" * 16,
        name="chat",
        kind=3,
        start_ns=1544712660000000000,
        end_ns=1544712661000000000,
        status_code=2,
        status_message="no",
        attributes={"a": "x"},
        events=(Event("e", 5, {}, 4),),
        links=(Link(TRACE, SPAN),),
        scope="lib",
        scope_version="1",
        scope_attributes={"s": True},
        resource={"service.name": "svc"},
        trace_state="a=b",
        flags=257,
        dropped_attributes=1,
        dropped_events=2,
        dropped_links=3,
    )
    assert decoded == Decoded([expected], [], [])


def test_a_log_record_with_every_field() -> None:
    """Every field of a log record arrives where the model has it."""
    document = log_request(
        timeUnixNano="7",
        observedTimeUnixNano="8",
        severityNumber="SEVERITY_NUMBER_WARN2",
        severityText="WARN",
        eventName="gen_ai.choice",
        body={"kvlistValue": {"values": [{"key": "k", "value": {"intValue": "1"}}]}},
        attributes=[{"key": "a", "value": {"stringValue": "x"}}],
        droppedAttributesCount=9,
        traceId=TRACE,
        spanId=SPAN,
    )

    decoded = decode_json(document)

    expected = LogRecord(
        trace_id=TRACE,
        span_id=SPAN,
        time_ns=7,
        observed_ns=8,
        event_name="gen_ai.choice",
        severity=14,
        severity_text="WARN",
        body={"k": 1},
        attributes={"a": "x"},
        scope="lib",
        dropped_attributes=9,
    )
    assert decoded == Decoded([], [expected], [])


@settings(max_examples=150, deadline=None)
@given(trace_requests, st.booleans(), st.booleans(), st.booleans())
def test_json_and_protobuf_give_equal_spans(
    sent: Any, hex_ids: bool, snake: bool, numbers: bool
) -> None:
    """Any request gives the same spans and as many problems in all forms of both encodings."""
    document = as_json(sent, hex_ids=hex_ids, snake=snake, numbers=numbers)

    from_json = decode_json(document)
    from_protobuf = decode_protobuf_traces(sent.SerializeToString())

    assert from_json.spans == from_protobuf.spans
    assert len(from_json.problems) == len(from_protobuf.problems)


@settings(max_examples=100, deadline=None)
@given(log_requests, st.booleans(), st.booleans(), st.booleans())
def test_json_and_protobuf_give_equal_logs(
    sent: Any, hex_ids: bool, snake: bool, numbers: bool
) -> None:
    """Log records give the same result."""
    document = as_json(sent, hex_ids=hex_ids, snake=snake, numbers=numbers)

    from_json = decode_json(document)
    from_protobuf = decode_protobuf_logs(sent.SerializeToString())

    assert from_json.logs == from_protobuf.logs
    assert len(from_json.problems) == len(from_protobuf.problems)


@settings(max_examples=100, deadline=None)
@given(trace_requests)
def test_sniffing_knows_traces(sent: Any) -> None:
    """A message with traces is recognised by its content."""
    data = sent.SerializeToString()

    assert decode_protobuf(data) == decode_protobuf_traces(data)


@settings(max_examples=100, deadline=None)
@given(log_requests)
def test_sniffing_knows_logs(sent: Any) -> None:
    """A message with log records is recognised by its content."""
    data = sent.SerializeToString()

    assert decode_protobuf(data).logs == decode_protobuf_logs(data).logs


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_input_errors_at_worst(data: bytes) -> None:
    """No message, however broken, raises anything but InputError."""
    for decode in (decode_protobuf, decode_protobuf_logs, decode_protobuf_traces):
        with suppress(InputError):
            decode(data)


_KEYS = [
    *("resourceSpans", "scopeSpans", "spans", "resourceLogs", "scopeLogs", "logRecords"),
    *("resource", "scope", "attributes", "key", "value", "stringValue", "traceId", "name"),
    *("kind", "events", "links", "status", "body"),
]
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(_json)
def test_arbitrary_json_is_an_input_error_at_worst(document: Any) -> None:
    """No JSON value raises anything but InputError."""
    with suppress(InputError):
        decode_json(document)


@given(_json)
def test_a_span_with_arbitrary_fields_spoils_no_other(junk: Any) -> None:
    """Arbitrary fields of one span never affect the next span."""
    bad = dict.fromkeys(span() | {"attributes": 0, "events": 0, "links": 0, "status": 0}, junk)

    decoded = decode_json(request(bad, span(2)))

    assert [s.span_id for s in decoded.spans] == [f"{2:016x}"]
    assert decoded.problems


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (TRACE.upper(), TRACE),
        (base64.b64encode(bytes.fromhex(TRACE)).decode(), TRACE),
        (base64.b64encode(bytes.fromhex(TRACE)).decode().rstrip("="), TRACE),
    ],
)
def test_ids_in_upper_case_and_base64(raw: str, expected: str) -> None:
    """Ids are read in hex of any case and in base64."""
    decoded = decode_json(request(span(traceId=raw)))

    assert decoded.spans[0].trace_id == expected
    assert not decoded.problems


@pytest.mark.parametrize(
    "fields",
    [
        {"traceId": "12"},
        {"traceId": "0" * 32},
        {"traceId": "g" * 32},
        {"traceId": None},
        {"traceId": 5},
        {"spanId": "0" * 16},
        {"spanId": ""},
        {"spanId": "0" * 15 + "_"},
    ],
)
def test_a_span_without_valid_ids_is_not_stored(fields: dict[str, Any]) -> None:
    """A span needs both ids; the problem names the span and the id."""
    decoded = decode_json(request(span(1, name="bad", **fields), span(2)))

    assert len(decoded.spans) == 1
    assert len(decoded.problems) == 1
    assert decoded.problems[0].startswith("span 'bad': ")
    assert next(iter(fields)) in decoded.problems[0]


def test_a_protobuf_span_without_valid_ids_is_not_stored() -> None:
    """Protobuf gives the same result."""
    sent = ExportTraceServiceRequest.FromString(message(1, 2, 3))
    spans = sent.resource_spans[0].scope_spans[0].spans
    spans[0].trace_id = b"\1" * 8
    spans[1].span_id = bytes(8)

    decoded = decode_protobuf(sent.SerializeToString())

    assert [s.span_id for s in decoded.spans] == [f"{3:016x}"]
    assert [problem[:19] for problem in decoded.problems] == [
        "span 'n': traceId '",
        "span 'n': spanId '0",
    ]


@pytest.mark.parametrize("parent", ["", None, "0" * 16])
def test_no_parent(parent: str | None) -> None:
    """An absent, empty or all-zero parent makes a root, without a problem."""
    decoded = decode_json(request(span(parentSpanId=parent)))

    assert decoded.spans[0].parent_id == ""
    assert not decoded.problems


def test_a_bad_parent_is_a_problem() -> None:
    """An invalid parent id is left out and reported."""
    decoded = decode_json(request(span(parentSpanId="xyz")))

    assert decoded.spans[0].parent_id == ""
    assert decoded.problems == ["span 'n': parentSpanId 'xyz' is not a span id; left out"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"stringValue": "x"}, "x"),
        ({"string_value": "x"}, "x"),
        ({"boolValue": False}, False),
        ({"intValue": "-9223372036854775808"}, -(2**63)),
        ({"intValue": 7}, 7),
        ({"intValue": 7.0}, 7),
        ({"doubleValue": 1}, 1.0),
        ({"doubleValue": "1.5"}, 1.5),
        ({"doubleValue": "NaN"}, {"doubleValue": "NaN"}),
        ({"doubleValue": "-Infinity"}, {"doubleValue": "-Infinity"}),
        ({"bytesValue": "AAE="}, {"bytesValue": "AAE="}),
        ({"bytesValue": "_-8"}, {"bytesValue": "/+8="}),
        ({"arrayValue": {"values": [{"intValue": 1}, {}, None]}}, [1, None, None]),
        ({"arrayValue": {}}, []),
        ({"kvlistValue": {"values": [{"key": "k", "value": {"boolValue": True}}]}}, {"k": True}),
        ({"kvlistValue": {"values": [{"key": "k"}]}}, {"k": None}),
        ({"kvlist_value": {"values": None}}, {}),
        ({}, None),
        ({"stringValue": None}, None),
    ],
)
def test_values(value: dict[str, Any], expected: Any) -> None:
    """Every kind of AnyValue becomes the Python value that the model promises."""
    got = value_of(**value)

    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(
    "value",
    [
        {"stringValue": 5},
        {"boolValue": "yes"},
        {"intValue": "ten"},
        {"intValue": 1.5},
        {"intValue": True},
        {"intValue": str(2**63)},
        {"doubleValue": "x"},
        {"doubleValue": 10**400},
        {"bytesValue": "!"},
        {"bytesValue": [1]},
        {"arrayValue": [1]},
        {"arrayValue": {"values": [1]}},
        {"kvlistValue": {"values": [{"key": 1}]}},
        {"kvlistValue": {"values": {"a": 1}}},
        {"newValue": 1},
    ],
)
def test_an_attribute_of_a_wrong_shape(value: dict[str, Any]) -> None:
    """The attribute is left out and named; the span and its other attributes stay."""
    good = {"key": "b", "value": {"stringValue": "x"}}

    decoded = decode_json(request(span(attributes=[{"key": "a", "value": value}, good])))

    assert decoded.spans[0].attributes == {"b": "x"}
    assert len(decoded.problems) == 1
    assert decoded.problems[0].startswith("span 'n': attribute 'a' has ")


@pytest.mark.parametrize("item", [None, 5, "a", {}, {"key": 5}, {"key": ""}, {"value": {}}])
def test_an_attribute_without_a_key(item: Any) -> None:
    """An attribute without a key is left out and reported."""
    decoded = decode_json(request(span(attributes=[item])))

    assert decoded.spans[0].attributes == {}
    assert len(decoded.problems) == 1


def test_an_attribute_without_a_value_is_none() -> None:
    """OTLP's empty value is None, be it absent or null."""
    decoded = decode_json(request(span(attributes=[{"key": "a"}, {"key": "b", "value": None}])))

    assert decoded.spans[0].attributes == {"a": None, "b": None}
    assert not decoded.problems


def test_a_value_nested_too_deeply_is_a_problem() -> None:
    """Nesting beyond the stack costs only the attribute."""
    value: dict[str, Any] = {"stringValue": "x"}
    for _ in range(5000):
        value = {"arrayValue": {"values": [value]}}

    decoded = decode_json(attribute(**value))

    assert decoded.spans[0].attributes == {}
    assert decoded.problems == ["span 'n': attribute 'a' is nested too deeply; left out"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": 5}, "name is the value 5"),
        ({"kind": 9}, "kind 9 is not a number from 0 to 5"),
        ({"kind": "SPAN_KIND_NEW"}, "kind 'SPAN_KIND_NEW'"),
        ({"startTimeUnixNano": "soon"}, "startTimeUnixNano 'soon'"),
        ({"endTimeUnixNano": str(2**63)}, "endTimeUnixNano"),
        ({"endTimeUnixNano": -1}, "endTimeUnixNano"),
        ({"flags": 1.5}, "flags 1.5"),
        ({"status": "bad"}, "status is text"),
        ({"attributes": {"a": 1}}, "attributes are an object"),
        ({"events": "x"}, "events is text"),
        ({"events": [1]}, "1 element of events is not an object"),
        ({"links": [{"traceId": TRACE}]}, "a link without valid ids"),
    ],
)
def test_a_field_of_a_wrong_shape(fields: dict[str, Any], problem: str) -> None:
    """The span is kept without the field, and the problem names it."""
    decoded = decode_json(request(span(**fields)))

    assert len(decoded.spans) == 1
    assert len(decoded.problems) == 1
    assert problem in decoded.problems[0]


def test_an_end_before_the_start_is_kept() -> None:
    """Clocks that jump are the emitter's story, not a reason to drop a span."""
    decoded = decode_json(request(span(startTimeUnixNano=9, endTimeUnixNano=4)))

    assert (decoded.spans[0].start_ns, decoded.spans[0].end_ns) == (9, 4)
    assert not decoded.problems


def test_enumerations_by_name() -> None:
    """Kinds and statuses may be OTLP's names."""
    raw = span(kind="SPAN_KIND_CLIENT", status={"code": "STATUS_CODE_ERROR"})

    decoded = decode_json(request(raw))

    assert (decoded.spans[0].kind, decoded.spans[0].status_code) == (3, 2)


def test_null_is_a_missing_value() -> None:
    """A null is as good as an absent field everywhere in a span."""
    nulls = dict.fromkeys(["name", "kind", "attributes", "events", "links", "status", "flags"])

    decoded = decode_json(request(span() | nulls))

    (got,) = decoded.spans
    assert got == Span(
        got.trace_id,
        got.span_id,
        scope="lib",
        scope_version="1",
        resource={"service.name": "svc"},
    )
    assert not decoded.problems


def test_names_from_before_otlp_1() -> None:
    """Files written with ``instrumentationLibrarySpans`` can still be read."""
    scoped = {"instrumentationLibrary": {"name": "old"}, "spans": [span()]}
    logs = {"instrumentationLibrary": {"name": "old"}, "logs": [{"timeUnixNano": 1}]}
    document = {
        "resourceSpans": [{"instrumentationLibrarySpans": [scoped]}],
        "resourceLogs": [{"instrumentationLibraryLogs": [logs]}],
    }

    decoded = decode_json(document)

    assert (decoded.spans[0].scope, decoded.logs[0].scope) == ("old", "old")
    assert not decoded.problems


def test_tempos_batches() -> None:
    """Tempo's answer for a trace calls the same thing ``batches``."""
    decoded = decode_json({"batches": request(span())["resourceSpans"]})

    assert len(decoded.spans) == 1


def test_a_list_of_requests() -> None:
    """A list gives the spans of all requests, and reports the element that is not a request."""
    decoded = decode_json([request(span(1)), {"foo": 1}, request(span(2))])

    assert len(decoded.spans) == 2
    assert len(decoded.problems) == 1
    assert decoded.problems[0].startswith("element 2: a JSON object with the keys 'foo' is not")


@pytest.mark.parametrize("document", [{}, [], {"resourceSpans": []}, {"resourceLogs": None}])
def test_an_empty_request_is_fine(document: Any) -> None:
    """A request without spans is nothing, and no problem."""
    assert decode_json(document) == Decoded()


def test_an_empty_message_is_fine() -> None:
    """A protobuf message without content is an empty request."""
    assert decode_protobuf(b"") == Decoded()


def test_metrics_are_reported() -> None:
    """Metrics are not stored, which is reported."""
    decoded = decode_json({"resourceMetrics": [{}]})

    assert decoded.problems == ["metrics are not stored"]


@pytest.mark.parametrize("document", [None, 5, "x", True, {"data": [1]}, [5], [{"data": 1}]])
def test_other_documents_are_refused(document: Any) -> None:
    """Any other document is an InputError that describes it."""
    with pytest.raises(InputError, match="is not an OTLP request"):
        decode_json(document)


def test_other_bytes_are_refused() -> None:
    """Bytes that are not an OTLP message are an InputError in every decoder."""
    for decode in (decode_protobuf, decode_protobuf_logs, decode_protobuf_traces):
        with pytest.raises(InputError, match="not an OTLP protobuf request"):
            decode(b"\xff\xff\xff")


def test_a_message_from_a_newer_otlp_is_read() -> None:
    """Fields that only a newer OTLP has do not stop a message from being read."""
    newer = message(1) + b"\xf8\x7f\x01"

    assert len(decode_protobuf(newer).spans) == 1
    assert len(decode_protobuf_traces(newer).spans) == 1


def test_the_event_name_may_be_an_attribute() -> None:
    """Emitters from before ``eventName`` put it into the attribute ``event.name``."""
    name = {"key": "event.name", "value": {"stringValue": "gen_ai.choice"}}

    decoded = decode_json(log_request(attributes=[name]))

    assert decoded.logs[0].event_name == "gen_ai.choice"


def test_a_log_record_without_a_span_is_kept() -> None:
    """Log records need no ids; invalid ids are left out and reported."""
    decoded = decode_json(log_request(traceId="xyz", spanId="0" * 16, body={"oops": 1}))

    assert decoded.logs == [LogRecord(scope="lib")]
    assert decoded.problems == [
        "a log record without a name: traceId 'xyz' is not a trace id; left out",
        "a log record without a name: body has a value of the unknown kind 'oops'; left out",
    ]


def test_resource_and_scope_are_shared() -> None:
    """All spans of a scope share their resource and scope, which take memory once."""
    first, second = decode_json(request(span(1), span(2))).spans
    third, fourth = decode_protobuf(message(1, 2)).spans

    assert first.resource is second.resource
    assert first.scope_attributes is second.scope_attributes
    assert third.resource is fourth.resource


def test_a_bad_resource_attribute_is_reported_once() -> None:
    """A problem of a resource is not repeated for each of its spans."""
    document = request(span(1), span(2))
    document["resourceSpans"][0]["resource"]["attributes"].append({"key": "a", "value": {"x": 1}})

    decoded = decode_json(document)

    assert len(decoded.spans) == 2
    assert decoded.problems == [
        "resource: attribute 'a' has a value of the unknown kind 'x'; left out"
    ]


def test_half_a_surrogate_pair_becomes_the_replacement_character() -> None:
    """Text that was cut within an emoji stays readable and can be stored as UTF-8."""
    assert parse_json(rb'{"\ud83d": ["a\ud83d", "\ud83d\ude00", 1]}') == {"�": ["a�", "😀", 1]}


def test_parse_json_refuses_deep_nesting() -> None:
    """JSON nested beyond the stack is a ValueError like other bad JSON."""
    with pytest.raises(ValueError, match="nested"):
        parse_json(b"[" * 100_000 + b"]" * 100_000)


def test_logs_are_distinguished_from_spans() -> None:
    """The two have the same outer shape, and the records decide."""
    assert len(decode_protobuf(log_message(1, 2)).logs) == 2
    assert len(decode_protobuf(message(1, 2)).spans) == 2


@pytest.mark.parametrize(
    "path",
    sorted(p for p in CAPTURES.glob("*.json") if p.name != "gold.json"),
    ids=lambda p: p.stem,
)
def test_captures_decode_without_problems(path: Path) -> None:
    """Captures of real instrumentations are decoded without a problem."""
    decoded = decode_json(parse_json(path.read_bytes()))

    assert decoded.spans or decoded.logs
    assert not decoded.problems
