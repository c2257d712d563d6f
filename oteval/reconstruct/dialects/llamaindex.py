"""LlamaIndex's workflow agents under OpenLLMetry: steps of a workflow, none of them a model call.

Source: ``opentelemetry-instrumentation-llamaindex``. An agent's run is a span
``<class>.workflow`` whose steps are ``task`` spans with the event that each step returned: the
messages for the model (``input``), a tool's result (``tool_output``), the answer (``result``). The
step that asks the model has nothing. So a model call is put together from the last step that made
its messages, and from the tools' steps or the answer that come before the next one. Where the
model's client is instrumented too, its own spans are the model calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ...messages.reader import from_messages
from ...messages.values import hidden, parse
from ...model import LogRecord, Message, Span
from ..dialect import Dialect, Logs
from ..operations import ModelCall, Operation, ToolRun, Wrapper
from ..readers.spans import attribute_gaps, is_whole, model_failure, not_captured
from ..tool_spans import tool_run
from ..tree import order

__all__ = ["DIALECT"]

SWITCH = "set TRACELOOP_TRACE_CONTENT=true"
SCOPE = "opentelemetry.instrumentation.llamaindex"
KIND, OUTPUT = "traceloop.span.kind", "traceloop.entity.output"
_CALL = "oteval.llamaindex.call"
_MODEL_KEYS = ("gen_ai.request.model", "llm.request.type")


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Return whether the span is a step of a LlamaIndex workflow."""
    return span.scope == SCOPE and span.attributes.get(KIND) == "task"


def read(span: Span, logs: Logs) -> Operation:
    """Return a tool's run, the model call that a log record adds to the step, or a wrapper."""
    hung = next((record.body for record in logs if record.event_name == _CALL), None)
    if isinstance(hung, Mapping):
        return _model_call(span, hung)
    event = _event(span)
    return _tool(span, event) if "tool_output" in event else Wrapper(span)


def _event(span: Span) -> Mapping[str, Any]:
    """Return the event that a step returned."""
    value = span.attributes.get(OUTPUT)
    found = None if hidden(value) else parse(value).value
    return found if isinstance(found, Mapping) else {}


def _tool(span: Span, event: Mapping[str, Any]) -> ToolRun:
    output = event["tool_output"]
    output = output if isinstance(output, Mapping) else {"raw_output": output}
    text = _text(output.get("blocks"))
    return tool_run(
        span,
        name=str(event.get("tool_name") or span.attributes.get("tool.name") or span.name),
        call_id=event.get("tool_id"),
        arguments=event.get("tool_kwargs"),
        result=output.get("raw_output") if text is None else text,
        # False is written of each tool that did not raise, whatever it returned.
        failed=True if output.get("is_error") is True else None,
        gaps=attribute_gaps(span, (OUTPUT,), SWITCH),
    )


def _text(blocks: Any) -> str | None:
    items = blocks if isinstance(blocks, list) else []
    texts = [item["text"] for item in items if isinstance(item, Mapping) and "text" in item]
    return "\n".join(map(str, texts)) if texts else None


def _model_call(span: Span, hung: Mapping[str, Any]) -> ModelCall:
    gaps = attribute_gaps(span, (OUTPUT,), SWITCH) + model_failure(span)
    sent = _messages(hung.get("sent"), span)
    received = _messages(hung.get("received"), span)
    gaps += not_captured(span, {"the model's answer": received}, SWITCH, gaps)
    return ModelCall(
        span,
        input=tuple(sent),
        output=tuple(received),
        whole=is_whole(gaps),
        gaps=tuple(gaps),
    )


def _messages(items: Any, span: Span) -> list[Message]:
    found = items if isinstance(items, list) else []
    return from_messages([_message(item) for item in found if isinstance(item, Mapping)], span)


def _message(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return one of LlamaIndex's messages in OpenAI's form."""
    extra = item.get("additional_kwargs")
    extra = extra if isinstance(extra, Mapping) else {}
    blocks = [block for block in item.get("blocks") or () if isinstance(block, Mapping)]
    calls = extra.get("tool_calls") or [_call(b) for b in blocks if b.get("tool_name")]
    others = [block for block in blocks if "text" not in block and not block.get("tool_name")]
    text = item.get("content") if not blocks else _text(blocks)
    return {
        "role": item.get("role"),
        "content": [*([{"type": "text", "text": text}] if text else []), *map(_part, others)],
        "tool_calls": calls,
        "tool_call_id": extra.get("tool_call_id"),
    }


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": block.get("tool_call_id") or block.get("tool_id"),
        "name": block["tool_name"],
        "arguments": block.get("tool_kwargs"),
    }


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": str(block.get("block_type") or "unknown"), **block}


def attach_logs(spans: Sequence[Span], logs: Logs) -> Logs:
    """Return the log records, and one with the messages of each model call for its step.

    Args:
        spans: All spans.
        logs: All log records.
    """
    steps = [span for span in spans if claims(span, ())]
    if not steps:
        return logs
    asked = {span.trace_id for span in spans if any(key in span.attributes for key in _MODEL_KEYS)}
    siblings: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in sorted(steps, key=order):
        if span.trace_id not in asked:
            siblings[span.trace_id, span.parent_id].append(span)
    return [*logs, *(record for family in siblings.values() for record in _calls_of(family))]


def _calls_of(family: Sequence[Span]) -> list[LogRecord]:
    """Return a record for each model call among the steps of one workflow."""
    found: list[LogRecord] = []
    known: list[Any] | None = None
    for number, (step, event) in enumerate(pairs := [(span, _event(span)) for span in family]):
        following = pairs[number + 1 :]
        if not isinstance(event.get("input"), list) or _is_set_up_again(following):
            continue
        # The results of a run's tools are kept apart: each call begins with the same messages.
        is_same = event["input"] == known
        known = event["input"]
        body = {"sent": [] if is_same else known, "received": _answer(following)}
        found.append(
            LogRecord(
                step.trace_id,
                step.span_id,
                step.start_ns,
                event_name=_CALL,
                body=body,
            )
        )
    return found


def _is_set_up_again(following: Sequence[tuple[Span, Mapping[str, Any]]]) -> bool:
    """Return whether the very next step makes the messages anew: with the system prompt."""
    return bool(following) and isinstance(following[0][1].get("input"), list)


def _answer(following: Sequence[tuple[Span, Mapping[str, Any]]]) -> list[Any]:
    """Return the model's answer: the calls of the tools that ran, or the final response."""
    calls: list[Any] = []
    for _, event in following:
        if isinstance(event.get("input"), list):
            break
        if "tool_output" in event:
            calls.append(_call({"tool_call_id": event.get("tool_id"), **event}))
        result = event.get("result")
        response = result.get("response") if isinstance(result, Mapping) else None
        if isinstance(response, Mapping) and not calls:
            return [response]
    return [{"role": "assistant", "additional_kwargs": {"tool_calls": calls}}] if calls else []


DIALECT = Dialect(
    name="llamaindex",
    title="LlamaIndex with OpenLLMetry",
    precedence=260,
    read=read,
    scopes=(SCOPE,),
    claims=claims,
    attach_logs=attach_logs,
)
