"""The spans of OTLP/JSON files as tools take them: dicts, protobuf messages, spans of the SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_STATUS = {0: "UNSET", 1: "OK", 2: "ERROR"}
_BYTES = {"traceId": "trace_id", "spanId": "span_id", "parentSpanId": "parent_span_id"}


def spans(paths: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the spans of files of traces, with parsed attributes, and times in nanoseconds."""
    for span, scope in _raw_spans(paths):
        yield {
            "trace_id": span["traceId"],
            "span_id": span["spanId"],
            "parent_span_id": span.get("parentSpanId") or None,
            "name": span.get("name", ""),
            "scope": {"name": scope.get("name", ""), "version": scope.get("version", "")},
            "start_time": int(span.get("startTimeUnixNano", 0)),
            "end_time": int(span.get("endTimeUnixNano", 0)),
            "attributes": _attributes(span.get("attributes", [])),
            "status": _STATUS.get(span.get("status", {}).get("code", 0), "UNSET"),
            "status_message": span.get("status", {}).get("message", ""),
            "events": [
                {
                    "name": event.get("name", ""),
                    "timestamp": int(event.get("timeUnixNano", 0)),
                    "attributes": _attributes(event.get("attributes", [])),
                }
                for event in span.get("events", [])
            ],
        }


def protobuf_spans(paths: list[str]) -> Iterator[Any]:
    """Yield the spans of files of traces as OTLP's messages."""
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    for span, _scope in _raw_spans(paths):
        facts = {key: value for key, value in span.items() if key not in (*_BYTES, "links")}
        message = ParseDict(facts, Span(), ignore_unknown_fields=True)
        for name, field in _BYTES.items():
            setattr(message, field, bytes.fromhex(span.get(name) or ""))
        yield message


def sdk_spans(paths: list[str]) -> Iterator[Any]:
    """Yield the spans of files of traces as those of OpenTelemetry's SDK."""
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, Status, StatusCode

    for span in spans(paths):
        trace_id, parent_id = int(span["trace_id"], 16), int(span["parent_span_id"] or "0", 16)
        yield ReadableSpan(
            name=span["name"],
            context=SpanContext(trace_id, int(span["span_id"], 16), is_remote=False),
            parent=SpanContext(trace_id, parent_id, is_remote=False) if parent_id else None,
            attributes=span["attributes"],
            events=[Event(**event) for event in span["events"]],
            status=Status(StatusCode[span["status"]]),
            instrumentation_scope=InstrumentationScope(**span["scope"]),
            start_time=span["start_time"],
            end_time=span["end_time"],
        )


def _raw_spans(paths: list[str]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for path in paths:
        document = json.loads(Path(path).read_text("utf-8"))
        for resource_spans in document.get("resourceSpans", []):
            for scope_spans in resource_spans.get("scopeSpans", []):
                scope = scope_spans.get("scope", {})
                yield from ((span, scope) for span in scope_spans.get("spans", []))


def _attributes(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {item["key"]: _value(item.get("value", {})) for item in items}


def _value(value: dict[str, Any]) -> Any:
    content: Any
    kind, content = next(iter(value.items()), ("", None))
    if kind == "intValue":
        return int(content)
    if kind == "arrayValue":
        return [_value(item) for item in content.get("values", [])]
    if kind == "kvlistValue":
        return _attributes(content.get("values", []))
    return content
