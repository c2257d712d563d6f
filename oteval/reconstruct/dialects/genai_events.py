"""OpenTelemetry GenAI until 1.36: one event per message, in log records or span events.

Convention: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-events/ at 1.36. The body of
``gen_ai.{system,user,assistant,tool}.message`` and ``gen_ai.choice`` is a structured value; of
span events, it is the event's attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ... import semconv
from ...model import Message, Span
from ..content import EVENT_ROLES, from_event, join_neighbours
from ..gaps import gap
from ..readings import AgentRun, ModelCall, Reading, ToolRun, Wrapper
from ..values import parse_arguments, text_of
from .base import Dialect, Logs, attribute_gaps, integer, model_failure, revealed, usage
from .genai import INPUT, OUTPUT, read_agent, read_tool

__all__ = ["GENAI_EVENTS", "Emitted", "emitted", "model_call"]

SWITCH = (
    "set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true and load the log records "
    "beside the spans"
)


class Emitted(NamedTuple):
    """One message event.

    Attributes:
        name: The event's name.
        body: Its body, or a span event's attributes.
    """

    name: str
    body: Any


def emitted(span: Span, logs: Logs) -> list[Emitted]:
    """Return the span's message events, in record order and ``gen_ai.message.index``."""
    records = [record for record in logs if record.event_name in EVENT_ROLES]
    records.sort(key=lambda r: (r.time_ns or r.observed_ns, _index(r.attributes), r.seq))
    found = [Emitted(record.event_name, record.body) for record in records]
    found += [
        Emitted(event.name, event.attributes) for event in span.events if event.name in EVENT_ROLES
    ]
    return found


def _index(attributes: Mapping[str, Any]) -> int:
    return integer(attributes.get("gen_ai.message.index"))


def claims(span: Span, logs: Logs) -> bool:
    """Return whether the span names a provider the old way, or has message events."""
    if INPUT in span.attributes or OUTPUT in span.attributes:
        return False
    if any(record.event_name in EVENT_ROLES for record in logs):
        return True
    if any(event.name in EVENT_ROLES for event in span.events):
        return True
    return "gen_ai.system" in span.attributes and "gen_ai.provider.name" not in span.attributes


def read(span: Span, logs: Logs) -> Reading:
    """Return what the span's operation says it is."""
    operation = span.attributes.get("gen_ai.operation.name")
    if operation == "execute_tool":
        tool = read_tool(span, SWITCH)
        return tool if tool.arguments is not None else _tool_of_events(tool, span, logs)
    if operation in ("invoke_agent", "create_agent"):
        return _agent(span, logs)
    if operation in ("chat", "generate_content", "text_completion", None):
        return model_call(span, emitted(span, logs), SWITCH)
    return Wrapper(span)


def _tool_of_events(tool: ToolRun, span: Span, logs: Logs) -> ToolRun:
    """Return a tool run whose arguments and result are in its events."""
    bodies = {name: body for name, body in emitted(span, logs) if isinstance(body, Mapping)}
    arguments = bodies.get("gen_ai.tool.message", {}).get("content")
    result = bodies.get("gen_ai.choice", {}).get("message")
    return ToolRun(
        span,
        name=tool.name,
        call_id=tool.call_id,
        arguments=None if arguments is None else parse_arguments(arguments),
        result=tool.result if result is None else text_of(result),
        is_error=tool.is_error,
        gaps=() if arguments is not None else tool.gaps,
    )


def _agent(span: Span, logs: Logs) -> AgentRun:
    agent = read_agent(span, logs)
    if agent.input or agent.output:
        return agent
    sent, received, _ = _split(span, emitted(span, logs))
    return AgentRun(span, agent.name, tuple(sent), tuple(received))


def model_call(span: Span, events: list[Emitted], switch: str) -> ModelCall:
    """Return a model call whose messages are events.

    Args:
        span: The span.
        events: Its message events, in order.
        switch: What turns content on, for the gap of a span that has none.
    """
    gaps = attribute_gaps(span, (), switch) + model_failure(span)
    sent, received, others = _split(span, events)
    if not sent and not received:
        gaps.append(gap("content_not_captured", span.span_id, switch=switch))
    return ModelCall(
        span,
        input=revealed(sent, span, switch, gaps),
        output=revealed(received, span, switch, gaps),
        choices=tuple(others),
        model=str(semconv.first(span.attributes, semconv.RESPONSE_MODEL) or ""),
        response_id=str(span.attributes.get("gen_ai.response.id") or ""),
        usage=usage(span.attributes, "gen_ai.usage.cache_read.input_tokens"),
        whole=not [found for found in gaps if found.code != "model_call_failed"],
        gaps=tuple(gaps),
    )


def _split(span: Span, events: list[Emitted]) -> tuple[list[Message], list[Message], list[Message]]:
    """Return the messages sent, those received, and the choices besides the first."""
    sent: list[Message] = []
    received: list[Message] = []
    others: list[Message] = []
    for name, body in events:
        if name != "gen_ai.choice":
            sent += from_event(name, body, span)
        elif not received or not isinstance(body, Mapping) or not integer(body.get("index")):
            received += from_event(name, body, span)
        else:
            others += from_event(name, body, span)
    return join_neighbours(sent), join_neighbours(received), others


GENAI_EVENTS = Dialect("genai-events", claims, read)
