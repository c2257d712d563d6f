"""Spans and log records written the way other tools keep them, to be read back."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from oteval.model import LogRecord, Span

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
STATUSES = ("Unset", "Ok", "Error")


def text(value: Any) -> str:
    """Return a value as the Collector writes it where only text is possible."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and set(value) == {"bytesValue"}:
        return str(value["bytesValue"])
    return "" if value is None else json.dumps(value, separators=(",", ":"))


# Jaeger


def tag(key: str, value: Any) -> dict[str, Any]:
    """Return an attribute as a tag of Jaeger's; lists and objects become text."""
    kinds = {bool: "bool", int: "int64", float: "float64"}
    kind = kinds.get(type(value))
    if kind:
        return {"key": key, "type": kind, "value": value}
    if isinstance(value, dict) and set(value) == {"bytesValue"}:
        return {"key": key, "type": "binary", "value": value["bytesValue"]}
    return {"key": key, "type": "string", "value": text(value)}


def tags(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [tag(key, value) for key, value in attributes.items()]


def jaeger_span(span: Span, process: str, *, short_ids: bool = False) -> dict[str, Any]:
    """Return a span as Jaeger's query API has it."""

    def name(number: str) -> str:
        return number.lstrip("0") if short_ids else number

    extra: dict[str, Any] = {}
    if span.scope:
        extra["otel.scope.name"] = span.scope
    if span.scope_version:
        extra["otel.scope.version"] = span.scope_version
    if span.kind:
        extra["span.kind"] = KINDS[span.kind]
    if span.status_code:
        extra["otel.status_code"] = STATUSES[span.status_code].upper()
    if span.status_code == 2:
        extra["error"] = True
    if span.status_message:
        extra["otel.status_description"] = span.status_message
    if span.trace_state:
        extra["w3c.tracestate"] = span.trace_state
    if span.dropped_attributes:
        extra["otel.dropped_attributes_count"] = span.dropped_attributes
    parent = [("CHILD_OF", span.trace_id, span.parent_id)] if span.parent_id else []
    links = [("FOLLOWS_FROM", link.trace_id, link.span_id) for link in span.links]
    return {
        "traceID": name(span.trace_id),
        "spanID": name(span.span_id),
        "flags": 1,
        "operationName": span.name,
        "references": [
            {"refType": kind, "traceID": name(trace), "spanID": name(number)}
            for kind, trace, number in parent + links
        ],
        "startTime": span.start_ns // 1000,
        "duration": (span.end_ns - span.start_ns) // 1000,
        "tags": tags({**extra, **span.attributes, "internal.span.format": "otlp"}),
        "logs": [
            {
                "timestamp": event.time_ns // 1000,
                "fields": tags({"event": event.name, **event.attributes}),
            }
            for event in span.events
        ],
        "processID": process,
        "warnings": None,
    }


def jaeger_process(span: Span) -> dict[str, Any]:
    rest = {key: value for key, value in span.resource.items() if key != "service.name"}
    return {"serviceName": span.service, "tags": tags(rest)}


def jaeger(spans: Sequence[Span], *, short_ids: bool = False) -> dict[str, Any]:
    """Return what the query API answers: a trace each, its processes after its spans."""
    traces: dict[str, dict[str, Any]] = {}
    for span in spans:
        empty: dict[str, Any] = {"traceID": span.trace_id, "spans": [], "processes": {}}
        trace = traces.setdefault(span.trace_id, {**empty, "warnings": None})
        process = jaeger_process(span)
        known = [key for key, value in trace["processes"].items() if value == process]
        key = known[0] if known else f"p{len(trace['processes']) + 1}"
        trace["processes"][key] = process
        trace["spans"].append(jaeger_span(span, key, short_ids=short_ids))
    return {"data": [*traces.values()], "total": 0, "limit": 0, "offset": 0, "errors": None}


def jaeger_documents(spans: Sequence[Span]) -> list[dict[str, Any]]:
    """Return spans as Jaeger stores them in Elasticsearch, with some tags as fields."""
    out = []
    for span in spans:
        raw = jaeger_span(span, "")
        del raw["processID"]
        named = {t["key"].replace(".", "@"): t["value"] for t in raw["tags"][:2]}
        for one in raw["tags"]:
            one["value"] = text(one["value"])
        process = jaeger_process(span)
        raw |= {"tag": named, "tags": raw["tags"][2:], "process": process}
        out.append(raw | {"startTimeMillis": raw["startTime"] // 1000})
    return out


# ClickHouse


def moment(ns: int) -> str:
    """Return a time as ClickHouse prints a DateTime64(9) in UTC."""
    second = datetime.fromtimestamp(ns // 10**9, UTC)
    return f"{second:%Y-%m-%d %H:%M:%S}.{ns % 10**9:09}"


def strings(attributes: Mapping[str, Any]) -> dict[str, str]:
    return {key: text(value) for key, value in attributes.items()}


def nested(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as a column of ClickHouse's type JSON is printed: dots make objects."""
    out: dict[str, Any] = {}
    for key, value in attributes.items():
        *path, last = key.split(".")
        place = out
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return out


def trace_row(span: Span, *, old: bool = False) -> dict[str, Any]:
    """Return a span as a row of otel_traces; that of the exporter's first versions if it is old."""
    attributes = strings(span.attributes)
    if old and span.scope:
        attributes["otel.scope.name"] = span.scope
    if old and span.scope_version:
        attributes["otel.scope.version"] = span.scope_version
    scope = {} if old else {"ScopeName": span.scope, "ScopeVersion": span.scope_version}
    kind, status = KINDS[span.kind], STATUSES[span.status_code]
    return {
        "Timestamp": moment(span.start_ns),
        "TraceId": span.trace_id,
        "SpanId": span.span_id,
        "ParentSpanId": span.parent_id,
        "TraceState": span.trace_state,
        "SpanName": span.name,
        "SpanKind": f"SPAN_KIND_{kind.upper()}" if old else kind.capitalize(),
        "ServiceName": span.service,
        "ResourceAttributes": strings(span.resource),
        **scope,
        "SpanAttributes": attributes,
        "Duration": str(span.end_ns - span.start_ns) if old else span.end_ns - span.start_ns,
        "StatusCode": f"STATUS_CODE_{status.upper()}" if old else status,
        "StatusMessage": span.status_message,
        "Events.Timestamp": [moment(event.time_ns) for event in span.events],
        "Events.Name": [event.name for event in span.events],
        "Events.Attributes": [strings(event.attributes) for event in span.events],
        "Links.TraceId": [link.trace_id for link in span.links],
        "Links.SpanId": [link.span_id for link in span.links],
        "Links.TraceState": ["" for _ in span.links],
        "Links.Attributes": [strings(link.attributes) for link in span.links],
    }


def unflattened(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose nested columns are lists of objects."""
    out = {key: value for key, value in row.items() if "." not in key}
    for name in ("Events", "Links"):
        lists = {key.split(".")[1]: row[key] for key in row if key.startswith(f"{name}.")}
        rows = zip(*lists.values(), strict=True)
        out[name] = [dict(zip(lists, values, strict=True)) for values in rows]
    return out


def json_row(span: Span) -> dict[str, Any]:
    """Return a row of the tables whose attributes are of the type JSON."""
    row = trace_row(span)
    row["SpanAttributes"] = nested(span.attributes)
    row["ResourceAttributes"] = nested(span.resource)
    row["Events.Attributes"] = [nested(event.attributes) for event in span.events]
    return row


def log_row(record: LogRecord) -> dict[str, Any]:
    """Return a log record as a row of otel_logs."""
    return {
        "Timestamp": moment(record.time_ns or record.observed_ns),
        "TimestampTime": moment(record.time_ns)[:19],
        "TraceId": record.trace_id,
        "SpanId": record.span_id,
        "TraceFlags": 1,
        "SeverityText": record.severity_text,
        "SeverityNumber": record.severity,
        "ServiceName": record.resource.get("service.name", ""),
        "Body": text(record.body),
        "ResourceSchemaUrl": "",
        "ResourceAttributes": strings(record.resource),
        "ScopeSchemaUrl": "",
        "ScopeName": record.scope,
        "ScopeVersion": record.scope_version,
        "ScopeAttributes": {},
        "LogAttributes": strings(record.attributes),
        "EventName": record.event_name,
    }


def lines(rows: Iterable[Any]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


_MAP = pa.map_(pa.string(), pa.string())
_TIME = pa.timestamp("ns", "UTC")
_TYPES: dict[str, pa.DataType] = {
    "Timestamp": _TIME,
    "TimestampTime": pa.timestamp("ms", "UTC"),
    "Duration": pa.uint64(),
    "SeverityNumber": pa.uint8(),
    "TraceFlags": pa.uint8(),
    "Events.Timestamp": pa.list_(_TIME),
    "Events.Attributes": pa.list_(_MAP),
    "Links.Attributes": pa.list_(_MAP),
    "Events": pa.list_(
        pa.struct([("Timestamp", _TIME), ("Name", pa.string()), ("Attributes", _MAP)])
    ),
    "Links": pa.list_(
        pa.struct(
            [(n, pa.string()) for n in ("TraceId", "SpanId", "TraceState")] + [("Attributes", _MAP)]
        )
    ),
}


def _type(name: str, binary: bool) -> pa.DataType:
    if name in _TYPES:
        return _TYPES[name]
    if name.endswith("Attributes"):
        return _MAP
    plain = pa.binary() if binary else pa.string()
    return pa.list_(plain) if "." in name else plain


def _ns(value: str) -> int:
    seconds, fraction = value.split(".") if "." in value else (value, "0")
    moment = datetime.fromisoformat(f"{seconds}+00:00")
    return int(moment.timestamp()) * 10**9 + int(fraction)


def _for_arrow(name: str, value: Any) -> Any:
    if name == "TimestampTime":
        return _ns(value) // 10**6
    if name.endswith("Timestamp"):
        return [_ns(v) for v in value] if isinstance(value, list) else _ns(value)
    if name == "Events":
        return [{**event, "Timestamp": _ns(event["Timestamp"])} for event in value]
    return value


def parquet(
    rows: Sequence[Mapping[str, Any]], *, binary: bool = False, row_group: int = 1_000_000
) -> bytes:
    """Return rows as ClickHouse writes them to Parquet; with text as bytes if it is an old one."""
    names = list(rows[0])
    columns = [
        pa.array([_for_arrow(name, row[name]) for row in rows], _type(name, binary))
        for name in names
    ]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(columns, names=names)
    pq.write_table(table, sink, row_group_size=row_group, compression="zstd")
    return bytes(sink.getvalue())


# Tempo and the Collector


def base64_ids(value: Any) -> Any:
    """Return a request with its ids in base64, as the JSON of protobuf's own mapping has them."""
    if isinstance(value, list):
        return [base64_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = {"traceId", "spanId", "parentSpanId"}
    return {
        key: base64.b64encode(bytes.fromhex(item)).decode() if key in ids else base64_ids(item)
        for key, item in value.items()
    }


def with_old_names(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with the names that OTLP had before its version 1, as ``batches``."""
    groups = []
    for group in request["resourceSpans"]:
        scoped = []
        for one in group["scopeSpans"]:
            rest = {key: value for key, value in one.items() if key != "scope"}
            scoped.append({"instrumentationLibrary": one.get("scope", {}), **rest})
        rest = {key: value for key, value in group.items() if key != "scopeSpans"}
        groups.append({**rest, "instrumentationLibrarySpans": scoped})
    return {"batches": groups}
