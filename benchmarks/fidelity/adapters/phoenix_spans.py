"""Phoenix: its spans with the OpenInference attributes that it derives when it stores them."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from otlp_spans import requests
from phoenix.trace.otel import decode_otlp_span

_BYTES = {"traceId": "trace_id", "spanId": "span_id", "parentSpanId": "parent_span_id"}


def read(paths: list[str]) -> dict[str, Any]:
    """Return a run for each trace: the messages of its last model span, or root and tools."""
    traces: dict[str, list[Any]] = {}
    for request in requests(paths):
        for scope in (s for r in request["resourceSpans"] for s in r.get("scopeSpans", [])):
            for raw in scope.get("spans", []):
                plain = {key: value for key, value in raw.items() if key not in _BYTES}
                message = ParseDict(plain, OtlpSpan(), ignore_unknown_fields=True)
                for name, field in _BYTES.items():
                    setattr(message, field, bytes.fromhex(raw.get(name) or ""))
                traces.setdefault(raw["traceId"], []).append(decode_otlp_span(message))
    runs = [_messages(sorted(spans, key=lambda span: span.start_time)) for spans in traces.values()]
    return {"runs": runs, "notes": []}


def _messages(spans: list[Any]) -> list[dict[str, Any]]:
    models = [span.attributes.get("llm", {}) for span in spans if span.span_kind.value == "LLM"]
    said = [[*llm.get("input_messages", []), *llm.get("output_messages", [])] for llm in models]
    tools = [span for span in spans if span.span_kind.value == "TOOL"]
    if any(said):
        failed = {_value(tool, "output") for tool in tools if tool.status_code.value == "ERROR"}
        return [_message(item.get("message", {}), failed) for item in max(said, key=len)]
    root = next((span for span in spans if not span.parent_id), spans[0])
    messages = [{"role": "user", "content": _value(root, "input")}]
    for tool in tools:
        name = tool.context.span_id
        call = {"id": name, "name": tool.name, "arguments": _value(tool, "input")}
        failed_one = tool.status_code.value == "ERROR"
        result = {"role": "tool", "content": _value(tool, "output"), "call_id": name}
        messages += [{"role": "assistant", "calls": [call]}, {**result, "is_error": failed_one}]
    return [*messages, {"role": "assistant", "content": _value(root, "output")}]


def _value(span: Any, side: str) -> Any:
    return span.attributes.get(side, {}).get("value")


def _message(message: dict[str, Any], failed: set[Any]) -> dict[str, Any]:
    calls = [item.get("tool_call", {}) for item in message.get("tool_calls", [])]
    parts = [
        part.get("message_content", {}).get("text", "") for part in message.get("contents", [])
    ]
    text = message.get("content") or "".join(parts)
    return {
        "role": message.get("role"),
        "content": text,
        "calls": [{"id": call.get("id"), **call.get("function", {})} for call in calls],
        "call_id": message.get("tool_call_id"),
        "is_error": bool(failed) and text in failed,
    }
