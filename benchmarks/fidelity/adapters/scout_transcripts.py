"""Inspect Scout: the transcript that its importer of Phoenix or Logfire makes of the spans.

Which of the two fits a trace its user knows; here the one that finds more messages counts.
"""

from __future__ import annotations

import asyncio
from typing import Any

from inspect_scout.sources import _logfire, _phoenix
from otlp_spans import spans


def read(paths: list[str]) -> dict[str, Any]:
    """Return a run for each trace."""
    traces: dict[str, list[dict[str, Any]]] = {}
    for span in spans(paths):
        traces.setdefault(span["trace_id"], []).append(span)
    return {"runs": [asyncio.run(_transcript(trace)) for trace in traces.values()], "notes": []}


async def _transcript(trace: list[dict[str, Any]]) -> list[dict[str, Any]]:
    name = trace[0]["trace_id"]
    phoenix = await _phoenix._build_transcript(list(map(_of_phoenix, trace)), "p", name, None)

    async def rows(_client: Any, _trace: str) -> list[dict[str, Any]]:
        return list(map(_of_logfire, trace))

    _logfire._query_trace_spans = rows
    logfire = await _logfire._trace_to_transcript(None, name, None)
    found = [transcript.messages for transcript in (phoenix, logfire) if transcript]
    return [_message(message) for message in max(found, key=len, default=[])]


def _of_phoenix(span: dict[str, Any]) -> dict[str, Any]:
    context = {"trace_id": span["trace_id"], "span_id": span["span_id"]}
    kind = span["attributes"].get("openinference.span.kind", "UNKNOWN")
    facts = {"context": context, "parent_id": span["parent_span_id"], "span_kind": kind}
    return {**span, **facts, "status_code": span["status"]["code"]}


def _of_logfire(span: dict[str, Any]) -> dict[str, Any]:
    times = {"start_timestamp": span["start_time"], "end_timestamp": span["end_time"]}
    return {**span, **times, "span_name": span["name"], "otel_scope_name": span["scope"]["name"]}


def _message(message: Any) -> dict[str, Any]:
    calls = [
        {"id": call.id, "name": call.function, "arguments": call.arguments}
        for call in getattr(message, "tool_calls", None) or []
    ]
    return {
        "role": message.role,
        "content": message.text,
        "calls": calls,
        "call_id": getattr(message, "tool_call_id", "") or "",
        "is_error": bool(getattr(message, "error", None)),
    }
