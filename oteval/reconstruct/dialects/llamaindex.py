"""LlamaIndex's workflow agents with OpenLLMetry: workflow steps without model call spans.

Source: ``opentelemetry-instrumentation-llamaindex``. An agent's run is a span
``<class>.workflow`` whose steps are ``task`` spans with the event that each step returned: the
messages for the model (``input``), a tool's result (``tool_output``), the answer (``result``). The
step that calls the model has no content. So a model call is built from the last step that prepared
its messages, and from the tools' steps or the answer before the next model call. If the model's
client is instrumented too, its spans are the model calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ...messages import (
    ModelAnswer,
    ModelRequest,
    from_messages,
    list_of,
    mapping_of,
    returned_value,
)
from ...model import LogRecord, Span
from ..dialect import Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..readers.model_calls import call_gaps, model_call
from ..readers.spans import attribute_gaps, not_captured
from ..tool_spans import tool_run
from ..tree import order

__all__ = ["DIALECT"]

SWITCH = "set TRACELOOP_TRACE_CONTENT=true"
SCOPE = "opentelemetry.instrumentation.llamaindex"
KIND, OUTPUT = "traceloop.span.kind", "traceloop.entity.output"
_SIDES = ("sent", "received")
_CALL = "oteval.llamaindex.call"
_MODEL_KEYS = ("gen_ai.request.model", "llm.request.type")


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Whether the span is a step of a LlamaIndex workflow."""
    return span.scope == SCOPE and span.attributes.get(KIND) == "task"


def read(span: Span, logs: Logs) -> Operation:
    """A tool's run, the model call of a step's added log record, or a wrapper."""
    call_body = next((record.body for record in logs if record.event_name == _CALL), None)
    if isinstance(call_body, Mapping):
        return _model_call(span, call_body)
    event = _event(span)
    return _tool(span, event) if "tool_output" in event else Wrapper(span)


def _event(span: Span) -> Mapping[str, Any]:
    """The event that a step returned."""
    return mapping_of(span.attributes.get(OUTPUT))


def _tool(span: Span, event: Mapping[str, Any]) -> ToolRun:
    returned = returned_value(event["tool_output"], event["tool_output"])
    return tool_run(
        span,
        name=str(event.get("tool_name") or span.attributes.get("tool.name") or span.name),
        call_id=event.get("tool_id"),
        arguments=event.get("tool_kwargs"),
        result=returned.content,
        failed=returned.is_error,
        gaps=attribute_gaps(span, (OUTPUT,), SWITCH),
    )


def _model_call(span: Span, call_body: Mapping[str, Any]) -> ModelCall:
    gaps = call_gaps(span, (OUTPUT,), SWITCH)
    sent, received = (from_messages(list_of(call_body.get(side)), span) for side in _SIDES)
    gaps += not_captured(span, {"the model's answer": received}, SWITCH, gaps)
    return model_call(span, ModelRequest(sent), ModelAnswer(received), gaps)


def attach_logs(spans: Sequence[Span], logs: Logs) -> Logs:
    """The log records, with one more for each step that calls the model.

    Args:
        spans: All spans.
        logs: All log records.
    """
    steps = [span for span in spans if claims(span, ())]
    if not steps:
        return logs
    trace_ids = {
        span.trace_id for span in spans if any(key in span.attributes for key in _MODEL_KEYS)
    }
    siblings: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in sorted(steps, key=order):
        if span.trace_id not in trace_ids:
            siblings[span.trace_id, span.parent_id].append(span)
    return [*logs, *(record for family in siblings.values() for record in _calls_of(family))]


def _calls_of(family: Sequence[Span]) -> list[LogRecord]:
    """A record for each model call among the steps of one workflow."""
    records: list[LogRecord] = []
    last_input: list[Any] | None = None
    for number, (step, event) in enumerate(pairs := [(span, _event(span)) for span in family]):
        following = pairs[number + 1 :]
        if not isinstance(event.get("input"), list) or _is_set_up_again(following):
            continue
        # LlamaIndex keeps tool results separately, so each call begins with the same messages.
        is_same = event["input"] == last_input
        last_input = event["input"]
        body = {"sent": [] if is_same else last_input, "received": _answer(following)}
        records.append(
            LogRecord(
                step.trace_id,
                step.span_id,
                step.start_ns,
                event_name=_CALL,
                body=body,
            )
        )
    return records


def _is_set_up_again(following: Sequence[tuple[Span, Mapping[str, Any]]]) -> bool:
    """Whether the next step prepares the messages again, with the system prompt."""
    return bool(following) and isinstance(following[0][1].get("input"), list)


def _answer(following: Sequence[tuple[Span, Mapping[str, Any]]]) -> list[Any]:
    """The model's answer: the calls of the tools that ran, or the final response."""
    calls: list[Any] = []
    for _, event in following:
        if isinstance(event.get("input"), list):
            break
        if "tool_output" in event:
            identity = {"id": event.get("tool_id"), "name": event.get("tool_name")}
            calls.append({**identity, "arguments": event.get("tool_kwargs")})
        result = event.get("result")
        response = result.get("response") if isinstance(result, Mapping) else None
        if isinstance(response, Mapping) and not calls:
            return [response]
    return [{"role": "assistant", "tool_calls": calls}] if calls else []


DIALECT = Dialect(
    name="llamaindex",
    title="LlamaIndex with OpenLLMetry",
    precedence=260,
    read=read,
    scopes=(SCOPE,),
    claims=claims,
    attach_logs=attach_logs,
)
