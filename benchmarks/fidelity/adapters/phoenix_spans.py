"""Phoenix: its spans with the OpenInference attributes that it derives when it stores them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from otlp_spans import protobuf_spans
from phoenix.trace.otel import decode_otlp_span
from tool_runs import tool_messages, tool_run


def read(paths: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a run for each model span, and for each agent's span with the tools of its trace."""
    traces: dict[str, list[Any]] = {}
    for message in protobuf_spans(paths):
        span = decode_otlp_span(message)
        traces.setdefault(span.context.trace_id, []).append(span)
    runs = []
    for spans in traces.values():
        spans.sort(key=lambda each: each.start_time)
        chats = [_chat(span) for span in spans if span.span_kind.value == "LLM"]
        tools = [each for span in spans if span.span_kind.value == "TOOL" for each in _tool(span)]
        runs += [*chats, tool_run(None, tools, None, chats)]
        for top in (s for s in spans if not s.parent_id or s.span_kind.value == "AGENT"):
            runs.append(tool_run(_value(top, "input"), tools, _value(top, "output"), chats))
    yield {"runs": runs, "notes": []}


def _tool(span: Any) -> Any:
    facts = span.attributes.get("tool", {})
    return tool_messages(
        facts.get("id") or span.context.span_id,
        name=facts.get("name") or span.name,
        arguments=_value(span, "input"),
        content=_value(span, "output") or span.status_message,
        is_error=span.status_code.value == "ERROR",
    )


def _chat(span: Any) -> list[dict[str, Any]]:
    model = span.attributes.get("llm", {})
    items = [*model.get("input_messages", []), *model.get("output_messages", [])]
    return [_message(item.get("message", {})) for item in items]


def _value(span: Any, side: str) -> Any:
    return span.attributes.get(side, {}).get("value")


def _message(message: dict[str, Any]) -> dict[str, Any]:
    calls = [item.get("tool_call", {}) for item in message.get("tool_calls", [])]
    parts = [item.get("message_content", {}) for item in message.get("contents", [])]
    return {
        "role": "tool" if message.get("tool_call_id") else message.get("role"),
        "content": message.get("content") or "".join(part.get("text", "") for part in parts),
        "calls": [{"id": call.get("id"), **call.get("function", {})} for call in calls],
        "call_id": message.get("tool_call_id"),
    }
