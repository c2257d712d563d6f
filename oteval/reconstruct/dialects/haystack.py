"""Haystack's own tracing: spans named ``haystack.…`` with tags of the same prefix.

From version 3 on, an agent's run has steps with one span for each model call and tool call.
Before that, and still in pipelines, a ``haystack.component.run`` span names the component;
generators are model calls. Messages are serialised ``ChatMessage`` objects, whose content is a list
of parts. Each part is a mapping with one key, which names its kind. Before version 2.12 the fields
begin with "_", and before 2.9 the content is a text. The run's output has the whole conversation.

Read from captures and from https://github.com/deepset-ai/haystack
(https://docs.haystack.deepset.ai/docs/tracing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...messages import (
    SYSTEM_ROLES,
    ModelAnswer,
    ModelRequest,
    from_messages,
    hidden,
    list_of,
    mapping_of,
    parse,
)
from ...model import Message, Span, read_tokens
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..gaps import gap
from ..readers.model_calls import call_gaps, model_call
from ..tool_spans import tool_of_attributes

__all__ = ["DIALECT", "count_before_turn", "definitions", "messages_of"]

_DEFINITION = ("name", "description", "parameters")
SWITCH = "set HAYSTACK_CONTENT_TRACING_ENABLED=true"
PREFIX = "haystack."
AGENT, LLM = "haystack.agent.run", "haystack.agent.step.llm"
TOOL = "haystack.agent.step.tool"
COMPONENT_TYPE, COMPONENT_CONTENT = "haystack.component.type", "haystack.component"
TOOL_NAME, TOOL_ERROR = "haystack.tool.name", "haystack.tool.error"
ARGUMENTS, RESULT = f"{TOOL}.input", f"{TOOL}.output"
AGENT_TOOLS = "haystack.agent.tools"
AGENT_INPUT, AGENT_OUTPUT = "haystack.agent.input", "haystack.agent.output"


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """The span's operation, by its name or the type of its component."""
    if span.name == AGENT:
        return _agent(span)
    if span.name == LLM:
        return _model_call(span, LLM)
    # Version 3.0 writes one span for all calls of a step, without their names.
    if span.name == TOOL and TOOL_NAME in span.attributes:
        return _tool(span)
    component = str(span.attributes.get(COMPONENT_TYPE, ""))
    if component.endswith("Generator") and not component.endswith("ImageGenerator"):
        return _model_call(span, COMPONENT_CONTENT)
    return Wrapper(span)


def _agent(span: Span) -> AgentRun:
    messages = messages_of(_items(span, AGENT_INPUT, "messages"), span)
    transcript = messages_of(_items(span, AGENT_OUTPUT, "messages"), span)
    return AgentRun(
        span,
        input=tuple(messages),
        output=tuple(message for message in transcript[-1:] if message.role == "assistant"),
        transcript=tuple(transcript),
        transcript_new_from=count_before_turn(messages) if AGENT_INPUT in span.attributes else None,
        tools=tuple(definitions(list_of(parse(span.attributes.get(AGENT_TOOLS)).value))),
    )


def count_before_turn(messages: Sequence[Message]) -> int:
    """How many of a run's input messages, prompts left out, precede its question.

    The question begins after the last answer or result.
    """
    turns = [message for message in messages if message.role not in SYSTEM_ROLES]
    while turns and turns[-1].role not in ("assistant", "tool"):
        turns.pop()
    return len(turns)


def _model_call(span: Span, prefix: str) -> ModelCall:
    input_key, output_key = f"{prefix}.input", f"{prefix}.output"
    gaps = call_gaps(span, (input_key, output_key), SWITCH)
    sent = messages_of(
        _items(span, input_key, "messages") or _items(span, input_key, "prompt"), span
    )
    replies = _items(span, output_key, "replies")
    received = messages_of(replies[:1], span, "assistant")
    for key, messages in ((input_key, sent), (output_key, received)):
        value = span.attributes.get(key)
        if value is not None and not messages and not hidden(value) and not parse(value).truncated:
            reason = "it holds no messages"
            gaps.append(gap("content_unreadable", span.span_id, key=key, reason=reason))
    meta = _meta(replies, _items(span, output_key, "meta"))
    return model_call(
        span,
        ModelRequest(sent, tuple(definitions(_items(span, input_key, "tools")))),
        ModelAnswer(received, messages_of(replies[1:], span, "assistant")),
        gaps,
        model=meta.get("model"),
        usage=read_tokens(meta.get("usage")).usage,
    )


def _items(span: Span, key: str, name: str) -> list[Any]:
    """A list in an attribute, by its name, without an item that was cut."""
    fields, truncated = parse(span.attributes.get(key))
    items = fields.get(name) if isinstance(fields, Mapping) else None
    if isinstance(items, (str, Mapping)):
        return [items]
    if not isinstance(items, list):
        return []
    # A value that was cut ends within its last list.
    return items[:-1] if truncated and list(fields)[-1] == name else items


def _meta(replies: Sequence[Any], metas: Sequence[Any]) -> Mapping[str, Any]:
    """The metadata of a reply; a plain text has it in a separate list."""
    reply_metas = [
        reply.get("meta", reply.get("_meta")) for reply in replies if isinstance(reply, dict)
    ]
    return next((meta for meta in (*reply_metas, *metas) if isinstance(meta, Mapping)), {})


def _tool(span: Span) -> ToolRun:
    result, failed = span.attributes.get(RESULT), span.attributes.get(TOOL_ERROR)
    if failed or span.is_error:
        result = mapping_of(result).get("error", result)
    return tool_of_attributes(
        span,
        (ARGUMENTS, RESULT),
        SWITCH,
        name=span.attributes[TOOL_NAME],
        result=result,
        failed=True if failed is True else None,
    )


def messages_of(items: Sequence[Any], span: Span, role: str = "user") -> list[Message]:
    """The messages of a parsed list.

    Args:
        items: Serialised messages, or texts.
        span: The span that contains them.
        role: The role of messages without one.
    """
    return from_messages([item for item in items if isinstance(item, (str, Mapping))], span, role)


def definitions(items: Sequence[Any]) -> list[Mapping[str, Any]]:
    """The definitions of tools, including the tools of tool sets."""
    tools: list[Mapping[str, Any]] = []
    for item in items:
        fields = item.get("data") if isinstance(item, Mapping) else None
        if not isinstance(fields, Mapping):
            continue
        if isinstance(fields.get("tools"), list):
            tools += definitions(fields["tools"])
        elif fields.get("name"):
            function = {key: fields[key] for key in _DEFINITION if key in fields}
            tools.append({"type": "function", **function})
    return tools


DIALECT = Dialect(
    name="haystack",
    title="Haystack",
    precedence=240,
    read=read,
    keys=(f"{PREFIX}*",),
    span_names=(f"{PREFIX}*",),
    switch=SWITCH,
)
