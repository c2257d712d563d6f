"""Strands evals: the sessions that its mappers make of the spans of OpenTelemetry's SDK."""

from __future__ import annotations

from typing import Any

from otlp_spans import sdk_spans, tool_messages
from strands_evals import mappers
from strands_evals.mappers.utils import detect_otel_mapper, readable_spans_to_dicts

_MAPPERS = ("StrandsInMemory", "OpenInference", "GenericGenAI", "LangChainOtel", "ADKOtel")


def read(paths: list[str]) -> dict[str, Any]:
    """Return a reading for the mapper that it detects, and for each that a user may choose."""
    spans = list(sdk_spans(paths))
    chosen = [getattr(mappers, f"{name}SessionMapper")() for name in _MAPPERS]
    readings = [_runs(detect_otel_mapper(readable_spans_to_dicts(spans)), spans)]
    for mapper in chosen:
        try:
            readings.append(_runs(mapper, spans))
        except Exception:  # noqa: BLE001  a mapper that its user would not choose
            continue
    return {"readings": readings, "notes": []}


def _runs(mapper: Any, spans: list[Any]) -> list[list[dict[str, Any]]]:
    keys = ("gen_ai.conversation.id", "session.id")
    sessions = {
        str(span.attributes[key]) for span in spans for key in keys if key in span.attributes
    }
    is_in_memory = isinstance(mapper, mappers.StrandsInMemorySessionMapper)
    data = spans if is_in_memory else readable_spans_to_dicts(spans)
    sessions = sessions or {"session"}
    traces = [trace for name in sessions for trace in mapper.map_to_session(data, name).traces]
    return [
        run for trace in traces for run in map(_run, [trace.spans] * len(trace.spans), trace.spans)
    ]


def _run(parts: list[Any], part: Any) -> list[dict[str, Any]]:
    """Return the messages of a model span, or of an agent span and its tool spans."""
    if hasattr(part, "messages"):
        return [each for message in part.messages for each in _messages(message)]
    if not hasattr(part, "user_prompt"):
        return []
    run = [{"role": "user", "content": part.user_prompt}]
    for tool in parts:
        if getattr(tool, "agent_span_id", "") in (part.span_info.span_id, None):
            call, result = tool.tool_call, tool.tool_result
            run += tool_messages(
                tool.span_info.span_id, name=call.name, arguments=call.arguments,
                content=result.content or result.error, is_error=bool(result.error),
            )  # fmt: skip
    return [*run, {"role": "assistant", "content": part.agent_response}]


def _messages(message: Any) -> list[dict[str, Any]]:
    role, parts = message.role.value, message.content
    text = "".join(getattr(part, "text", "") for part in parts)
    calls = [part for part in parts if part.content_type == "tool_use"]
    shown = [{"id": c.tool_call_id, "name": c.name, "arguments": c.arguments} for c in calls]
    results = [part for part in parts if part.content_type == "tool_result"]
    return [
        *([{"role": role, "content": text, "calls": shown}] if text or shown else []),
        *(
            {
                "role": "tool",
                "content": r.content,
                "call_id": r.tool_call_id,
                "is_error": bool(r.error),
            }
            for r in results
        ),
    ]
