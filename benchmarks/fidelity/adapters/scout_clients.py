"""Clients with a capture's spans, as Phoenix and Logfire return them to `scout_transcripts`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from otlp_spans import protobuf_spans, spans
from phoenix.trace.attributes import flatten
from phoenix.trace.otel import decode_otlp_span


def phoenix_client(paths: list[str]) -> Any:
    """Return a client of Phoenix whose spans have the attributes that Phoenix stores."""
    stored = [_phoenix_span(decode_otlp_span(message)) for message in protobuf_spans(paths)]

    async def get_spans(**_options: Any) -> list[dict[str, Any]]:
        return stored

    return SimpleNamespace(spans=SimpleNamespace(get_spans=get_spans))


def logfire_client(paths: list[str]) -> Any:
    """Return a client of Logfire that answers the importer's two queries: trace ids, and spans."""
    rows = sorted(map(_logfire_row, spans(paths)), key=lambda row: row["start_timestamp"])

    async def query_json_rows(sql: str) -> dict[str, Any]:
        if trace := re.search(r"trace_id = '(\w+)'", sql):
            return {"rows": [row for row in rows if row["trace_id"] == trace[1]]}
        genai = [row for row in rows if row["attributes"].get("gen_ai.operation.name")]
        ids = dict.fromkeys(row["trace_id"] for row in genai)
        return {"rows": [{"trace_id": trace_id} for trace_id in ids]}

    return SimpleNamespace(query_json_rows=query_json_rows)


def _phoenix_span(span: Any) -> dict[str, Any]:
    """Return a stored span as Phoenix's REST API lists it."""
    attributes = dict(flatten(span.attributes, recurse_on_sequence=True))
    kind = attributes.pop("openinference.span.kind", "UNKNOWN")
    return {
        "name": span.name,
        "context": {"trace_id": span.context.trace_id, "span_id": span.context.span_id},
        "span_kind": kind,
        "parent_id": span.parent_id,
        "start_time": span.start_time.isoformat(),
        "end_time": span.end_time.isoformat(),
        "status_code": span.status_code.value,
        "status_message": span.status_message,
        "attributes": attributes,
        "events": [{"name": e.name, "attributes": dict(e.attributes)} for e in span.events],
    }


def _logfire_row(span: dict[str, Any]) -> dict[str, Any]:
    """Return a span with the columns of Logfire's table of records."""
    failures = [event for event in span["events"] if event["name"] == "exception"]
    failure = failures[0]["attributes"] if failures else {}
    return {
        "trace_id": span["trace_id"],
        "span_id": span["span_id"],
        "parent_span_id": span["parent_span_id"],
        "span_name": span["name"],
        "message": span["attributes"].get("logfire.msg") or span["name"],
        "start_timestamp": _time(span["start_time"]),
        "end_timestamp": _time(span["end_time"]),
        "duration": (span["end_time"] - span["start_time"]) / 1e9,
        "attributes": span["attributes"],
        "is_exception": bool(failures),
        "exception_type": failure.get("exception.type"),
        "exception_message": failure.get("exception.message"),
        "otel_scope_name": span["scope"]["name"],
        "otel_events": span["events"],
    }


def _time(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).isoformat()
