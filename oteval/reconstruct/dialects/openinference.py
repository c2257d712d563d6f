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
from ..langchain import messages, tool_message
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
GRAPH = "LangGraph"  # the name of a graph that was given none


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
    if kind == "AGENT" or (kind == "CHAIN" and "metadata" in span.attributes):
        return _agent_or_node(span, kind)
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
    received = _flat(span, "llm.output_messages.", "assistant")
    raw = _raw_choices(span) if len(received) != 1 else []
    others: list[Message] = []
    if len(raw) > 1 or not received:
        received, others = raw[:1], raw[1:]
    if not sent and not received and not any(found.code == "redacted" for found in gaps):
        gaps.append(gap("content_not_captured", span.span_id, switch=SWITCH))
    parameters = parse(attributes.get("llm.invocation_parameters")).value
    delta = isinstance(parameters, Mapping) and bool(parameters.get("previous_response_id"))
    losses = {"redacted", "attributes_dropped", "content_not_captured"}
    return ModelCall(
        span,
        input=revealed(sent, span, SWITCH, gaps),
        output=revealed(received, span, SWITCH, gaps),
        choices=tuple(others),
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


def _raw_choices(span: Span) -> list[Message]:
    """Return the answers of a raw chat-completions response, where the attribute holds one."""
    value = parse(span.attributes.get(OUTPUT)).value
    found = value.get("choices") if isinstance(value, Mapping) else None
    answers: list[Message] = []
    for choice in found if isinstance(found, list) else []:
        message = choice.get("message") if isinstance(choice, Mapping) else None
        if isinstance(message, Mapping):
            answers += from_messages([message], span, "assistant")[:1]
    return answers


def _tool(span: Span) -> ToolRun:
    attributes = span.attributes
    gaps = attribute_gaps(span, (INPUT, OUTPUT), SWITCH)
    if INPUT not in attributes and OUTPUT not in attributes:
        gaps.append(gap("content_not_captured", span.span_id, switch=SWITCH))
    arguments = attributes.get(INPUT)
    output = tool_message(parse(attributes.get(OUTPUT)).value)
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


def _agent_or_node(span: Span, kind: str) -> Reading:
    """Return what a span is that LangGraph's metadata may tell of: a node, a graph, an agent.

    A node is of kind AGENT when its name says "agent", and is none for that.
    """
    found = parse(span.attributes.get("metadata")).value
    metadata = found if isinstance(found, Mapping) else {}
    is_node = metadata.get("langgraph_node") == span.name
    is_agent = kind == "AGENT" and (not is_node or metadata.get("lc_agent_name") == span.name)
    if is_agent or _is_graph(span, metadata):
        return _agent(span, metadata, span.name if is_node else "")
    return Wrapper(span, node=span.name if is_node else "")


def _is_graph(span: Span, metadata: Mapping[str, Any]) -> bool:
    if "langgraph_node" in metadata:
        return span.name == GRAPH
    return span.name == GRAPH or metadata.get("ls_integration") == "langgraph"


def _agent(span: Span, metadata: Mapping[str, Any], node: str) -> AgentRun:
    name = semconv.first(span.attributes, ("agent.name", "graph.node.id", "gen_ai.agent.name"))
    return AgentRun(
        span,
        name=str(name or metadata.get("lc_agent_name") or span.name),
        input=tuple(_spoken(span, INPUT, "user")),
        output=tuple(_spoken(span, OUTPUT, "assistant")),
        node=node,
    )


def _spoken(span: Span, key: str, role: str) -> list[Message]:
    """Return the last thing that an agent's input or output says."""
    value = span.attributes.get(key)
    if not isinstance(value, str) or hidden(value):
        return []
    found = parse(value).value
    if not isinstance(found, (Mapping, list)):
        return [Message(role, value, span_id=span.span_id, trace_id=span.trace_id)]
    said = found.get("messages") if isinstance(found, Mapping) else found
    last = messages(said, span, role)[-1:] if isinstance(said, list) else []
    return [message for message in last if message.role == role]


OPENINFERENCE = Dialect("openinference", claims, read)
