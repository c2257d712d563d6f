"""Requests to test with: small ones by hand, random ones by hypothesis."""

from __future__ import annotations

import base64
from typing import Any

import orjson
from google.protobuf.json_format import MessageToDict
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

TRACE = "5b8efff798038103d269b633813fc60c"
SPAN = "eee19b7ec3c1b174"


def span(number: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a span in OTLP/JSON whose ids are its number."""
    return {"traceId": f"{number:032x}", "spanId": f"{number:016x}", "name": "n", **fields}


def request(*spans: dict[str, Any]) -> dict[str, Any]:
    """Return a request with these spans, of one resource and scope."""
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "svc"}}]}
    scoped = {"scope": {"name": "lib", "version": "1"}, "spans": list(spans)}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scoped]}]}


def log_request(**fields: Any) -> dict[str, Any]:
    """Return a request with one log record."""
    return {"resourceLogs": [{"scopeLogs": [{"scope": {"name": "lib"}, "logRecords": [fields]}]}]}


def attribute(**value: Any) -> dict[str, Any]:
    """Return a request whose one span has the attribute ``a`` with this AnyValue."""
    return request(span(attributes=[{"key": "a", "value": value}]))


def line(*numbers: int) -> bytes:
    """Return a request with the spans of these numbers as one line without its end."""
    return orjson.dumps(request(*map(span, numbers)))


def message(*numbers: int, name: str = "n") -> bytes:
    """Return a request with the spans of these numbers as a protobuf message."""
    out = ExportTraceServiceRequest()
    scoped = out.resource_spans.add().scope_spans.add()
    scoped.scope.name = "lib"
    for number in numbers:
        scoped.spans.add(
            trace_id=number.to_bytes(16, "big"), span_id=number.to_bytes(8, "big"), name=name
        )
    return out.SerializeToString()


def log_message(*numbers: int) -> bytes:
    """Return a request with log records, whose times are the numbers, as a protobuf message."""
    out = ExportLogsServiceRequest()
    scoped = out.resource_logs.add().scope_logs.add()
    for number in numbers:
        scoped.log_records.add(time_unix_nano=number, event_name="e")
    return out.SerializeToString()


def framed(*messages: bytes) -> bytes:
    """Return the messages, each after its length, as the Collector writes them."""
    return b"".join(len(data).to_bytes(4, "big") + data for data in messages)


def with_hex_ids(value: Any) -> Any:
    """Return what protobuf's JSON mapping gives with its base64 ids in hex, as OTLP has them."""
    if isinstance(value, list):
        return [with_hex_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = {"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"}
    return {
        key: base64.b64decode(item).hex() if key in ids else with_hex_ids(item)
        for key, item in value.items()
    }


def as_json(data: Any, *, hex_ids: bool, snake: bool, numbers: bool) -> Any:
    """Return a protobuf request in one of the forms of OTLP/JSON, by way of JSON text."""
    out = MessageToDict(data, preserving_proto_field_name=snake, use_integers_for_enums=numbers)
    return orjson.loads(orjson.dumps(with_hex_ids(out) if hex_ids else out))


_text = st.text(max_size=8)
_count = st.integers(0, 2**32 - 1)
_time = st.integers(0, 2**64 - 1)
_wire_value: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.one_of(
        st.just({}),
        st.fixed_dictionaries({"string_value": _text}),
        st.fixed_dictionaries({"bool_value": st.booleans()}),
        st.fixed_dictionaries({"int_value": st.integers(-(2**63), 2**63 - 1)}),
        st.fixed_dictionaries({"double_value": st.floats()}),
        st.fixed_dictionaries({"bytes_value": st.binary(max_size=5)}),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: {"array_value": {"values": items}}),
        st.lists(st.fixed_dictionaries({"key": _text, "value": inner}), max_size=3).map(
            lambda items: {"kvlist_value": {"values": items}}
        ),
    ),
    max_leaves=4,
)
_attributes = st.lists(
    st.fixed_dictionaries({"key": _text}, optional={"value": _wire_value}), max_size=3
)
_trace_id = st.binary(min_size=16, max_size=16) | st.sampled_from([b"", bytes(16), b"short"])
_span_id = st.binary(min_size=8, max_size=8) | st.sampled_from([b"", bytes(8), b"short"])
_scope = st.fixed_dictionaries({}, optional={"name": _text, "attributes": _attributes})
_resource = st.fixed_dictionaries({}, optional={"attributes": _attributes})
_event = st.fixed_dictionaries(
    {"name": _text},
    optional={
        "time_unix_nano": _time,
        "attributes": _attributes,
        "dropped_attributes_count": _count,
    },
)
_link = st.fixed_dictionaries(
    {"trace_id": _trace_id, "span_id": _span_id}, optional={"attributes": _attributes}
)
_status = st.fixed_dictionaries({}, optional={"message": _text, "code": st.integers(0, 2)})
_span = st.fixed_dictionaries(
    {"trace_id": _trace_id, "span_id": _span_id, "name": _text},
    optional={
        "parent_span_id": _span_id,
        "trace_state": _text,
        "flags": _count,
        "kind": st.integers(0, 7),
        "start_time_unix_nano": _time,
        "end_time_unix_nano": _time,
        "attributes": _attributes,
        "dropped_attributes_count": _count,
        "events": st.lists(_event, max_size=2),
        "dropped_events_count": _count,
        "links": st.lists(_link, max_size=2),
        "dropped_links_count": _count,
        "status": _status,
    },
)
_record = st.fixed_dictionaries(
    {"time_unix_nano": st.integers(1, 2**64 - 1)},  # by which a message is known to hold logs
    optional={
        "observed_time_unix_nano": _time,
        "severity_number": st.integers(0, 26),
        "severity_text": _text,
        "body": _wire_value,
        "attributes": _attributes,
        "dropped_attributes_count": _count,
        "trace_id": _trace_id,
        "span_id": _span_id,
        "event_name": _text,
    },
)


def _groups(scopes: str, records: str, one: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    scoped = st.fixed_dictionaries({records: st.lists(one, max_size=3)}, optional={"scope": _scope})
    group = st.fixed_dictionaries(
        {scopes: st.lists(scoped, max_size=2)}, optional={"resource": _resource}
    )
    return st.lists(group, max_size=2)


trace_requests = _groups("scope_spans", "spans", _span).map(
    lambda groups: ExportTraceServiceRequest(resource_spans=groups)
)
log_requests = _groups("scope_logs", "log_records", _record).map(
    lambda groups: ExportLogsServiceRequest(resource_logs=groups)
)
