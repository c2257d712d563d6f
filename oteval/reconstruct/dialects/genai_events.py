"""OpenTelemetry GenAI until 1.36: one event per message, in log records or span events.

Convention: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-events/ at 1.36. The body of
``gen_ai.{system,user,assistant,tool}.message`` and ``gen_ai.choice`` is a structured value; of
span events, it is the event's attributes, or the JSON text in ``gen_ai.event.content`` (Azure AI).
Before 1.27, a span had two events: ``gen_ai.content.prompt`` and ``gen_ai.content.completion``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ... import semconv
from ...messages.forms import role_of
from ...messages.reader import EVENT_ROLES, from_event, from_messages, join_neighbours
from ...messages.values import parse, parse_arguments, text_of
from ...model import LogRecord, Message, Span
from ..dialect import Dialect, Logs
from ..gaps import gap
from ..operations import AgentRun, ModelCall, Operation, ToolRun, Wrapper
from ..readers.spans import (
    attribute_gaps,
    integer,
    is_whole,
    model_failure,
    usage,
)
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
    "COMPLETION",
    "CONTENT",
    "DIALECT",
    "PROMPT",
    "Emitted",
    "emitted",
    "emitted_in",
    "model_call",
    "prompt_and_completion",
    "split",
]

SWITCH = (
    "set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true and load the log records "
    "beside the spans"
)
CONTENT = "gen_ai.event.content"
PROMPT, COMPLETION = "gen_ai.content.prompt", "gen_ai.content.completion"
# The key of each one's content; some emitters write that alone, or the name of the event as a key.
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
# An attribute in which instrumentations of Google's client write the events.
_EVENTS = "events"
_EVENT_NAMES = ("event.name", "event_name", "name")
# How a prompt that is text names who says each part.
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
    """Return the span's message events, in record order and ``gen_ai.message.index``."""
    records = [record for record in logs if record.event_name in EVENT_ROLES]
    records.sort(key=lambda r: (r.time_ns or r.observed_ns, _index(r.attributes), r.seq))
    found = [Emitted(record.event_name, _body(record)) for record in records]
    found += [
        Emitted(event.name, event.attributes.get(CONTENT, event.attributes))
        for event in span.events
        if event.name in EVENT_ROLES
    ]
    return found or emitted_in(parse(span.attributes.get(_EVENTS)).value)


def emitted_in(items: Any) -> list[Emitted]:
    """Return the message events of a parsed list, as an attribute may hold them.

    Some emitters leave out the names of events; the body of a choice has another form than those of
    messages.
    """
    found = [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
    named = [Emitted(_event_name(item), item.get("body", item)) for item in found]
    return [event for event in named if event.name in EVENT_ROLES]


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
    """Return a record's body; without one, its attributes hold the message."""
    if record.body is not None and record.body != "":
        return record.body
    return record.attributes.get(CONTENT, record.attributes)


def _index(attributes: Mapping[str, Any]) -> int:
    return integer(attributes.get("gen_ai.message.index"))


def claims(span: Span, logs: Logs) -> bool:
    """Return whether the span names a provider the old way, or has message events."""
    if INPUT in span.attributes or OUTPUT in span.attributes:
        return False
    if any(record.event_name in EVENT_ROLES for record in logs):
        return True
    if any(event.name in EVENT_ROLES or event.name in _PAIR for event in span.events):
        return True
    is_known = "gen_ai.system" in span.attributes and "gen_ai.provider.name" not in span.attributes
    return is_known and not was_translated(span, logs)


def read(span: Span, logs: Logs) -> Operation:
    """Return the span's operation, by its operation name, its events or its model."""
    operation = str(span.attributes.get("gen_ai.operation.name") or "")
    if operation == "execute_tool":
        tool = read_tool(span, SWITCH)
        return tool if tool.arguments is not None else _tool_of_events(tool, span, logs)
    if operation == "invoke_agent":
        return _agent(span, logs)
    if operation in MODEL_OPERATIONS or (not operation and _asks_model(span, logs)):
        pair = prompt_and_completion(span)
        call = model_call(span, emitted(span, logs), SWITCH)
        return call if pair is None or call.input or call.output else _with_messages(call, *pair)
    return Wrapper(span)


def _asks_model(span: Span, logs: Logs) -> bool:
    """Return whether a span without an operation is a model call: a provider's name is not enough.

    Frameworks name the provider on every span of a run.
    """
    if emitted(span, logs) or any(event.name in _PAIR for event in span.events):
        return True
    if all(semconv.first(span.attributes, keys) for keys in _PAIR_KEYS.values()):
        return True
    return not span.attributes.keys().isdisjoint(_MODEL_KEYS)


def prompt_and_completion(span: Span) -> tuple[list[Message], list[Message]] | None:
    """Return the messages in the two old events of a model call, or None without such an event.

    Some emitters write the same as attributes.
    """
    is_told = any(event.name in _PAIR for event in span.events)
    if not is_told and not any(
        semconv.first(span.attributes, keys) for keys in _PAIR_KEYS.values()
    ):
        return None
    found = {name: _old_content(span, name) for name in _PAIR}
    received = from_messages(found[COMPLETION], span, "assistant")
    return _prompt(found[PROMPT], span), received


def _old_content(span: Span, name: str) -> Any:
    """Return the value of one of the two old events: JSON messages, or text."""
    key = _PAIR[name]
    values = [event.attributes.get(key) for event in span.events if event.name == name]
    values = values or [semconv.first(span.attributes, _PAIR_KEYS[name])]
    value = parse(values[0]).value if values else None
    if isinstance(value, str) and value.lstrip().startswith("["):
        return []  # the format of Semantic Kernel for .NET is not JSON
    return value


def _prompt(value: Any, span: Span) -> list[Message]:
    """Return a prompt's messages; text may have a line for each, with the role in front."""
    pieces = _SPEAKER.split(value) if isinstance(value, str) else []
    if len(pieces) < 3 or pieces[0].strip():
        return from_messages(value, span)
    pair = zip(pieces[1::2], pieces[2::2], strict=True)
    return from_messages([{"role": role, "content": text.strip()} for role, text in pair], span)


def _with_messages(
    call: ModelCall, sent: Sequence[Message], received: Sequence[Message]
) -> ModelCall:
    """Return a model call with the messages of the two old events."""
    gaps = [gap for gap in call.gaps if gap.code != "content_not_captured"]
    missing = [key for key, pair in ((PROMPT, sent), (COMPLETION, received)) if not pair]
    gaps += [
        gap("content_unreadable", call.span.span_id, key=key, reason="it holds no messages")
        for key in missing
    ]
    return replace(
        call,
        input=tuple(sent),
        output=tuple(received[:1]),
        whole=is_whole(gaps),
        gaps=tuple(gaps),
    )


def _tool_of_events(tool: ToolRun, span: Span, logs: Logs) -> ToolRun:
    """Return a tool run whose arguments and result are in its events."""
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


def model_call(span: Span, events: list[Emitted], switch: str) -> ModelCall:
    """Return a model call whose messages are events.

    Args:
        span: The span.
        events: Its message events, in order.
        switch: The setting that makes the emitter write content, for the gap of a span without any.
    """
    gaps = attribute_gaps(span, (), switch) + model_failure(span)
    sent, received, others = split(span, events)
    if not sent and not received:
        gaps.append(gap("content_not_captured", span.span_id, switch=switch))
    return ModelCall(
        span,
        input=tuple(sent),
        output=tuple(received),
        choices=tuple(others),
        model=str(semconv.first(span.attributes, semconv.RESPONSE_MODEL) or ""),
        response_id=str(span.attributes.get("gen_ai.response.id") or ""),
        usage=usage(span.attributes),
        whole=is_whole(gaps),
        gaps=tuple(gaps),
    )


def split(span: Span, events: list[Emitted]) -> tuple[list[Message], list[Message], list[Message]]:
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
    return _without_repeated_results(join_neighbours(sent)), join_neighbours(received), others


def _without_repeated_results(messages: list[Message]) -> list[Message]:
    """Return messages with each result once: Bedrock's come as a tool's and as a user's event."""
    found: list[Message] = []
    places: dict[str, int] = {}
    for message in messages:
        if message.role != "tool":
            places.clear()
        elif message.tool_call_id in places:
            place = places[message.tool_call_id]
            known = found[place]
            if message.is_error:
                found[place] = replace(known, is_error=True, is_outcome_recorded=True)
            continue
        elif message.tool_call_id:
            places[message.tool_call_id] = len(found)
        found.append(message)
    return found


def attach_logs(spans: Sequence[Span], logs: Logs) -> Logs:
    """Return the log records; those without a span's id get that of their trace's model call.

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
    """Return a record on its trace's one model call, or on the only one that was running then."""
    if record.span_id or not _is_content(record):
        return record
    found = [*calls.get(record.trace_id, {}).values()]
    time_ns = record.time_ns or record.observed_ns
    running = [span for span in found if span.start_ns <= time_ns <= span.end_ns]
    chosen = found if len(found) == 1 else running
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
