"""The recorded model calls of a session: from recorded HTTP exchanges, or rebuilt from spans.

An exchange belongs to the model call whose span encloses it, or else to the call that ran at that
time with the same answer. One call may have several exchanges: attempts that failed, and the last
one. All of them are kept, since an agent makes them again.

A trace has the messages of each call, but seldom the whole request. An emitter may write only the
messages that are new since the last call; they are completed from the conversation. An answer that
was cut, redacted or not captured is unknown: a replay cannot return it to an agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..base.jsontext import loads
from ..messages import SYSTEM_ROLES
from ..model import (
    CONTENT_GAPS,
    Exchange,
    Message,
    RecordedModelCall,
    RecordedRequest,
    Span,
    Trajectory,
    semconv,
)
from ..reconstruct import ModelCall, TracedRun, error_text, recorded_call

__all__ = [
    "RebuiltCall",
    "ancestors",
    "call_name",
    "join_exchanges",
    "rebuilt_call",
    "wire_call",
]

# Attributes with options of a request, by the option's name in OpenAI's API.
_SETTINGS = {
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "max_tokens": "gen_ai.request.max_tokens",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
}
_PARAMETERS = "llm.invocation_parameters"  # OpenInference's: the options as JSON.
_STATUSES = ("http.response.status_code", "http.status_code", "error.type")


@dataclass(frozen=True, slots=True)
class RebuiltCall:
    """A model call of a trace.

    Attributes:
        call: The call.
        problem: Why its answer, or else its request, is unknown; "" if both are known.
    """

    call: RecordedModelCall
    problem: str = ""


def call_name(number: int, call: RecordedModelCall) -> str:
    """The name of a model call for people.

    Args:
        number: Its number in the recording, from 1.
        call: The call.
    """
    model = call.request.model or call.model
    details = [part for part in (model, call.span_id and f"span {call.span_id}") if part]
    return f"model call {number}" + (f" ({', '.join(details)})" if details else "")


def rebuilt_call(call: ModelCall, run: TracedRun, trajectory: Trajectory) -> RebuiltCall:
    """Rebuild a model call of a run.

    Args:
        call: The call.
        run: The run.
        trajectory: The run's trajectory.
    """
    span = call.span
    failed = span.is_error and not call.output
    answer = None if failed or not call.whole else _answer(call.output)
    messages = _request_messages(call, trajectory) if call.whole else ()
    recorded = RecordedModelCall(
        request=RecordedRequest(
            model=str(semconv.first(span.attributes, semconv.REQUEST_MODEL) or call.model),
            messages=messages,
            tools=call.tools or (run.agent.tools if run.agent else ()),
            settings=_settings(span.attributes),
        ),
        answer=answer,
        error=_error(span) if failed else "",
        status=_status(span) if failed else 0,
        choices=call.choices if answer else (),
        finish_reason=_finish_reason(span.attributes),
        model=call.model,
        response_id=call.response_id,
        usage=call.usage,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        trace_id=span.trace_id,
        span_id=span.span_id,
    )
    return RebuiltCall(recorded, _problem(call, recorded))


def _problem(call: ModelCall, recorded: RecordedModelCall) -> str:
    codes = sorted({gap.code for gap in call.gaps if gap.code in CONTENT_GAPS})
    why = f" ({', '.join(codes)})" if codes else ""
    if recorded.answer is None and not recorded.error:
        return f"the trace does not have its answer{why}, so that it cannot be replayed"
    if not recorded.request.messages:
        return f"the trace does not have its messages{why}, so that they are not compared"
    return ""


def _answer(output: Sequence[Message]) -> Message | None:
    """The answer in the messages of a call's output.

    Where the provider ran tools itself, the results between its messages are left out.
    """
    messages = [message for message in output if message.role == "assistant"]
    if len(messages) < 2:
        return messages[0] if messages else None
    ran = {message.tool_call_id for message in output if message.role == "tool"}
    calls = [
        call
        for message in messages
        for call in message.tool_calls
        if call.executed_by or call.id not in ran
    ]
    return replace(
        messages[-1],
        content="\n".join(message.content for message in messages if message.content) or None,
        tool_calls=tuple(calls),
        parts=tuple(part for message in messages for part in message.parts),
    )


def _request_messages(call: ModelCall, trajectory: Trajectory) -> tuple[Message, ...]:
    """The messages of a request, completed if the span has only the new messages."""
    spoken = [message for message in call.input if message.role not in SYSTEM_ROLES]
    if spoken and spoken[0].role == "user" and not call.is_delta:
        return call.input
    prompts = [message for message in call.input if message.role in SYSTEM_ROLES]
    trajectory_messages = trajectory.messages
    span_id = call.span.span_id
    answer_index = next(
        (
            index
            for index, message in enumerate(trajectory_messages)
            if message.role == "assistant" and message.span_id == span_id
        ),
        None,
    )
    if answer_index is None or answer_index < len(spoken):
        return call.input
    before = trajectory_messages[:answer_index]
    prompts = prompts or [message for message in before if message.role in SYSTEM_ROLES]
    return (*prompts, *(message for message in before if message.role not in SYSTEM_ROLES))


def _settings(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a request that a span has."""
    settings = {name: attributes[key] for name, key in _SETTINGS.items() if key in attributes}
    text = attributes.get(_PARAMETERS)
    if isinstance(text, str):
        try:
            parameters = loads(text)
        except ValueError:
            parameters = None
        if isinstance(parameters, dict):
            settings |= {k: v for k, v in parameters.items() if k in _SETTINGS and v is not None}
    return settings


def _finish_reason(attributes: Mapping[str, Any]) -> str:
    reasons = semconv.first(attributes, semconv.FINISH_REASONS)
    if isinstance(reasons, (list, tuple)):
        reasons = reasons[0] if reasons else ""
    return reasons if isinstance(reasons, str) else ""


def _error(span: Span) -> str:
    """The error of a failed call, with the name of its type in front."""
    text = error_text(span)
    kind = span.attributes.get("error.type")
    names = [kind, *(event.attributes.get("exception.type") for event in span.events)]
    name = next((name for name in names if isinstance(name, str) and name), "").rpartition(".")[2]
    return f"{name}: {text}" if name and not text.startswith(name) else text


def _status(span: Span) -> int:
    """The HTTP status of a failed call, or 0."""
    for key in _STATUSES:
        value = str(span.attributes.get(key) or "")
        if value.isdigit() and 400 <= int(value) < 600:
            return int(value)
    return 0


def wire_call(exchange: Exchange) -> RebuiltCall | None:
    """The model call in an exchange, or None if it contains none."""
    recorded = recorded_call(exchange)
    return None if recorded is None else RebuiltCall(*recorded)


def _distinct(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Sort exchanges by their start, each once: two exporters may have sent the same."""
    exchanges_by_content: dict[tuple[object, ...], Exchange] = {}
    for e in sorted(exchanges, key=lambda exchange: (exchange.start_ns, exchange.end_ns)):
        key = (e.trace_id, e.span_id, e.method, e.url, e.start_ns, e.request_body)
        exchanges_by_content.setdefault(key, e)
    return list(exchanges_by_content.values())


def join_exchanges(
    rebuilt: Sequence[RebuiltCall], exchanges: Sequence[Exchange], parents: Mapping[str, str]
) -> tuple[list[RebuiltCall], list[Exchange]]:
    """Join the model calls of a session with their exchanges, and list the other exchanges.

    Args:
        rebuilt: The model calls that were rebuilt from the spans.
        exchanges: The recorded exchanges of the session.
        parents: The id of each span's parent.
    """
    if not exchanges:
        return sorted(rebuilt, key=_start), []
    by_span = {call.call.span_id: call for call in rebuilt}
    wired: list[RebuiltCall] = []
    other_exchanges: list[Exchange] = []
    covered: set[int] = set()
    loose: list[RebuiltCall] = []
    for exchange in _distinct(exchanges):
        loose_call = wire_call(exchange)
        above = ancestors(exchange.span_id, parents)
        owner = next((by_span[span_id] for span_id in above if span_id in by_span), None)
        if owner is not None:
            covered.add(id(owner))
        if loose_call is None:
            other_exchanges.append(exchange)
            continue
        wired.append(loose_call)
        if owner is None:
            loose.append(loose_call)
    left = [call for call in rebuilt if id(call) not in covered]
    for loose_call in loose:
        same = _same_call(loose_call.call, left)
        if same is not None:
            left.remove(same)
    return sorted((*wired, *left), key=_start), other_exchanges


def _start(rebuilt: RebuiltCall) -> tuple[int, int]:
    return rebuilt.call.start_ns, rebuilt.call.end_ns


def ancestors(span_id: str, parents: Mapping[str, str]) -> Iterator[str]:
    """Yield a span and the spans above it, by their ids."""
    seen_ids: set[str] = set()
    while span_id and span_id not in seen_ids:
        yield span_id
        seen_ids.add(span_id)
        span_id = parents.get(span_id, "")


def _same_call(wire: RecordedModelCall, calls: Sequence[RebuiltCall]) -> RebuiltCall | None:
    """The call that ran around an exchange: a call with the same answer, or the only call."""
    around = [
        call
        for call in calls
        if call.call.start_ns <= wire.start_ns and wire.end_ns <= max(call.call.end_ns, wire.end_ns)
        if wire.start_ns <= (call.call.end_ns or wire.start_ns)
    ]
    answered = [call for call in around if _is_same_answer(call.call.answer, wire.answer)]
    if answered:
        return answered[0]
    unknown = [call for call in around if call.call.answer is None]
    return unknown[0] if len(unknown) == 1 else None


def _is_same_answer(message: Message | None, wire: Message | None) -> bool:
    if message is None or wire is None:
        return False
    if message.tool_calls or wire.tool_calls:
        return [call.id for call in message.tool_calls] == [call.id for call in wire.tool_calls]
    return (message.content or "").strip() == (wire.content or "").strip()
