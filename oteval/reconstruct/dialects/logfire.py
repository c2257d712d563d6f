"""Logfire's own instrumentations of model clients and of the OpenAI Agents SDK.

Source: ``logfire/_internal/integrations`` of https://github.com/pydantic/logfire. The clients'
spans (scopes ``logfire.openai``, ``logfire.anthropic``) have the current GenAI attributes. Before
version 5, or if the first version of the conventions is set, the request and the answer are in
``request_data`` and ``response_data``, or in a JSON list ``events``. The Agents SDK's spans (scope
``logfire.openai_agents``) have that SDK's fields: ``input`` and ``output``, or ``raw_input``
and ``response``. All spans name the provider, not only model calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...messages import ModelRequest, answer_of, mapping_of, parse, parse_arguments, request_of
from ...model import NO_TOKENS, Message, Span, Usage, read_tokens, span_tokens
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..gaps import gap
from ..readers.model_calls import call_gaps, model_call
from ..readers.spans import attribute_gaps, not_captured
from ..tool_spans import tool_run
from . import genai
from .genai_events import emitted_in, split

__all__ = ["DIALECT"]

SWITCH = (
    "do not turn content off (trace_include_sensitive_data of the Agents SDK, "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT)"
)
OPENAI, AGENTS = "logfire.openai", "logfire.openai_agents"
ANTHROPIC = "logfire.anthropic"
REQUEST, RESPONSE, EVENTS = "request_data", "response_data", "events"
RAW_INPUT, RAW_RESPONSE = "raw_input", "response"
TEMPLATE = "logfire.msg_template"
SCOPES = (OPENAI, ANTHROPIC, AGENTS)
_OF_AGENTS = (
    "Agent run",
    "Function",
    "Responses API",
    "Chat completion with {gen_ai",
    "Turn {",
    "Task",
)
_ASKED = frozenset({"messages", "prompt", "system"})


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Whether one of Logfire's instrumentations wrote the span."""
    return _scope_of(span) in SCOPES


def _scope_of(span: Span) -> str:
    """A span's scope, inferred from its attributes if the backend did not store it."""
    attributes = span.attributes
    if span.scope or "gen_ai.system" not in attributes:
        return span.scope
    if str(attributes.get(TEMPLATE) or "").startswith(_OF_AGENTS):
        return AGENTS
    if REQUEST not in attributes:
        return ""
    return ANTHROPIC if attributes["gen_ai.system"] == "anthropic" else OPENAI


def read(span: Span, logs: Logs) -> Operation:
    """The span's operation, by its operation name, its fields or its message template."""
    attributes = span.attributes
    if genai.INPUT in attributes or genai.OUTPUT in attributes:
        return genai.read(span, logs)
    if _scope_of(span) == AGENTS:
        return _of_agents_sdk(span)
    operation = str(attributes.get("gen_ai.operation.name") or "")
    if operation in genai.MODEL_OPERATIONS or (not operation and _is_asked(span)):
        return _model_call(span)
    return genai.read(span, logs)


def _is_asked(span: Span) -> bool:
    request = mapping_of(span.attributes.get(REQUEST))
    return EVENTS in span.attributes or not _ASKED.isdisjoint(request)


def _of_agents_sdk(span: Span) -> Operation:
    attributes = span.attributes
    template = str(attributes.get(TEMPLATE) or span.name)
    if template.startswith("Agent run"):
        return AgentRun(span, name=str(attributes.get("name") or ""), tools=_tool_names(attributes))
    if template.startswith("Function"):
        return _function(span)
    if template.startswith(("Chat completion", "Responses API")) or _is_call(span):
        return _model_call(span)
    return Wrapper(span)


def _is_call(span: Span) -> bool:
    return str(span.attributes.get("gen_ai.operation.name") or "") in genai.MODEL_OPERATIONS


def _tool_names(attributes: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    value = parse(attributes.get("tools")).value
    names = [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
    return tuple({"type": "function", "name": name} for name in names)


def _function(span: Span) -> ToolRun:
    attributes = span.attributes
    arguments, result = attributes.get("input"), attributes.get("output")
    gaps = attribute_gaps(span, ("input", "output"), SWITCH)
    if not _is_there(arguments) and not _is_there(result):
        gaps.append(gap("content_not_captured", span.span_id, switch=SWITCH))
    return tool_run(
        span,
        name=str(attributes.get("name") or span.name),
        arguments=parse_arguments(arguments) if _is_there(arguments) else None,
        result=result if _is_there(result) else None,
        failed=True if _is_there(attributes.get("error")) else None,
        gaps=gaps,
    )


def _is_there(value: Any) -> bool:
    """Whether an attribute has a value; Logfire writes None as JSON."""
    return value is not None and value != "null"


def _model_call(span: Span) -> ModelCall:
    attributes = span.attributes
    keys = _keys(span)
    gaps = call_gaps(span, keys, SWITCH)
    request = request_of(_request(span), span)
    answer = answer_of(_response(span), span)
    sent, received = list(request.messages), list(answer.messages)
    items = emitted_in(parse(attributes.get(EVENTS)).value)
    if items and not (sent and received):
        sent, received, alternatives = split(span, items)
        if not received and not span.is_error:
            sent, received = _before_answer(sent)
        answer = answer._replace(choices=alternatives)
    if not span.is_error or not sent:
        gaps += not_captured(span, _sides(span, sent, received), SWITCH, gaps)
    request = ModelRequest(sent, request.tools, request.is_delta or _goes_on(span))
    return model_call(span, request, answer._replace(messages=received), gaps, usage=_usage(span))


def _before_answer(items: list[Message]) -> tuple[list[Message], list[Message]]:
    """Split messages at the answer, which no event marks: the last assistant messages."""
    at = len(items)
    while at and items[at - 1].role == "assistant":
        at -= 1
    return items[:at], items[at:]


def _keys(span: Span) -> tuple[str, ...]:
    if _scope_of(span) == AGENTS:
        return ("input", "output", RAW_INPUT, RAW_RESPONSE, EVENTS)
    return (REQUEST, RESPONSE, EVENTS)


def _sides(span: Span, sent: list[Message], received: list[Message]) -> dict[str, list[Message]]:
    """The messages sent and received, by the attribute with them."""
    attributes = span.attributes
    if _scope_of(span) != AGENTS:
        return {REQUEST: sent, RESPONSE: received}
    is_raw = RAW_INPUT in attributes or RAW_RESPONSE in attributes
    return (
        {RAW_INPUT: sent, RAW_RESPONSE: received} if is_raw else {"input": sent, "output": received}
    )


def _request(span: Span) -> Any:
    attributes = span.attributes
    if _scope_of(span) != AGENTS:
        return attributes.get(REQUEST)
    response = mapping_of(attributes.get(RAW_RESPONSE))
    value = parse(attributes.get(RAW_INPUT, attributes.get("input"))).value
    return {
        "input": value,
        "instructions": response.get("instructions"),
        "tools": response.get("tools"),
    }


def _response(span: Span) -> Any:
    attributes = span.attributes
    if _scope_of(span) == AGENTS:
        return attributes.get(RAW_RESPONSE, attributes.get("output"))
    response = mapping_of(attributes.get(RESPONSE))
    text = response.get("combined_chunk_content")
    if isinstance(text, str) and "message" not in response:
        return text
    return _unwrapped(response) if _scope_of(span) == ANTHROPIC else response


def _unwrapped(response: Mapping[str, Any]) -> Mapping[str, Any]:
    """An Anthropic answer with the model's own arguments in its calls.

    The instrumentation nests them in the field ``input``.
    """
    message = mapping_of(response.get("message"))
    calls = [mapping_of(call) for call in message.get("tool_calls") or ()]
    functions = [mapping_of(call.get("function")) for call in calls]
    inner_arguments = [mapping_of(function.get("arguments")).get("input") for function in functions]
    items = [
        {**call, "function": {**function, "arguments": arguments}}
        for call, function, arguments in zip(calls, functions, inner_arguments, strict=True)
        if arguments is not None
    ]
    if not items or len(items) != len(calls):
        return response
    return {**response, "message": {**message, "tool_calls": items}}


def _goes_on(span: Span) -> bool:
    """Whether the provider keeps the history."""
    response = mapping_of(span.attributes.get(RAW_RESPONSE)) if _scope_of(span) == AGENTS else {}
    return bool(response.get("previous_response_id") or response.get("conversation"))


def _usage(span: Span) -> Usage:
    tokens = span_tokens(span.attributes)
    if tokens == NO_TOKENS:
        tokens = read_tokens(mapping_of(span.attributes.get(RESPONSE)).get("usage"))
    return tokens.usage


DIALECT = Dialect(
    name="logfire",
    title="Logfire (openai, anthropic, OpenAI Agents)",
    precedence=210,
    read=read,
    scopes=SCOPES,
    keys=(REQUEST, TEMPLATE),
    claims=claims,
    switch=SWITCH,
)
