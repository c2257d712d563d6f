"""OpenInference: ``openinference.span.kind`` and flat, indexed ``llm.*_messages`` attributes.

Convention: https://github.com/Arize-ai/openinference/tree/main/spec. Where the flat attributes are
missing, ``input.value`` and ``output.value`` may hold the raw request and response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import semconv
from ...model import Message, Span
from ..content import from_messages, tool_definitions
from ..gaps import gap
from ..readings import AgentRun, ModelCall, Reading, ToolRun, Wrapper
from ..values import hidden, parse, parse_arguments
from .base import Dialect, Logs, attribute_gaps, model_failure, result_text, revealed, usage
from .flat import nested

__all__ = ["OPENINFERENCE"]

SWITCH = (
    "unset OPENINFERENCE_HIDE_INPUTS, OPENINFERENCE_HIDE_OUTPUTS and their relatives, or set "
    "them to false"
)
KIND = "openinference.span.kind"
INPUT, OUTPUT = "input.value", "output.value"
HAND_OFF = "handoff to "


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Return whether the span has OpenInference's kind."""
    return KIND in span.attributes


def read(span: Span, logs: Logs) -> Reading:  # noqa: ARG001
    """Return what the span's kind says it is."""
    kind = str(span.attributes[KIND]).upper()
    if kind == "LLM":
        return _model_call(span)
    # openai-agents: the answer to the call that asks for it stands in the next agent's input.
    if kind == "TOOL" and "tool.name" not in span.attributes and span.name.startswith(HAND_OFF):
        return Wrapper(span)
    # A tool that calls an agent may be of kind AGENT, with the tool's name beside it.
    if kind == "TOOL" or (kind == "AGENT" and "tool.name" in span.attributes):
        return _tool(span)
    if kind == "AGENT":
        return _agent(span)
    return Wrapper(span)


def _flat(span: Span, prefix: str, role: str) -> list[Message]:
    messages = []
    for item in nested(span.attributes, prefix):
        fields = item.get("message") if isinstance(item, Mapping) else None
        if not isinstance(fields, Mapping):
            continue
        # The oldest attributes are dropped first: a message that lost its role is not whole.
        if "role" in fields or not span.dropped_attributes:
            messages.append(_message(fields))
    return from_messages(messages, span, role)


def _message(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flat message in OpenAI's form."""
    content = fields.get("content")
    parts = fields.get("contents")
    if content is None and isinstance(parts, list):
        content = [part.get("message_content", part) for part in parts if isinstance(part, Mapping)]
    calls = fields.get("tool_calls")
    return {
        **fields,
        "content": content,
        "tool_calls": [
            call.get("tool_call", call)
            for call in (calls if isinstance(calls, list) else [])
            if isinstance(call, Mapping)
        ],
    }


def _model_call(span: Span) -> ModelCall:
    attributes = span.attributes
    gaps = attribute_gaps(span, (INPUT, OUTPUT), SWITCH) + model_failure(span)
    sent = _flat(span, "llm.input_messages.", "user") or _raw_messages(span, INPUT)
    received = _flat(span, "llm.output_messages.", "assistant") or _raw_answer(span)
    if not sent and not received and not any(found.code == "redacted" for found in gaps):
        gaps.append(gap("content_not_captured", span.span_id, switch=SWITCH))
    parameters = parse(attributes.get("llm.invocation_parameters")).value
    delta = isinstance(parameters, Mapping) and bool(parameters.get("previous_response_id"))
    losses = {"redacted", "attributes_dropped", "content_not_captured"}
    return ModelCall(
        span,
        input=revealed(sent, span, SWITCH, gaps),
        output=revealed(received, span, SWITCH, gaps),
        tools=tool_definitions(_definitions(attributes)),
        model=str(semconv.first(attributes, semconv.RESPONSE_MODEL) or ""),
        usage=usage(attributes, "llm.token_count.prompt_details.cache_read"),
        whole=not [found for found in gaps if found.code in losses],
        is_delta=delta,
        gaps=tuple(gaps),
    )


def _definitions(attributes: Mapping[str, Any]) -> list[Any]:
    found = [
        item["tool"].get("json_schema")
        for item in nested(attributes, "llm.tools.")
        if isinstance(item, Mapping) and isinstance(item.get("tool"), Mapping)
    ]
    return [parse(schema).value for schema in found]


def _raw_messages(span: Span, key: str) -> list[Message]:
    """Return the messages of a raw chat-completions request, where the attribute holds one."""
    value = parse(span.attributes.get(key)).value
    messages = value.get("messages") if isinstance(value, Mapping) else None
    if not isinstance(messages, list):
        return []
    return from_messages([m for m in messages if isinstance(m, Mapping) and "role" in m], span)


def _raw_answer(span: Span) -> list[Message]:
    """Return the message of a raw chat-completions response, where the attribute holds one."""
    value = parse(span.attributes.get(OUTPUT)).value
    choices = value.get("choices") if isinstance(value, Mapping) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, Mapping) else None
    return from_messages([message], span, "assistant") if isinstance(message, Mapping) else []


def _tool(span: Span) -> ToolRun:
    attributes = span.attributes
    gaps = attribute_gaps(span, (INPUT, OUTPUT), SWITCH)
    if INPUT not in attributes and OUTPUT not in attributes:
        gaps.append(gap("content_not_captured", span.span_id, switch=SWITCH))
    arguments = attributes.get(INPUT)
    output = _tool_message(parse(attributes.get(OUTPUT)).value)
    result = attributes.get(OUTPUT) if output is None else output.get("content")
    call_id = attributes.get("tool_call.id") or (output or {}).get("tool_call_id")
    return ToolRun(
        span,
        name=str(attributes.get("tool.name") or span.name),
        call_id=str(call_id or ""),
        arguments=None if arguments is None else parse_arguments(arguments),
        result=result_text(span, result),
        is_error=span.is_error or (output or {}).get("status") == "error",
        gaps=tuple(gaps),
    )


def _tool_message(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of a serialised LangChain tool message, or None where it is none."""
    if not isinstance(value, Mapping) or value.get("type") not in ("tool", "constructor"):
        return None
    fields = value.get("data", value.get("kwargs"))
    return fields if isinstance(fields, Mapping) and "content" in fields else None


def _agent(span: Span) -> AgentRun:
    attributes = span.attributes
    metadata = parse(attributes.get("metadata")).value
    keys = ("agent.name", "graph.node.id", "gen_ai.agent.name")
    name = semconv.first(attributes, keys)
    if not name and isinstance(metadata, Mapping):
        name = metadata.get("lc_agent_name")
    return AgentRun(
        span,
        name=str(name or span.name),
        input=tuple(_spoken(span, INPUT, "user")),
        output=tuple(_spoken(span, OUTPUT, "assistant")),
    )


def _spoken(span: Span, key: str, role: str) -> list[Message]:
    value = span.attributes.get(key)
    if not isinstance(value, str) or hidden(value):
        return []
    if not isinstance(parse(value).value, (Mapping, list)):
        return [Message(role, value, span_id=span.span_id, trace_id=span.trace_id)]
    return _raw_messages(span, key)[-1:] if role == "user" else []


OPENINFERENCE = Dialect("openinference", claims, read)
