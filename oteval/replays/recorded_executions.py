"""The recorded executions of tools in a session.

A tool's arguments come from the model's request, and its result is the text that the model
received, because the span of a tool often has them in another form. The span's own result is kept
as well: the tool returns it to the agent's code, which makes the text for the model from it. Spans
of `@oteval.tool` also have the types of values and exceptions. So do spans of plain functions that
were watched while they ran a tool. Executions that no model requested have the values of their
span.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..base.jsontext import canonical
from ..model import CONTENT_GAPS, THREAD, Message, RecordedToolCall, ToolCall
from ..reconstruct import ToolRun, TracedTrajectory
from ..record import TOOL_FUNCTION, TOOL_RAISED, TOOL_RETURNED
from .typed_answers import reported_error

__all__ = ["asked_executions", "executions_in", "executions_of"]

_OWN_SCOPE = "oteval"  # of the spans of `@oteval.tool`, and of plain functions


def executions_of(session: Sequence[TracedTrajectory]) -> list[RecordedToolCall]:
    """The calls of tools in a session, by their start.

    Args:
        session: The trajectories of the session with their runs.
    """
    runs = [tool for traced in session for run in traced.runs for tool in run.tool_runs]
    decorated = {
        tool.span.span_id for tool in runs if tool.span.scope == _OWN_SCOPE and not _function(tool)
    }
    by_span = {tool.span.span_id: tool for tool in runs}
    agents = _agent_tools(session)
    escaped = _escaped(session)
    executions: list[RecordedToolCall] = []
    placed: set[str] = set()
    for traced in session:
        for message, call, result in _asked(traced.trajectory.own_messages):
            if call.span_id in placed:
                continue
            placed.add(call.span_id)
            placed.discard("")
            execution = _requested(message, call, result, by_span.get(call.span_id), escaped)
            # A plain function is answered as a results: it may also act by itself.
            runs_agent = call.span_id in agents and not execution.function
            executions.append(replace(execution, runs_agent=runs_agent))
    executions += [_unasked(tool, escaped) for tool in runs if tool.span.span_id not in placed]
    results = [replace(e, is_decorated=e.span_id in decorated) for e in _once(executions)]
    return sorted(results, key=lambda execution: execution.start_ns)


def _once(calls: Sequence[RecordedToolCall]) -> Iterator[RecordedToolCall]:
    """Yield executions, without calls that have their result in a later run, as after an interrupt.

    The message that requests such a call is in the runs before and after.
    """
    answered = {
        (call.call_id, call.name)
        for call in calls
        if call.call_id and (call.result is not None or call.is_error)
    }
    for call in calls:
        has_result = call.result is not None or call.is_error
        if has_result or (call.call_id, call.name) not in answered:
            yield call


def executions_in(messages: Sequence[Message]) -> list[RecordedToolCall]:
    """The executions of tools that messages show; such executions have no times.

    Args:
        messages: The messages of a conversation.
    """
    return [
        _requested(message, call, result, None, {}) for message, call, result in _asked(messages)
    ]


def asked_executions(
    recorded: Sequence[RecordedToolCall], messages: Sequence[Message]
) -> list[RecordedToolCall]:
    """The executions that messages show, and that a recording of executions lacks.

    Args:
        recorded: The recorded executions.
        messages: The messages of a conversation.
    """
    ids = {call.call_id for call in recorded} - {""}
    without_id = Counter(_content_of(call) for call in recorded if not call.call_id)
    missing = []
    for call in executions_in(messages):
        if call.call_id in ids:
            continue
        if without_id[_content_of(call)]:
            without_id[_content_of(call)] -= 1
            continue
        missing.append(call)
    return missing


def _content_of(call: RecordedToolCall) -> tuple[str, str]:
    return call.name, canonical({} if call.arguments is None else call.arguments)


def _agent_tools(session: Sequence[TracedTrajectory]) -> set[str]:
    """The ids of the spans of tools that ran another agent."""
    tools = [run.parent_tool for traced in session for run in traced.runs]
    return {tool.span.span_id for tool in tools if tool is not None}


def _asked(messages: Sequence[Message]) -> Iterator[tuple[Message, ToolCall, Message | None]]:
    """Yield each call with the message that requests it and the message with its result."""
    for index, message in enumerate(messages):
        if not message.client_calls:
            continue
        results: list[Message] = []
        for later in messages[index + 1 :]:
            if later.tool_calls:
                break
            if later.role == "tool":
                results.append(later)
        for call in message.client_calls:
            yield message, call, _take_result(call, results)


def _take_result(call: ToolCall, results: list[Message]) -> Message | None:
    """Take the result of a call from the results of its message: by its id, else in order."""
    for index, result in enumerate(results):
        if result.tool_call_id == call.id or not (result.tool_call_id and call.id):
            return results.pop(index)
    return None


def _requested(
    message: Message,
    call: ToolCall,
    result: Message | None,
    run: ToolRun | None,
    escaped: Mapping[str, str],
) -> RecordedToolCall:
    span_result = run.result if run else None
    arguments = call.arguments
    if arguments is None and run is not None:
        arguments = run.arguments
    received = result.content if result and result.content is not None else span_result
    # Without a span, the call began after the message that requested it.
    return RecordedToolCall(
        name=call.name,
        arguments=arguments,
        result=received,
        own_result=_own_result(received, run),
        own_arguments=_own_arguments(arguments, run),
        is_error=_has_raised(result, run),
        call_id=call.id,
        start_ns=call.start_ns,
        end_ns=call.end_ns,
        trace_id=message.trace_id,
        span_id=call.span_id,
        **_span_fields(run, escaped),
    )


def _has_raised(result: Message | None, run: ToolRun | None) -> bool:
    """Whether a call failed by an exception, not by the text that its tool returned.

    If a result only reads like an error, the tool returned it, and returns it again.
    """
    if result is None:
        return run is not None and run.is_error
    return result.is_error and (result.is_outcome_recorded or run is None)


def _own_result(received: str | None, run: ToolRun | None) -> str | None:
    """The result of a tool's span, if it is whole and the model received another text."""
    if run is None or run.is_error or run.result == received:
        return None
    return None if any(gap.code in CONTENT_GAPS for gap in run.gaps) else run.result


def _own_arguments(arguments: Any, run: ToolRun | None) -> Any:
    """The arguments in a tool's span of oteval, if the model wrote others."""
    if run is None or run.span.scope != _OWN_SCOPE or run.arguments is None:
        return None
    is_same = canonical(run.arguments) == canonical({} if arguments is None else arguments)
    return None if is_same else run.arguments


def _unasked(tool: ToolRun, escaped: Mapping[str, str]) -> RecordedToolCall:
    span = tool.span
    return RecordedToolCall(
        name=tool.name,
        arguments=tool.arguments,
        result=tool.result,
        is_error=tool.is_error,
        call_id=tool.call_id,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        trace_id=span.trace_id,
        span_id=span.span_id,
        **_span_fields(tool, escaped),
    )


def _function(run: ToolRun) -> str:
    return str(run.span.attributes.get(TOOL_FUNCTION) or "")


def _escaped(session: Sequence[TracedTrajectory]) -> dict[str, str]:
    """The reported exceptions of tools that no model call followed, by their spans."""
    escaped: dict[str, str] = {}
    for traced in session:
        for run in traced.runs:
            last_ns = max((call.span.start_ns for call in run.model_calls), default=0)
            for tool in run.tool_runs:
                error = reported_error(tool.span) if tool.is_error else None
                if error is not None and last_ns < tool.span.end_ns:
                    escaped[tool.span.span_id] = error
    return escaped


def _span_fields(run: ToolRun | None, escaped: Mapping[str, str]) -> dict[str, Any]:
    """The fields that only the span of a tool has: its thread, its function, and typed values.

    A value or an exception is among them if the span has it whole and with its type.

    Args:
        run: The tool.
        escaped: The exceptions that no model has seen, by the spans of frameworks' tools.
    """
    if run is None:
        return {}
    attributes = run.span.attributes
    fields: dict[str, Any] = {
        "thread": str(attributes.get(THREAD) or ""),
        "function": _function(run),
    }
    if run.span.scope != _OWN_SCOPE:
        return {**fields, "raised": escaped.get(run.span.span_id)}
    if any(gap.code in CONTENT_GAPS for gap in run.gaps):
        return fields
    names = {"returned": TOOL_RETURNED, "raised": TOOL_RAISED}
    typed = {field: str(attributes[name]) for field, name in names.items() if name in attributes}
    return fields | typed
