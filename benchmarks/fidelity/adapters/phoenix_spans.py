"""Phoenix: its spans with the OpenInference attributes that it derives when it stores them."""

from __future__ import annotations

from typing import Any

from otlp_spans import protobuf_spans, tool_messages
from phoenix.trace.otel import decode_otlp_span


def read(paths: list[str]) -> dict[str, Any]:
    """Return a run for each model span, and for each span with an input and the tools below it."""
    traces: dict[str, list[Any]] = {}
    for message in protobuf_spans(paths):
        span = decode_otlp_span(message)
        traces.setdefault(span.context.trace_id, []).append(span)
    runs = []
    for spans in traces.values():
        spans.sort(key=lambda span: span.start_time)
        runs += [_chat(span) for span in spans if span.span_kind.value == "LLM"]
        tops = [span for span in spans if not span.parent_id] or spans[:1]
        agents = [span for span in spans if span.span_kind.value == "AGENT"]
        runs += [_agent(top, spans) for top in (*tops, *agents)]
    return {"readings": [runs], "notes": []}


def _agent(top: Any, spans: list[Any]) -> list[dict[str, Any]]:
    below, messages = {top.context.span_id}, [{"role": "user", "content": _value(top, "input")}]
    for span in spans:
        if span.parent_id in below:
            below.add(span.context.span_id)
        if span.parent_id in below and span.span_kind.value == "TOOL":
            messages += tool_messages(
                span.context.span_id,
                name=span.attributes.get("tool", {}).get("name") or span.name,
                arguments=_value(span, "input"),
                content=_value(span, "output"),
                is_error=span.status_code.value == "ERROR",
            )
    return [*messages, {"role": "assistant", "content": _value(top, "output")}]


def _chat(span: Any) -> list[dict[str, Any]]:
    model = span.attributes.get("llm", {})
    items = [*model.get("input_messages", []), *model.get("output_messages", [])]
    return [_message(item.get("message", {})) for item in items]


def _value(span: Any, side: str) -> Any:
    return span.attributes.get(side, {}).get("value")


def _message(message: dict[str, Any]) -> dict[str, Any]:
    calls = [item.get("tool_call", {}) for item in message.get("tool_calls", [])]
    parts = [
        each.get("message_content", {}).get("text", "") for each in message.get("contents", [])
    ]
    return {
        "role": message.get("role"),
        "content": message.get("content") or "".join(parts),
        "calls": [{"id": call.get("id"), **call.get("function", {})} for call in calls],
        "call_id": message.get("tool_call_id"),
    }
