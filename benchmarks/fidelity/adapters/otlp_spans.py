"""The spans of OTLP/JSON files as plain dicts, for tools that read no OTLP themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any


def requests(paths: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the OTLP requests of files of traces; files of logs are left aside."""
    for path in paths:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  stands alone in any environment
            document = json.load(file)
        if "resourceSpans" in document:
            yield document


def spans(paths: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the spans with parsed attributes, and ISO times."""
    for request in requests(paths):
        for resource_spans in request["resourceSpans"]:
            for scope_spans in resource_spans.get("scopeSpans", []):
                scope = scope_spans.get("scope", {})
                for span in scope_spans.get("spans", []):
                    yield _span(span, scope)


def _span(span: dict[str, Any], scope: dict[str, Any]) -> dict[str, Any]:
    status = span.get("status", {}).get("code", 0)
    return {
        "trace_id": span["traceId"],
        "span_id": span["spanId"],
        "parent_span_id": span.get("parentSpanId") or None,
        "name": span.get("name", ""),
        "scope": {"name": scope.get("name", ""), "version": scope.get("version", "")},
        "start_time": _time(span.get("startTimeUnixNano", 0)),
        "end_time": _time(span.get("endTimeUnixNano", 0)),
        "attributes": _attributes(span.get("attributes", [])),
        "status": {"code": {0: "UNSET", 1: "OK", 2: "ERROR"}.get(status, str(status))},
        "events": [
            {
                "name": event.get("name", ""),
                "timestamp": _time(event.get("timeUnixNano", 0)),
                "attributes": _attributes(event.get("attributes", [])),
            }
            for event in span.get("events", [])
        ],
    }


def _time(value: Any) -> str:
    return datetime.fromtimestamp(int(value) / 1e9, UTC).isoformat()


def _attributes(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {item["key"]: _value(item.get("value", {})) for item in items}


def _value(value: dict[str, Any]) -> Any:
    kind, content = next(iter(value.items()), ("", None))
    if kind == "intValue":
        return int(content)
    if kind == "arrayValue":
        return [_value(item) for item in content.get("values", [])]
    if kind == "kvlistValue":
        return _attributes(content.get("values", []))
    return content
