"""Strands Agents in its three forms (scope ``strands.telemetry.tracer``).

``invoke_agent`` over ``execute_event_loop_cycle`` over ``chat`` and ``execute_tool``. By default
each message is a span event whose text is a list of Bedrock Converse blocks. With the latest
conventions, details events or the span's attributes contain messages of parts. On a tool's span,
``gen_ai.tool.message`` has the arguments and ``gen_ai.choice`` the result.

Facts: https://github.com/strands-agents/sdk-python (``strands/telemetry/tracer.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...messages import (
    EVENT_ROLES,
    ModelAnswer,
    ModelRequest,
    from_blocks,
    from_messages,
    hidden,
    parse,
    parse_arguments,
    result_of,
    text_of,
    tool_definitions,
)
from ...model import Event, Gap, Message, Span, semconv
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..gaps import gap
from ..readers.model_calls import call_gaps, model_call
from ..tool_spans import tool_run
from . import genai

__all__ = ["DIALECT", "SCOPE", "agent_tools", "tool_status"]

SWITCH = (
    "Strands writes content to span events: keep those (on AgentCore, load the log records too) or "
    "set OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental,gen_ai_span_attributes_only; "
    "if it has gen_ai_unredacted_attributes, list the content attributes there"
)
SCOPE, PROVIDER = "strands.telemetry.tracer", "strands-agents"
CHOICE = "gen_ai.choice"
_STATUS = ("gen_ai.tool.status", "tool.status")


def claims(span: Span, logs: Logs) -> bool:
    """Whether Strands wrote the span and it was not translated to OpenInference."""
    attributes = span.attributes
    # In TypeScript, scope and provider are the service's name.
    is_timed = "gen_ai.event.start_time" in attributes and "gen_ai.operation.name" in attributes
    is_ours = is_timed or span.scope == SCOPE
    is_ours = is_ours or semconv.first(attributes, semconv.PROVIDER) == PROVIDER
    return is_ours and not genai.was_translated(span, logs)


def read(span: Span, logs: Logs) -> Operation:
    """The span's operation; cycles, swarms and graphs are wrappers."""
    operation = str(span.attributes.get("gen_ai.operation.name", ""))
    if operation in genai.MODEL_OPERATIONS:
        return _model_call(span, logs)
    if operation == "execute_tool":
        return _tool(span, logs)
    if operation == "invoke_agent":
        return _agent(span, logs)
    return Wrapper(span)


def _events(span: Span) -> list[Event]:
    return [event for event in span.events if event.name in EVENT_ROLES]


def _split(span: Span, events: Sequence[Event]) -> tuple[list[Message], list[Message]]:
    """The messages sent and received in a span's events."""
    sent: list[Message] = []
    received: list[Message] = []
    for event in events:
        if event.name == CHOICE:
            received += from_blocks("assistant", event.attributes.get("message"), span)
        else:
            # A message with results may contain a user's text too.
            role = "user" if event.name == "gen_ai.tool.message" else EVENT_ROLES[event.name]
            sent += from_blocks(role, event.attributes.get("content"), span)
    return sent, received


def _event_gaps(span: Span, events: Sequence[Event]) -> list[Gap]:
    gaps = []
    if span.dropped_events:
        reason = (
            f"the emitter dropped {span.dropped_events} of them; raise "
            "OTEL_SPAN_EVENT_COUNT_LIMIT (default 128)"
        )
        gaps.append(gap("content_unreadable", span.span_id, key="span events", reason=reason))
    for event in events:
        values = (event.attributes.get("content"), event.attributes.get("message"))
        if any(value is not None and parse(value).truncated for value in values):
            gaps.append(gap("content_truncated", span.span_id, key=event.name))
    return gaps


def _model_call(span: Span, logs: Logs) -> ModelCall:
    events = _events(span)
    if not events:
        call = genai.read_model_call(span, logs, SWITCH)
        sent, received = (tuple(map(_plain, side)) for side in (call.input, call.output))
        return replace(call, input=sent, output=received)
    gaps = call_gaps(span, (), SWITCH) + _event_gaps(span, events)
    history, answer = _split(span, events)
    return model_call(span, ModelRequest(history), ModelAnswer(answer), gaps)


def _plain(message: Message) -> Message:
    """A message with a tool's result as text instead of blocks."""
    if message.role != "tool":
        return message
    return replace(message, content=text_of(result_of(message.content)))


def tool_status(span: Span) -> bool | None:
    """Return True if a tool's status attribute records a failure, otherwise None."""
    return True if semconv.first(span.attributes, _STATUS) == "error" else None


def _tool(span: Span, logs: Logs) -> ToolRun:
    tool = genai.read_tool(span, SWITCH)
    event_attributes = {event.name: event.attributes for event in _events(span)}
    arguments = event_attributes.get("gen_ai.tool.message", {}).get("content")
    result = event_attributes.get(CHOICE, {}).get("message", span.attributes.get(genai.RESULT))
    gaps = list(tool.gaps)
    if arguments is not None or result is not None:
        gaps = [g for g in gaps if g.code != "content_not_captured"]
        gaps += _event_gaps(span, _events(span))
    if hidden(arguments) or hidden(event_attributes.get(CHOICE, {}).get("message")):
        key = "the content of messages"
        gaps.append(gap("redacted", span.span_id, key=key, switch=SWITCH))
    if result is None:
        result = _detailed_result(span, logs)
    return tool_run(
        span,
        name=tool.name,
        call_id=tool.call_id,
        arguments=tool.arguments if arguments is None else parse_arguments(arguments),
        result=result_of(result),
        failed=tool_status(span),
        gaps=gaps,
    )


def _detailed_result(span: Span, logs: Logs) -> str | None:
    """The result in a details event, where Strands writes failures."""
    value = parse(genai.content_of(span, logs).get(genai.OUTPUT)).value
    results = (m.content for m in from_messages(value, span) if m.role == "tool")
    return next(results, None)


def _agent(span: Span, logs: Logs) -> AgentRun:
    agent = genai.read_agent(span, logs)
    sent, received = _split(span, _events(span))
    return replace(
        agent,
        input=agent.input or tuple(sent),
        output=agent.output or tuple(received),
        tools=agent_tools(span),
    )


def agent_tools(span: Span) -> tuple[Mapping[str, Any], ...]:
    """The definitions of an agent's tools, or their names if it has no definitions."""
    definitions = tool_definitions(span.attributes.get("gen_ai.tool.definitions"))
    names = parse(span.attributes.get("gen_ai.agent.tools")).value
    if definitions or not isinstance(names, list):
        return definitions
    return tuple({"type": "function", "name": name} for name in names if isinstance(name, str))


DIALECT = Dialect(
    name="strands",
    title="Strands Agents",
    precedence=20,
    read=read,
    scopes=(SCOPE,),
    keys=("gen_ai.event.start_time", *semconv.PROVIDER),
    claims=claims,
    switch=SWITCH,
)
