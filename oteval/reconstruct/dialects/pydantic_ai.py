"""Pydantic AI, instrumentation versions 1 to 6 (scope ``pydantic-ai``).

Version 1 has a model call's messages as a JSON list of events in the attribute ``events``, or as
log records; tools have ``tool_arguments`` and ``tool_response``. Version 2 and later follow the
current GenAI conventions, with results under the key ``result`` and arguments as text. The agent's
root span has the whole transcript.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any

from ...base.jsontext import dumps
from ...messages import from_event, from_messages, join_neighbours, mapping_of, parse
from ...model import Message, Span, semconv
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, Wrapper
from ..readers.spans import integer
from ..tool_spans import tool_of_attributes
from . import genai
from .genai_events import emitted, emitted_in, event_call

__all__ = ["DIALECT"]

SWITCH = "construct InstrumentationSettings(include_content=True)"
# The texts that replace the results of output tools.
_NOTES = (
    "Final result processed.",
    "Output tool not used - a final result was already processed.",
)
TRANSCRIPTS = ("pydantic_ai.all_messages", "all_messages_events")


def read(span: Span, logs: Logs) -> Operation:
    """The span's operation, in either generation of the instrumentation."""
    attributes = span.attributes
    operation = attributes.get("gen_ai.operation.name")
    if operation == "invoke_agent" or "agent_name" in attributes:
        return _agent(span)
    if "tool_arguments" in attributes or "tool_response" in attributes:
        return tool_of_attributes(span, ("tool_arguments", "tool_response"), SWITCH)
    if operation == "execute_tool" or attributes.get("gen_ai.tool.call.id"):
        return genai.read_tool(span, SWITCH)
    if str(operation) in genai.MODEL_OPERATIONS:
        return _model_call(span, logs)
    return Wrapper(span)


def _agent(span: Span) -> AgentRun:
    attributes = span.attributes
    items = parse(semconv.first(attributes, TRANSCRIPTS)).value
    transcript = _transcript(span, items)
    if transcript and transcript[0].role != "system":
        transcript = genai.read_system(attributes, span) + transcript
    results = list(takewhile(lambda message: message.role == "tool", reversed(transcript)))[::-1]
    tool_results = [message for message in results if message.content not in _NOTES]
    start = attributes.get("pydantic_ai.new_message_index")
    before = _transcript(span, items[: integer(start)]) if isinstance(items, list) else []
    return AgentRun(
        span,
        name=str(semconv.first(attributes, semconv.AGENT_NAME) or ""),
        transcript=(*transcript[: len(transcript) - len(results)], *tool_results),
        transcript_new_from=None if start is None else sum(m.role != "system" for m in before),
        output_calls=tuple([m.tool_call_id for m in results if m.content in _NOTES]),
    )


def _transcript(span: Span, items: Any) -> list[Message]:
    if not isinstance(items, list):
        return []
    if any(isinstance(item, Mapping) and "event.name" in item for item in items):
        return _from_events(span, items)
    return [_as_received(message) for message in from_messages(items, span)]


def _as_received(message: Message) -> Message:
    """A tool's message as the model received it.

    Pydantic AI 2 records the errors of invalid arguments, and sends ``{"error": [...]}``.
    """
    if message.role != "tool":
        return message
    errors = parse(message.content).value
    is_retry = isinstance(errors, list) and bool(errors) and all(map(_is_invalid, errors))
    return replace(message, content=dumps({"error": errors})) if is_retry else message


def _is_invalid(error: Any) -> bool:
    """Whether a value is a pydantic validation error."""
    return isinstance(error, Mapping) and {"type", "loc", "msg"} <= error.keys()


def _from_events(span: Span, items: list[Any]) -> list[Message]:
    messages: list[Message] = []
    for name, body in emitted_in(items):
        messages += from_event(name, body, span)
    return join_neighbours(messages)


def _model_call(span: Span, logs: Logs) -> ModelCall:
    if genai.INPUT in span.attributes or genai.OUTPUT in span.attributes:
        call = genai.read_model_call(span, logs, SWITCH)
        return replace(call, input=tuple(map(_as_received, call.input)))
    events = emitted_in(parse(span.attributes.get("events")).value) or emitted(span, logs)
    parameters = mapping_of(span.attributes.get("model_request_parameters"))
    switch = f"{SWITCH} (in mode 'logs', load the log records too)"
    return event_call(span, events, switch, offered=parameters.get("function_tools"))


DIALECT = Dialect(
    name="pydantic-ai",
    title="Pydantic AI",
    precedence=140,
    read=read,
    scopes=("pydantic-ai",),
    # These identify its spans if a backend did not store the scope.
    keys=("model_request_parameters", "all_messages_events", "tool_response", "pydantic_ai.*"),
    switch=SWITCH,
)
