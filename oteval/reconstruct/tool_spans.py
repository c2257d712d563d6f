"""The execution of a tool as its span records it, with the same evidence from all dialects.

A dialect names the attributes. This module and `oteval.messages.call_outcome` decide whether the
call failed, and choose the text of a failed call without a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..messages import content_of, hidden, outcome_of, parse_arguments, text_of
from ..model import Gap, Message, Span
from .dialect import AgentRun, ToolRun
from .gaps import gap
from .readers.spans import attribute_gaps, error_text

__all__ = ["failure_of", "result_message", "tool_of_attributes", "tool_run"]

# Exceptions that frameworks raise to leave a tool without a failure: it waits for a person or for
# another process, or hands over.
_CONTROL_FLOW = frozenset(
    {
        *("ApprovalRequired", "CallDeferred", "GraphBubbleUp", "GraphInterrupt", "NodeInterrupt"),
        "ParentCommand",
    }
)
_NO_TYPE = ("", "null", "None")
_AS_RECORDED: Any = object()


def tool_of_attributes(
    span: Span,
    keys: tuple[str, ...],
    switch: str,
    *,
    name: object = None,
    call_id: object = None,
    arguments: Any = _AS_RECORDED,
    result: Any = _AS_RECORDED,
    failed: bool | None = None,
    reason: str = "",
) -> ToolRun:
    """The execution of a tool whose arguments and result are in attributes of its span.

    Args:
        span: The tool's span.
        keys: The attribute with the arguments, then the attributes that may contain the result.
        switch: The setting that makes the emitter write content.
        name: The tool's name, if an attribute of the dialect's own has it.
        call_id: The provider's call id, if it is not in its usual attribute.
        arguments: The parsed arguments, if they are not the attribute's value.
        result: The result, if it is not the attribute's value.
        failed: As for `tool_run`.
        reason: As for `tool_run`.
    """
    attributes = span.attributes
    gaps = attribute_gaps(span, keys, switch)
    if attributes.keys().isdisjoint(keys):
        gaps.append(gap("content_not_captured", span.span_id, switch=switch))
    if arguments is _AS_RECORDED:
        recorded = attributes.get(keys[0])
        arguments = None if recorded is None else parse_arguments(recorded)
    if result is _AS_RECORDED:
        result = next((attributes[key] for key in keys[1:] if key in attributes), None)
    tool_name = (
        name or attributes.get("gen_ai.tool.name") or span.name.removeprefix("execute_tool ")
    )
    return tool_run(
        span,
        name=str(tool_name),
        call_id=call_id or attributes.get("gen_ai.tool.call.id"),
        arguments=arguments,
        result=result,
        failed=failed,
        reason=reason,
        gaps=gaps,
    )


def tool_run(
    span: Span,
    *,
    name: str,
    call_id: object = "",
    arguments: Any = None,
    result: Any = None,
    failed: bool | None = None,
    reason: str = "",
    gaps: Sequence[Gap] = (),
    agent: AgentRun | None = None,
) -> ToolRun:
    """The execution of a tool.

    Args:
        span: The tool's span.
        name: The tool's name.
        call_id: The provider's call id; anything false if the span has none.
        arguments: The parsed arguments; None if the span lacks them.
        result: The result, as text or any other value; None or a placeholder if it is missing.
        failed: Whether one of the dialect's own fields reports that the call failed; None if none
            reports anything. The fields that all dialects share are checked anyway.
        reason: Why it failed, if another field than the span's usual ones has the reason.
        gaps: The gaps found in it.
        agent: The agent that the tool starts, if that has no span, or None.
    """
    content, flag = content_of(None if hidden(result) else result)
    failed = flag if failed is None else failed
    is_error = bool(failed) or failure_of(span)
    text = text_of(content)
    if text is None and is_error:
        text = f"Error: {reason or error_text(span)}"
    return ToolRun(
        span,
        name=name,
        call_id=str(call_id or ""),
        arguments=arguments,
        result=text,
        is_error=is_error,
        is_outcome_recorded=is_error or failed is not None,
        gaps=tuple(gaps),
        agent=agent,
    )


def failure_of(span: Span) -> bool:
    """Whether a tool's span records that the call failed.

    The status, an exception event and ``error.type`` each suffice, because instrumentations leave
    the status unset if the framework handles the exception.
    """
    raised = [event.attributes for event in span.events if event.name == "exception"]
    kinds = [_last_name(attributes.get("exception.type")) for attributes in raised]
    error_class = _last_name(span.attributes.get("error.type"))
    if not (span.is_error or kinds or error_class not in _NO_TYPE):
        return False
    return _CONTROL_FLOW.isdisjoint((*kinds, error_class, span.status_message.partition("(")[0]))


def _last_name(value: object) -> str:
    return "" if value is None else str(value).rpartition(".")[2]


def result_message(run: ToolRun, message: Message | None = None, *, call_id: str = "") -> Message:
    """The message of a call's result, completed from its tool's span.

    Args:
        run: The tool run.
        message: The message that a model call has of it, whose content and flag take precedence;
            None if only the span contains the result.
        call_id: The id of the call, if the message that requests it names one.
    """
    message = message or Message("tool", name=run.name)
    is_error, is_recorded = run.is_error, run.is_outcome_recorded
    if not is_recorded and run.result is not None and message.content not in (None, run.result):
        # The model received another text than the tool returned.
        outcome = outcome_of(run.result)
        is_error, is_recorded = bool(outcome.failed), outcome.failed is False
    if message.is_error and (message.is_outcome_recorded or not is_recorded):
        is_error = True
    return Message(
        message.role,
        run.result if message.content is None else message.content,
        message.tool_calls,
        tool_call_id=call_id or message.tool_call_id or run.call_id,
        name=message.name,
        is_error=is_error,
        parts=message.parts,
        span_id=run.span.span_id,
        trace_id=run.span.trace_id,
        is_outcome_recorded=is_recorded or message.is_outcome_recorded,
    )
