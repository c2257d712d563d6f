"""MLflow: the traces of its store, as its judges read them, and the chats of its model spans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chat_forms import chat
from mlflow.entities import Trace, TraceData, TraceInfo, TraceLocation, TraceState
from mlflow.entities.span import Span
from mlflow.genai.utils.trace_utils import (
    extract_request_from_trace,
    extract_response_from_trace,
    extract_tools_called_from_trace,
)
from mlflow.tracing.otel.translation import translate_loaded_span, translate_span_when_storing
from otlp_spans import protobuf_spans
from tool_runs import tool_messages, tool_run


def read(paths: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a run for each trace, and for each of its model spans."""
    traces: dict[str, list[Span]] = {}
    for message in protobuf_spans(paths):
        stored = translate_span_when_storing(Span.from_otel_proto(message))
        span = Span.from_dict(translate_loaded_span(stored))
        traces.setdefault(span.trace_id, []).append(span)
    yield {"runs": [run for spans in traces.values() for run in _runs(spans)], "notes": []}


def _runs(spans: list[Span]) -> list[list[dict[str, Any]]]:
    spans.sort(key=lambda span: span.start_time_ns)
    location = TraceLocation.from_experiment_id("0")
    info = TraceInfo(spans[0].trace_id, location, request_time=0, state=TraceState.OK)
    trace = Trace(info=info, data=TraceData(spans=spans))
    failed = [span.status.status_code == "ERROR" for span in trace.search_spans(span_type="TOOL")]
    tools = []
    for at, call in enumerate(extract_tools_called_from_trace(trace)):
        tools += tool_messages(
            str(at),
            name=call.name,
            arguments=call.arguments,
            content=[call.outputs, call.exception],
            is_error=call.exception is not None or failed[at],
        )
    chats = [list(chat([span.inputs, span.outputs])) for span in spans]
    request, answer = (
        part(trace) for part in (extract_request_from_trace, extract_response_from_trace)
    )
    return [*chats, tool_run(request, tools, answer, chats), tool_run(None, tools, None, chats)]
