"""Requests split by trace: every span keeps everything in it."""

from __future__ import annotations

import base64
import json
from contextlib import suppress

import pytest
from google.protobuf import json_format
from hypothesis import given, strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from oteval.ingest.otlp import decode_json, decode_protobuf, parse_json
from oteval.scoring.score_events import event_request
from oteval.scoring.span_attributes import as_fields, as_json
from oteval.serve.publish.trace_requests import (
    JsonTraceRequest,
    ProtobufTraceRequest,
    parse_traces,
    without_own_events,
)

from ...make import CAPTURES, TRACES, run, score

IDS = ("traceId", "spanId", "parentSpanId")


def as_protobuf(name: str) -> bytes:
    """Return a capture as an OTLP protobuf request."""

    def encoded(value: object) -> object:
        if isinstance(value, list):
            return [encoded(item) for item in value]
        if isinstance(value, dict):
            return {
                key: base64.b64encode(bytes.fromhex(item)).decode()
                if key in IDS and isinstance(item, str)
                else encoded(item)
                for key, item in value.items()
            }
        return value

    text = (TRACES / f"{name}.json").read_text()
    found = ExportTraceServiceRequest()
    values = [json.loads(text)] if "\n{" not in text.strip() else map(json.loads, text.split("\n"))
    for value in values:
        json_format.ParseDict(encoded(value), found, ignore_unknown_fields=True)
    return found.SerializeToString()


def spans_of(payload: bytes) -> list[Span]:
    request = ExportTraceServiceRequest.FromString(payload)
    return [s for r in request.resource_spans for c in r.scope_spans for s in c.spans]


@pytest.mark.parametrize("name", CAPTURES)
def test_every_span_of_every_capture_keeps_its_bytes(name: str) -> None:
    """Split by trace, each span is byte for byte the same; scored spans have more at the end."""
    payload = as_protobuf(name)
    request = ProtobufTraceRequest(payload)
    traces = list(dict.fromkeys(key.trace_id for key in request.keys))
    judged = {key.span_id: as_fields({"oteval.score.a": 1.0}) for key in request.keys[::3]}

    untouched = [request.of_trace(t) for t in traces]
    changed = [request.of_trace(t, judged) for t in traces]

    assert request.without(()) == payload
    before = {(s.trace_id, s.span_id, n): s for n, s in enumerate(spans_of(payload))}
    by_trace = {
        trace: [s.SerializeToString() for s in before.values() if s.trace_id.hex() == trace]
        for trace in traces
    }
    for trace, body, more in zip(traces, untouched, changed, strict=True):
        assert [s.SerializeToString() for s in spans_of(body)] == by_trace[trace]
        for span, old in zip(spans_of(more), by_trace[trace], strict=True):
            added = judged.get(span.span_id.hex(), b"")
            plain = Span.FromString(span.SerializeToString())
            if added:
                assert plain.attributes[-1].key == "oteval.score.a"
                del plain.attributes[-1]
            assert plain.SerializeToString() == old
    whole, parts = decode_protobuf(payload), [decode_protobuf(body) for body in untouched]
    key = lambda span: (span.trace_id, span.span_id, span.name)  # noqa: E731
    assert sorted(map(key, whole.spans)) == sorted(key(s) for part in parts for s in part.spans)
    where = {s.span_id: (s.resource, s.scope, s.scope_version) for s in whole.spans}
    assert all(
        where[s.span_id] == (s.resource, s.scope, s.scope_version)
        for part in parts
        for s in part.spans
    )


@pytest.mark.parametrize("name", CAPTURES)
def test_spans_in_json_keep_their_values(name: str) -> None:
    """Spans in JSON keep their values."""
    text = (TRACES / f"{name}.json").read_bytes()
    if b"\n{" in text.strip():
        text = text.strip().split(b"\n")[0]
    request = JsonTraceRequest(text)
    judged = {request.keys[0].span_id: as_json({"oteval.score.a.passed": True})}

    traces = list(dict.fromkeys(key.trace_id for key in request.keys))
    bodies = [request.of_trace(t, judged) for t in traces]

    whole = decode_json(parse_json(text))
    parts = [span for body in bodies for span in decode_json(parse_json(body)).spans]
    found = {(span.trace_id, span.span_id): span for span in parts}
    for span in whole.spans:
        other = found[span.trace_id, span.span_id]
        attributes = dict(other.attributes)
        if span.span_id in judged:
            assert attributes.pop("oteval.score.a.passed") is True
        assert attributes == span.attributes
        assert (other.name, other.resource, other.scope) == (span.name, span.resource, span.scope)


def test_unknown_fields_are_kept_in_their_messages() -> None:
    """Fields of a later OTLP stay in the span, scope, resource and request that they came in."""
    unknown = bytes([0xBA, 0x3E, 0x03]) + b"new"  # field 999, text
    ids = Span(trace_id=b"t" * 16, span_id=b"s" * 8).SerializeToString()
    span = Span(name="late").SerializeToString() + unknown + ids
    scope = bytes([0x12, len(span)]) + span + unknown
    resource = unknown + bytes([0x12, len(scope)]) + scope
    payload = bytes([0x0A, len(resource)]) + resource + unknown

    request = ProtobufTraceRequest(payload)
    picked = request.of_trace(
        request.keys[0].trace_id, {request.keys[0].span_id: as_fields({"k": "v"})}
    )

    assert request.keys[0].span_id == (b"s" * 8).hex()
    expected = Span.FromString(span)
    expected.MergeFromString(as_fields({"k": "v"}))
    assert expected.SerializeToString().endswith(unknown)
    assert expected.SerializeToString() in picked
    assert picked.count(unknown) == 4
    assert spans_of(picked)[0].attributes[0].key == "k"


@given(st.binary(max_size=200), st.sampled_from(["protobuf", "json"]))
def test_any_bytes_are_parsed_or_refused(data: bytes, encoding: str) -> None:
    """Bytes that are not a request raise ValueError and nothing else."""
    for take in (parse_traces, without_own_events):
        with suppress(ValueError):
            take(data, encoding)


@pytest.mark.parametrize(
    "text",
    [
        b'{"resourceSpans": 3}',
        b'{"resourceSpans": [3]}',
        b"[]",
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [7]}]}]}',
    ],
)
def test_json_of_another_shape_is_refused(text: bytes) -> None:
    """JSON that is not a request for traces raises ValueError."""
    with pytest.raises(ValueError, match="not a request"):
        JsonTraceRequest(text)


def test_own_events_are_removed_from_logs() -> None:
    """Only oteval's events are removed; another sender's event of the same name stays."""
    own = event_request([(score(), run(1))])
    other = event_request([(score(), run(1))])
    other.resource_logs[0].scope_logs[0].scope.name = "someone.else"
    both = own.SerializeToString() + other.SerializeToString()
    as_text = json_format.MessageToJson(own).encode()

    assert without_own_events(own.SerializeToString(), "protobuf") == b""
    assert without_own_events(both, "protobuf") == other.SerializeToString()
    assert without_own_events(other.SerializeToString(), "protobuf") == other.SerializeToString()
    assert without_own_events(as_text, "json") == b""
    assert ExportLogsServiceRequest.FromString(without_own_events(both, "protobuf")) == other
