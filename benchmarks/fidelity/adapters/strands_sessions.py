"""Strands evals: the mapper that it chooses for the spans, and the sessions that it makes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from otlp_spans import spans
from strands_evals.mappers import StrandsInMemorySessionMapper
from strands_evals.mappers.utils import detect_otel_mapper
from strands_evals.types.trace import AgentInvocationSpan, InferenceSpan, ToolExecutionSpan

_SESSIONS = ("session.id", "gen_ai.conversation.id")


def read(paths: list[str]) -> dict[str, Any]:
    """Return a run for each trace of each session that the spans name."""
    found = list(spans(paths))
    named = {span["attributes"].get(key) for span in found for key in _SESSIONS} - {None}
    mapper = detect_otel_mapper(found)
    in_memory = isinstance(mapper, StrandsInMemorySessionMapper)
    data: list[Any] = list(map(_object, found)) if in_memory else found
    traces = [
        trace for name in named or {"x"} for trace in mapper.map_to_session(data, name).traces
    ]
    return {"runs": [_messages(trace.spans) for trace in traces], "notes": []}


def _object(value: Any) -> Any:
    """Return a span as the object of the SDK that this mapper expects."""
    names = ("trace_id", "span_id")
    context = SimpleNamespace(**{name: int(value[name], 16) for name in names})
    parent = SimpleNamespace(span_id=int(value["parent_span_id"] or "0", 16))
    events = [SimpleNamespace(**event) for event in value["events"]]
    known = {key: value[key] for key in ("name", "attributes", "start_time", "end_time")}
    scope = SimpleNamespace(**value["scope"])
    status = SimpleNamespace(status_code=SimpleNamespace(name=value["status"]["code"]))
    facts = {"context": context, "parent": parent if value["parent_span_id"] else None}
    return SimpleNamespace(
        **known, **facts, events=events, instrumentation_scope=scope, status=status,
        get_span_context=lambda: context,
    )  # fmt: skip


def _messages(parts: list[Any]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for tool in (part for part in parts if isinstance(part, ToolExecutionSpan)):
        call, result = tool.tool_call, tool.tool_result
        calls = [{"id": call.tool_call_id, "name": call.name, "arguments": call.arguments}]
        shown = {"role": "tool", "content": result.content, "call_id": call.tool_call_id}
        messages += [{"role": "assistant", "calls": calls}, {**shown, "is_error": result.error}]
    for agent in [part for part in parts if isinstance(part, AgentInvocationSpan)][:1]:
        question = {"role": "user", "content": agent.user_prompt}
        return [question, *messages, {"role": "assistant", "content": agent.agent_response}]
    models = [part for part in parts if isinstance(part, InferenceSpan)]
    said = [_text(message) for model in models[-1:] for message in model.messages]
    return [*said[:-1], *messages, *said[-1:]]


def _text(message: Any) -> dict[str, Any]:
    text = "".join(getattr(part, "text", "") for part in message.content)
    return {"role": message.role.value, "content": text}
