"""Strands evals: the sessions that its mappers make of the spans of OpenTelemetry's SDK."""

from collections.abc import Iterator
from typing import Any

from otlp_spans import sdk_spans
from strands_evals import mappers
from strands_evals.mappers.utils import detect_otel_mapper, readable_spans_to_dicts
from tool_runs import tool_messages, tool_run

_MAPPERS = ("StrandsInMemory", "OpenInference", "GenericGenAI", "LangChainOtel", "ADKOtel")
_SESSION = ("gen_ai.conversation.id", "session.id")


def read(paths: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a reading for the mapper that it detects, and for each that a user may choose."""
    spans = list(sdk_spans(paths))
    choices = [detect_otel_mapper(readable_spans_to_dicts(spans))]
    choices += [getattr(mappers, f"{name}SessionMapper")() for name in _MAPPERS]
    names = {str(s.attributes[key]) for s in spans for key in _SESSION if key in s.attributes}
    for mapper in choices:
        is_sdk = isinstance(mapper, mappers.StrandsInMemorySessionMapper)
        data = spans if is_sdk else readable_spans_to_dicts(spans)
        sessions = [mapper.map_to_session(data, name) for name in names or {"session"}]
        traces = [trace.spans for session in sessions for trace in session.traces]
        yield {"runs": [run for parts in traces for run in _runs(parts)], "notes": []}


def _runs(parts: list[Any]) -> list[list[dict[str, Any]]]:
    """Return the messages of each model span, and of each agent span with its tool spans."""
    models = [part for part in parts if hasattr(part, "messages")]
    chats = [[m for message in model.messages for m in _messages(message)] for model in models]
    tools = [(part.agent_span_id, _tool(part)) for part in parts if hasattr(part, "tool_call")]
    runs = [*chats, tool_run(None, [each for _, own in tools for each in own], None, chats)]
    for agent in (part for part in parts if hasattr(part, "user_prompt")):
        own = [m for at, tool in tools if at in (agent.span_info.span_id, None) for m in tool]
        runs.append(tool_run(agent.user_prompt, own, agent.agent_response, chats))
    return runs


def _tool(part: Any) -> Any:
    call, result = part.tool_call, part.tool_result
    facts = {"name": call.name, "arguments": call.arguments, "is_error": bool(result.error)}
    facts["content"] = result.content or result.error
    return tool_messages(call.tool_call_id or part.span_info.span_id, **facts)


def _messages(message: Any) -> list[dict[str, Any]]:
    messages = [{"role": message.role.value, "content": "", "calls": []}]
    for part in message.content:
        if part.content_type == "tool_use":
            call = {"id": part.tool_call_id, "name": part.name, "arguments": part.arguments}
            messages[0]["calls"].append(call)
        elif part.content_type == "tool_result":
            facts = {"role": "tool", "content": part.content, "call_id": part.tool_call_id}
            messages.append({**facts, "is_error": bool(part.error)})
        else:
            messages[0]["content"] += part.text
    return messages
