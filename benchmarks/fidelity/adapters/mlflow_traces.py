"""MLflow: the traces of its store, as its judges read them, and the chats of its model spans."""

from __future__ import annotations

from typing import Any

from mlflow.entities import Trace, TraceData, TraceInfo, TraceLocation, TraceState
from mlflow.entities.span import Span
from mlflow.genai.utils.trace_utils import (
    extract_request_from_trace,
    extract_response_from_trace,
    extract_tools_called_from_trace,
)
from mlflow.tracing.otel.translation import translate_loaded_span, translate_span_when_storing
from otlp_spans import protobuf_spans, tool_messages


def read(paths: list[str]) -> dict[str, Any]:
    """Return a run for each trace, and for each of its model spans."""
    traces: dict[str, list[Span]] = {}
    for message in protobuf_spans(paths):
        stored = translate_span_when_storing(Span.from_otel_proto(message))
        span = Span.from_dict(translate_loaded_span(stored))
        traces.setdefault(span.trace_id, []).append(span)
    runs = [run for spans in traces.values() for run in (_trace(spans), *map(_chat, spans))]
    return {"readings": [runs], "notes": []}


def _trace(spans: list[Span]) -> list[dict[str, Any]]:
    location = TraceLocation.from_experiment_id("0")
    info = TraceInfo(spans[0].trace_id, location, request_time=0, state=TraceState.OK)
    trace = Trace(info=info, data=TraceData(spans=spans))
    messages = [{"role": "user", "content": extract_request_from_trace(trace)}]
    for at, call in enumerate(extract_tools_called_from_trace(trace)):
        messages += tool_messages(
            str(at),
            name=call.name,
            arguments=call.arguments,
            content=[call.outputs, call.exception],
            is_error=call.exception is not None,
        )
    return [*messages, {"role": "assistant", "content": extract_response_from_trace(trace)}]


def _chat(span: Span) -> list[dict[str, Any]]:
    sides = []
    for value, key in ((span.inputs, "messages"), (span.outputs, "choices")):
        items = value.get(key) if isinstance(value, dict) else value
        items = items if isinstance(items, list) else []
        sides += [each.get("message", each) for each in items if isinstance(each, dict)]
    return [_message(each) for each in sides if "role" in each]


def _message(message: dict[str, Any]) -> dict[str, Any]:
    calls = [{"id": c.get("id"), **c.get("function", {})} for c in message.get("tool_calls") or []]
    content = message.get("content") or message.get("parts")
    return {
        "role": message["role"], "content": content, "calls": calls,
        "call_id": message.get("tool_call_id"),
    }  # fmt: skip
