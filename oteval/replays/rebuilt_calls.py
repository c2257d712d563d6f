"""Recorded model calls, rebuilt from the spans of a trace.

A trace has the messages of each call, but seldom the whole request. An emitter may write only the
messages that are new since the last call; they are completed from the conversation. An answer that
was cut, redacted or not captured is unknown: it cannot be given back to an agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..base.jsontext import loads
from ..messages import SYSTEM_ROLES
from ..model import (
    CONTENT_GAPS,
    Message,
    RecordedModelCall,
    RecordedRequest,
    Span,
    Trajectory,
    semconv,
)
from ..reconstruct import ModelCall, TracedRun, error_text

__all__ = ["RebuiltCall", "call_name", "rebuilt_call"]

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
    """The messages of a request, completed where the span has only the new ones."""
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
            settings.update(
                {k: v for k, v in parameters.items() if k in _SETTINGS and v is not None}
            )
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
