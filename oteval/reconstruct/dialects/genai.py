"""OpenTelemetry GenAI, current: ``gen_ai.{input,output}.messages`` on spans, events or logs.

Convention: https://opentelemetry.io/docs/specs/semconv/gen-ai/ (in Development, 1.37 and later).
Content is off by default; with events it comes as the log event
``gen_ai.client.inference.operation.details`` in the span's context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...messages import (
    EVENT_ROLES,
    ModelAnswer,
    ModelRequest,
    answer_of,
    as_list,
    choices,
    facts_of,
    from_messages,
    hidden,
    parse,
    repeated_message,
    request_of,
    tool_definitions,
)
from ...model import DAMAGED_CONTENT_GAPS, Gap, Message, Span, semconv
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..gaps import gap
from ..readers.model_calls import model_call
from ..readers.spans import attribute_gaps, integer, missing_side, model_failure
from ..tool_spans import tool_of_attributes

__all__ = ["DIALECT", "read", "read_model_call"]

SWITCH = (
    "set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY "
    "(with EVENT_ONLY, load the log records too)"
)
DETAILS_EVENT = "gen_ai.client.inference.operation.details"
INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
SYSTEM = "gen_ai.system_instructions"
# Older keys than the messages: a text, or JSON of messages or of the request and response. Quarkus
# uses the names of the older events.
OLD_INPUT = ("gen_ai.prompt", "gen_ai.content.prompt")
OLD_OUTPUT = ("gen_ai.completion", "gen_ai.content.completion")
ARGUMENTS, RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
CONTENT = (INPUT, OUTPUT, SYSTEM)

MODEL_OPERATIONS = frozenset({"chat", "generate_content", "text_completion", "responses"})
OPENINFERENCE_KIND = "openinference.span.kind"
# The output does not count: Phoenix writes the ids of a model's answer there.
_TRANSLATED = frozenset({"input.value", "llm.input_messages.0.message.role"})
_CONTENT = frozenset({INPUT, OUTPUT, ARGUMENTS, RESULT})
_KEYS = frozenset(
    {"gen_ai.operation.name", INPUT, OUTPUT, "gen_ai.provider.name", "gen_ai.tool.name"}
)


def claims(span: Span, logs: Logs) -> bool:
    """Whether the span has the current conventions' attributes or event.

    A processor may have moved the content to OpenInference's attributes.
    """
    is_marked = not span.attributes.keys().isdisjoint(_KEYS) or any(
        record.event_name == DETAILS_EVENT for record in logs
    )
    return is_marked and not was_translated(span, logs)


def was_translated(span: Span, logs: Logs) -> bool:
    """Whether only OpenInference's attributes contain a span's content, not GenAI's.

    Phoenix keeps both; processors that translate a framework's own spans keep only OpenInference's.
    """
    attributes = span.attributes
    if OPENINFERENCE_KIND not in attributes or attributes.keys().isdisjoint(_TRANSLATED):
        return False
    if not attributes.keys().isdisjoint(_CONTENT):
        return False
    events = (*(event.name for event in span.events), *(record.event_name for record in logs))
    return not any(name == DETAILS_EVENT or name in EVENT_ROLES for name in events)


def read(span: Span, logs: Logs) -> Operation:
    """The span's operation, by its operation name."""
    operation = str(span.attributes.get("gen_ai.operation.name", ""))
    if operation in MODEL_OPERATIONS:
        return read_model_call(span, logs, SWITCH)
    if operation == "execute_tool":
        return read_tool(span, SWITCH)
    if operation in ("invoke_agent", "invoke_workflow"):
        return read_agent(span, logs)
    if not operation and (INPUT in span.attributes or OUTPUT in span.attributes):
        return read_model_call(span, logs, SWITCH)
    return Wrapper(span)


def content_of(span: Span, logs: Logs) -> Mapping[str, Any]:
    """Return the attributes, with the content of events and log records added."""
    if not logs and not span.events:
        return span.attributes
    content = {**span.attributes, **_foundry_messages(span)}
    sources = [record.attributes for record in logs if record.event_name == DETAILS_EVENT]
    sources += [event.attributes for event in span.events if event.name == DETAILS_EVENT]
    for source in sources:
        for key in (*CONTENT, "gen_ai.tool.definitions"):
            if key in source and key not in content:
                content[key] = source[key]
    return content


def _foundry_messages(span: Span) -> Mapping[str, list[Any]]:
    """The messages in events named like attributes, as Microsoft Foundry writes them."""
    messages_by_key: dict[str, list[Any]] = {}
    for event in span.events:
        if key := _FOUNDRY.get(event.name):
            messages_by_key.setdefault(key, []).extend(
                as_list(parse(event.attributes.get(_EVENT)).value)
            )
    return messages_by_key


_EVENT = "gen_ai.event.content"
_FOUNDRY = {INPUT: INPUT, OUTPUT: OUTPUT, "gen_ai.system.instructions": SYSTEM}


def read_model_call(span: Span, logs: Logs, switch: str) -> ModelCall:
    """A model call whose messages are in the form of parts.

    Args:
        span: The span.
        logs: The log records in its context.
        switch: The setting that makes the emitter write content, for the gap of a span without any.
    """
    content = content_of(span, logs)
    gaps = attribute_gaps(span, CONTENT, switch, content) + model_failure(span)
    sent = _messages(semconv.first(content, (INPUT, *OLD_INPUT)), span)
    received, alternatives = _answers(semconv.first(content, (OUTPUT, *OLD_OUTPUT)), span)
    is_lost = not sent or not received
    if is_lost and not any(gap.code in DAMAGED_CONTENT_GAPS for gap in gaps):
        gaps += _no_content(content, span, switch, sent=sent, received=received)
    sent = _with_system(read_system(content, span), sent)
    is_delta = "gen_ai.request.previous_response.id" in span.attributes
    return model_call(
        span,
        ModelRequest(sent, is_delta=is_delta),
        ModelAnswer(received, alternatives),
        gaps,
        attributes=content,
    )


def _no_content(
    content: Mapping[str, Any],
    span: Span,
    switch: str,
    *,
    sent: Sequence[Message],
    received: Sequence[Message],
) -> list[Gap]:
    """The gap of a call whose input or output is missing, with the reason."""
    lost = [key for key, messages in ((INPUT, sent), (OUTPUT, received)) if not messages]
    older = (*(() if sent else OLD_INPUT), *(() if received else OLD_OUTPUT))
    for key in (*lost, *older):
        if parse(content.get(key)).value not in (None, "", [], {}):
            reason = "it holds no messages"
            return [gap("content_unreadable", span.span_id, key=key, reason=reason)]
    for key in lost:
        where = span.attributes.get(f"{key}_ref")
        if where is not None:
            return [gap("content_external", span.span_id, where=str(where))]
    # If only the answer is missing, nothing shows that there was one.
    return [] if sent else missing_side(span, switch, sent=sent, received=received)


# How emitters write a missing list of messages as text.
_NOTHING = ("None", "null", "undefined")


def _is_nothing(value: Any) -> bool:
    """Whether an attribute for messages is empty."""
    return value is None or value in _NOTHING or hidden(value)


def _messages(value: Any, span: Span, role: str = "user") -> list[Message]:
    if _is_nothing(value):
        return []
    parsed = parse(value).value
    if not isinstance(parsed, dict) or _MESSAGE & parsed.keys():
        return from_messages(parsed, span, role)
    side = request_of(parsed, span) if role == "user" else answer_of(parsed, span)
    return side.messages


# Fields of a message, which a request and a response do not have.
_MESSAGE = frozenset({"content", "parts", "role"})


def _answers(value: Any, span: Span) -> tuple[list[Message], list[Message]]:
    """A call's answer, and its other choices."""
    if _is_nothing(value):
        return [], []
    answer, alternatives = choices(parse(value).value, _choice_count(span))
    received = _messages(answer, span, "assistant")
    return received, from_messages(alternatives, span, "assistant") if alternatives else []


def _choice_count(span: Span) -> int:
    """How many answers were requested, or 0 if unknown."""
    if span.attributes.get("openai.api.type") == "responses":
        return 1
    return integer(span.attributes.get("gen_ai.request.choice.count"))


def _with_system(system: list[Message], sent: list[Message]) -> list[Message]:
    """The input with the system prompt first, unless the input already contains it."""
    if not system:
        return sent
    contents = {message.content for message in facts_of(sent).prompts}
    return [message for message in system if message.content not in contents] + sent


def read_system(content: Mapping[str, Any], span: Span) -> list[Message]:
    """The system prompt that a span has separately from its messages."""
    parts = content.get(SYSTEM)
    if parts is None or hidden(parts):
        return []
    value = parse(parts).value
    message = {"role": "system", "parts": value if isinstance(value, list) else [value]}
    return repeated_message(message, span)


def read_tool(span: Span, switch: str) -> ToolRun:
    """The execution of a tool.

    Args:
        span: The span.
        switch: The setting that makes the emitter write content, for the gap of a span without any.
    """
    return tool_of_attributes(span, (ARGUMENTS, RESULT), switch)


def read_agent(span: Span, logs: Logs) -> AgentRun:
    """An agent's run, with the messages of the run's span."""
    content = content_of(span, logs)
    return AgentRun(
        span,
        name=agent_name(span),
        input=tuple(_with_system(read_system(content, span), _messages(content.get(INPUT), span))),
        output=tuple(_messages(content.get(OUTPUT), span, "assistant")),
        tools=tool_definitions(content.get("gen_ai.tool.definitions")),
    )


def agent_name(span: Span) -> str:
    """An agent's name, from its attribute or its span's name."""
    name = semconv.first(span.attributes, semconv.AGENT_NAME)
    if name is None and span.name.startswith("invoke_agent "):
        name = span.name.removeprefix("invoke_agent ")
    return str(name or "")


DIALECT = Dialect(
    name="genai",
    title="OpenTelemetry GenAI instrumentations",
    precedence=300,
    read=read,
    keys=tuple(_KEYS),
    events=(DETAILS_EVENT,),
    claims=claims,
    switch=SWITCH,
)
