"""OpenTelemetry GenAI until 1.36: one event per message, in log records or span events.

Convention: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-events/ at 1.36. The body of
``gen_ai.{system,user,assistant,tool}.message`` and ``gen_ai.choice`` is a structured value. In
span events, it is the event's attributes, or the JSON text in ``gen_ai.event.content`` (Azure AI).
Before 1.27, a span had two events: ``gen_ai.content.prompt`` and ``gen_ai.content.completion``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...messages import (
    EVENT_ROLES,
    ModelAnswer,
    ModelRequest,
    from_event,
    from_messages,
    join_neighbours,
    mappings_of,
    parse,
    parse_arguments,
    role_of,
    text_of,
    tool_definitions,
)
from ...model import LogRecord, Message, Span, semconv
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..gaps import gap
from ..readers.model_calls import call_gaps, model_call
from ..readers.spans import integer, is_whole
from .genai import (
    DETAILS_EVENT,
    INPUT,
    MODEL_OPERATIONS,
    OUTPUT,
    read_agent,
    read_tool,
    was_translated,
)

__all__ = [
    "DIALECT",
    "emitted",
    "emitted_in",
    "event_call",
    "has_messages",
    "read_model_call",
    "split",
]

SWITCH = (
    "set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true and load the log records "
    "beside the spans"
)
CONTENT = "gen_ai.event.content"
PROMPT, COMPLETION = "gen_ai.content.prompt", "gen_ai.content.completion"
# The key of each event's content. Some emitters write only an attribute, with this key or the
# event's name.
_PAIR = {PROMPT: "gen_ai.prompt", COMPLETION: "gen_ai.completion"}
_PAIR_KEYS = {name: (key, name) for name, key in _PAIR.items()}
# Attributes that only a model call has.
_MODEL_KEYS = frozenset(
    {
        "gen_ai.request.model",
        "gen_ai.response.id",
        "gen_ai.response.finish_reasons",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.prompt_tokens",
        "gen_ai.usage.completion_tokens",
    }
)
# The attribute where instrumentations of Google's client write the events.
_EVENTS = "events"
_INDICES = ("CHAT_MESSAGE_INDEX", "gen_ai.message.index")
_EVENT_NAMES = ("event.name", "event_name", "name")
# The role in front of each message of a prompt that is one text.
_SPEAKER = re.compile(r"^(system|developer|user|assistant|tool): ?", re.MULTILINE)


class Emitted(NamedTuple):
    """One message event.

    Attributes:
        name: The event's name.
        body: Its body, or a span event's attributes.
    """

    name: str
    body: Any


def emitted(span: Span, logs: Logs) -> list[Emitted]:
    """The span's message events, in order of their records and indices."""
    records = [record for record in logs if record.event_name in EVENT_ROLES]
    records.sort(key=_sort_key)
    events = [Emitted(record.event_name, _body(record)) for record in records]
    events += [
        Emitted(event.name, event.attributes.get(CONTENT, event.attributes))
        for event in span.events
        if event.name in EVENT_ROLES
    ]
    return events or emitted_in(parse(span.attributes.get(_EVENTS)).value)


def emitted_in(items: Any) -> list[Emitted]:
    """The message events of a parsed list, which an attribute may contain.

    Some emitters leave out the names of events; the body of a choice differs from a message's.
    """
    emitted = [Emitted(_event_name(item), item.get("body", item)) for item in mappings_of(items)]
    return [event for event in emitted if event.name in EVENT_ROLES]


def _event_name(item: Mapping[str, Any]) -> str:
    name = next((item[key] for key in _EVENT_NAMES if item.get(key) in EVENT_ROLES), None)
    if name is not None:
        return str(name)
    body = item.get("body", item)
    fields = body if isinstance(body, Mapping) else {}
    if "message" in fields or "index" in fields:
        return "gen_ai.choice"
    role = role_of(fields.get("role"))
    return f"gen_ai.{role}.message" if role else ""


def _body(record: LogRecord) -> Any:
    """A record's body, or its attributes if it has none."""
    if record.body is not None and record.body != "":
        return record.body
    return record.attributes.get(CONTENT, record.attributes)


def _sort_key(record: LogRecord) -> tuple[int, ...]:
    """A record's sort key: Semantic Kernel's index, the time, then Pydantic AI's index."""
    first, second = (integer(record.attributes.get(key)) for key in _INDICES)
    return first, record.time_ns or record.observed_ns, second, record.seq


def claims(span: Span, logs: Logs) -> bool:
    """Whether the span names its provider in the old key, or has message events."""
    if INPUT in span.attributes or OUTPUT in span.attributes:
        return False
    if any(record.event_name in EVENT_ROLES for record in logs):
        return True
    if any(event.name in EVENT_ROLES or event.name in _PAIR for event in span.events):
        return True
    is_known = "gen_ai.system" in span.attributes and "gen_ai.provider.name" not in span.attributes
    return is_known and not was_translated(span, logs)


def read(span: Span, logs: Logs) -> Operation:
    """The span's operation, by its operation name, its events or its model."""
    operation = str(span.attributes.get("gen_ai.operation.name") or "")
    if operation == "execute_tool":
        tool = read_tool(span, SWITCH)
        return tool if tool.arguments is not None else _tool_of_events(tool, span, logs)
    if operation == "invoke_agent":
        return _agent(span, logs)
    if operation in MODEL_OPERATIONS or (not operation and _asks_model(span, logs)):
        return read_model_call(span, logs, SWITCH)
    return Wrapper(span)


def read_model_call(span: Span, logs: Logs, switch: str) -> ModelCall:
    """A model call whose messages are events, or the two old events.

    Args:
        span: The span.
        logs: The log records in its context.
        switch: The setting that makes the emitter write content.
    """
    call = event_call(span, emitted(span, logs), switch)
    is_known = call.input or call.output or not _has_pair(span)
    return call if is_known else _with_pair(call)


def _has_pair(span: Span) -> bool:
    """Whether a span has one of the two old events, or their attributes."""
    return any(event.name in _PAIR for event in span.events) or any(_pair_attributes(span))


def _asks_model(span: Span, logs: Logs) -> bool:
    """Whether a span without an operation is a model call.

    A provider's name is not enough: frameworks write it on every span of a run.
    """
    if has_messages(span, logs) or all(_pair_attributes(span)):
        return True
    return not span.attributes.keys().isdisjoint(_MODEL_KEYS)


def _pair_attributes(span: Span) -> Iterator[Any]:
    """Yield the prompt and the completion in attributes."""
    return (semconv.first(span.attributes, keys) for keys in _PAIR_KEYS.values())


def has_messages(span: Span, logs: Logs) -> bool:
    """Whether a span has message events, or one of the two old events."""
    return bool(emitted(span, logs)) or any(event.name in _PAIR for event in span.events)


def _old_content(span: Span, name: str) -> Any:
    """The value of one of the two old events: JSON messages, or text."""
    key = _PAIR[name]
    values = [event.attributes.get(key) for event in span.events if event.name == name]
    values = values or [semconv.first(span.attributes, _PAIR_KEYS[name])]
    value = parse(values[0]).value if values else None
    if isinstance(value, str) and value.lstrip().startswith("["):
        return []  # the format of Semantic Kernel for .NET is not JSON
    return value


def _prompt(value: Any, span: Span) -> list[Message]:
    """A prompt's messages; a text may have a line for each, with its role in front."""
    pieces = _SPEAKER.split(value) if isinstance(value, str) else []
    if len(pieces) < 3 or pieces[0].strip():
        return from_messages(value, span)
    pair = zip(pieces[1::2], pieces[2::2], strict=True)
    return from_messages([{"role": role, "content": text.strip()} for role, text in pair], span)


def _with_pair(call: ModelCall) -> ModelCall:
    """A model call with the messages of the two old events."""
    span = call.span
    prompt, completion = (_old_content(span, name) for name in (PROMPT, COMPLETION))
    sent, received = _prompt(prompt, span), from_messages(completion, span, "assistant")
    sides = ((PROMPT, prompt, sent), (COMPLETION, completion, received))
    gaps = [gap for gap in call.gaps if gap.code != "content_not_captured"]
    gaps += [
        gap("content_unreadable", span.span_id, key=key, reason="it holds no messages")
        for key, value, messages in sides
        if value is not None and not messages
    ]
    return replace(
        call,
        input=tuple(sent),
        output=tuple(received[:1]),
        whole=is_whole(gaps),
        gaps=tuple(gaps),
    )


def _tool_of_events(tool: ToolRun, span: Span, logs: Logs) -> ToolRun:
    """A tool run whose arguments and result are in its events."""
    bodies = {name: body for name, body in emitted(span, logs) if isinstance(body, Mapping)}
    arguments = bodies.get("gen_ai.tool.message", {}).get("content")
    result = bodies.get("gen_ai.choice", {}).get("message")
    return replace(
        tool,
        arguments=None if arguments is None else parse_arguments(arguments),
        result=tool.result if result is None else text_of(result),
        gaps=() if arguments is not None else tool.gaps,
    )


def _agent(span: Span, logs: Logs) -> AgentRun:
    agent = read_agent(span, logs)
    if agent.input or agent.output:
        return agent
    sent, received, _ = split(span, emitted(span, logs))
    return AgentRun(span, agent.name, tuple(sent), tuple(received))


def event_call(span: Span, events: list[Emitted], switch: str, *, offered: Any = None) -> ModelCall:
    """A model call whose messages are events.

    Args:
        span: The span.
        events: Its message events, in order.
        switch: The setting that makes the emitter write content, for the gap of a span without any.
        offered: The tools' definitions, if an attribute of the dialect contains them.
    """
    gaps = call_gaps(span, (), switch)
    sent, received, alternatives = split(span, events)
    if not sent and not received:
        gaps.append(gap("content_not_captured", span.span_id, switch=switch))
    request = ModelRequest(sent, tool_definitions(offered))
    return model_call(span, request, ModelAnswer(received, alternatives), gaps)


def split(span: Span, events: list[Emitted]) -> tuple[list[Message], list[Message], list[Message]]:
    """The messages sent, the messages received, and the other choices."""
    sent: list[Message] = []
    received: list[Message] = []
    alternatives: list[Message] = []
    for name, body in events:
        if name != "gen_ai.choice":
            sent += from_event(name, body, span)
        elif not received or not isinstance(body, Mapping) or not integer(body.get("index")):
            received += from_event(name, body, span)
        else:
            alternatives += from_event(name, body, span)
    return _without_repeated_results(join_neighbours(sent)), join_neighbours(received), alternatives


def _without_repeated_results(messages: list[Message]) -> list[Message]:
    """Return messages with each result once: Bedrock writes it as a tool's and a user's event."""
    unique: list[Message] = []
    indexes: dict[str, int] = {}
    for message in messages:
        if message.role != "tool":
            indexes.clear()
        elif message.tool_call_id in indexes:
            index = indexes[message.tool_call_id]
            first_result = unique[index]
            if message.is_error:
                unique[index] = replace(first_result, is_error=True, is_outcome_recorded=True)
            continue
        elif message.tool_call_id:
            indexes[message.tool_call_id] = len(unique)
        unique.append(message)
    return unique


def attach_logs(spans: Sequence[Span], logs: Logs) -> Logs:
    """The log records; a record without a span id gets its trace's model call.

    Args:
        spans: All spans.
        logs: All log records.
    """
    if not any(record.trace_id and not record.span_id and _is_content(record) for record in logs):
        return logs
    calls: dict[str, dict[str, Span]] = defaultdict(dict)
    for span in spans:
        if str(span.attributes.get("gen_ai.operation.name")) in MODEL_OPERATIONS:
            calls[span.trace_id][span.span_id] = span
    return [_with_span(record, calls) for record in logs]


def _is_content(record: LogRecord) -> bool:
    return record.event_name in EVENT_ROLES or record.event_name == DETAILS_EVENT


def _with_span(record: LogRecord, calls: Mapping[str, Mapping[str, Span]]) -> LogRecord:
    """A record on its trace's only model call, or the only one running at its time."""
    if record.span_id or not _is_content(record):
        return record
    candidates = [*calls.get(record.trace_id, {}).values()]
    time_ns = record.time_ns or record.observed_ns
    running = [span for span in candidates if span.start_ns <= time_ns <= span.end_ns]
    chosen = candidates if len(candidates) == 1 else running
    return replace(record, span_id=chosen[0].span_id) if len(chosen) == 1 else record


DIALECT = Dialect(
    name="genai-events",
    title="OpenTelemetry GenAI instrumentations until 1.36",
    precedence=290,
    read=read,
    keys=("gen_ai.system",),
    events=(*EVENT_ROLES, *_PAIR),
    claims=claims,
    attach_logs=attach_logs,
    switch=SWITCH,
)
