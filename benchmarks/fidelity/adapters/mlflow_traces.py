"""MLflow: the spans of its own store, with the inputs and outputs that it reads from attributes."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.json_format import ParseDict
from mlflow.entities.span import Span
from mlflow.tracing.otel.translation import translate_span_when_storing
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan
from otlp_spans import requests

_BYTES = ("traceId", "spanId", "parentSpanId")


def read(paths: list[str]) -> dict[str, Any]:
    """Return a run for each trace: its root's question and answer, and its tool spans."""
    traces: dict[str, list[dict[str, Any]]] = {}
    for request in requests(paths):
        for scope in (s for r in request["resourceSpans"] for s in r.get("scopeSpans", [])):
            for raw in scope.get("spans", []):
                plain = {key: value for key, value in raw.items() if key not in _BYTES}
                message = ParseDict(plain, OtlpSpan(), ignore_unknown_fields=True)
                for field, name in zip(("trace_id", "span_id", "parent_span_id"), _BYTES):
                    setattr(message, field, bytes.fromhex(raw.get(name) or ""))
                span = translate_span_when_storing(Span.from_otel_proto(message))
                traces.setdefault(raw["traceId"], []).append({**raw, **span})
    return {"runs": [_messages(spans) for spans in traces.values()], "notes": []}


def _messages(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of the model span with the most, or the root's with its tool spans."""
    spans.sort(key=lambda span: int(span.get("startTimeUnixNano", 0)))
    chats = [_chat(span) for span in spans]
    if longest := max(chats, key=len, default=[]):
        return longest
    root = next((span for span in spans if not span.get("parentSpanId")), spans[0])
    messages = [{"role": "user", "content": _value(root, "mlflow.spanInputs")}]
    for span in (span for span in spans if "TOOL" in str(_value(span, "mlflow.spanType"))):
        name = span["name"].removeprefix("execute_tool ")
        call = {"id": span["spanId"], "name": name, "arguments": _value(span, "mlflow.spanInputs")}
        result = {"role": "tool", "content": _value(span, "mlflow.spanOutputs")}
        failed = "ERROR" in str(span.get("status"))
        messages += [
            {"role": "assistant", "calls": [call]},
            {**result, "call_id": span["spanId"], "is_error": failed},
        ]
    return [*messages, {"role": "assistant", "content": _value(root, "mlflow.spanOutputs")}]


def _chat(span: dict[str, Any]) -> list[dict[str, Any]]:
    asked, said = _value(span, "mlflow.spanInputs"), _value(span, "mlflow.spanOutputs")
    asked = asked.get("messages") if isinstance(asked, dict) else asked
    choices = said.get("choices") if isinstance(said, dict) else None
    said = [choice.get("message") for choice in choices] if isinstance(choices, list) else said
    both = [*(asked if isinstance(asked, list) else []), *(said if isinstance(said, list) else [])]
    return [_message(each) for each in both if isinstance(each, dict) and "role" in each]


def _message(message: dict[str, Any]) -> dict[str, Any]:
    calls = [{"id": c.get("id"), **c.get("function", {})} for c in message.get("tool_calls") or []]
    known = {"role": message["role"], "content": message.get("content") or message.get("parts")}
    return {**known, "calls": calls, "call_id": message.get("tool_call_id")}


def _value(span: dict[str, Any], key: str) -> Any:
    value = span.get("attributes", {}).get(key)
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
