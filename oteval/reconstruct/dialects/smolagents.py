"""smolagents, as OpenInference writes it (scope ``openinference.instrumentation.smolagents``).

Source: https://github.com/Arize-ai/openinference (``openinference-instrumentation-smolagents``) and
``memory.py`` of https://github.com/huggingface/smolagents. An agent's run is an AGENT (its class
and ``.run``), a step a CHAIN. Model calls show the framework's own memory: the calls of a step are
text of role ``tool-call`` (a Python repr), all their results one text of role ``tool-response``.
A tool's input is ``{"args": ..., "kwargs": ..., "sanitize_inputs_outputs": ...}``. A code agent's
model asks for no tools: it answers with code, and the tools that the code calls have spans.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...model import Message, Span, ToolCall
from ..content import from_messages, join_neighbours
from ..gaps import gap
from ..readings import AgentRun, ModelCall, Reading, ToolRun
from ..values import hidden, parse
from .base import Dialect, Logs
from .openinference import OPENINFERENCE

__all__ = ["SMOLAGENTS"]

SCOPE, PREFIX = "openinference.instrumentation.smolagents", "smolagents."
KIND = "openinference.span.kind"
INPUT, OUTPUT = "input.value", "output.value"
TASK, PARAMETERS = "smolagents.task", "tool.parameters"
NO_RESULT = (
    "OpenInference records results only of tools whose output_type is string, boolean, integer, "
    "number or object"
)
_CODE_TOOL = "python_interpreter"
_CALLING, _OBSERVED = "Calling tools:", "Observation:"
_CODE = re.compile(r"<code>|```(?:py|python)?\s|\ACode:|\A\s*\{\s*\"(?:thought|code)\"")
# What the framework puts behind an answer that ended at a stop sequence.
_END = re.compile(r"\s*(?:</code>|<end_code>)\s*\Z")
_CALL_ID = re.compile(r"\ACall id: [^\n]*\n")


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Return whether OpenInference's instrumentation of smolagents wrote the span."""
    if KIND not in span.attributes:
        return False
    return span.scope == SCOPE or any(key.startswith(PREFIX) for key in span.attributes)


def read(span: Span, logs: Logs) -> Reading:
    """Return what OpenInference's kind says, in smolagents' terms."""
    reading = OPENINFERENCE.read(span, logs)
    if isinstance(reading, ModelCall):
        return _model_call(reading)
    if isinstance(reading, ToolRun):
        return _tool(reading)
    return _agent(reading) if isinstance(reading, AgentRun) else reading


def _model_call(call: ModelCall) -> ModelCall:
    output = tuple(map(_ended, call.output))
    asks = any(message.tool_calls for message in output)
    writes_code = not asks and any(_CODE.search(message.content or "") for message in output)
    # The calls that the code makes are no part of the answer: it is open to the tools' spans.
    whole = call.whole and not writes_code
    return replace(call, input=tuple(_memory(call.input, call.span)), output=output, whole=whole)


def _ended(message: Message) -> Message:
    if message.role != "assistant" or message.content is None:
        return message
    return replace(message, content=_END.sub("", message.content))


def _memory(messages: Sequence[Message], span: Span) -> list[Message]:
    """Return the framework's memory, with its texts of calls and results as such."""
    found: list[Message] = []
    calls: tuple[ToolCall, ...] = ()
    for message in messages:
        if message.role == "tool-response":
            found += _results(message, calls)
            continue
        calls = ()
        if message.role == "tool-call":
            asked = _asked(message, span)
            calls = tuple(call for call in asked.tool_calls if call.name != _CODE_TOOL)
            # Code is shown in the answer before it.
            if not calls and asked.tool_calls:
                continue
            message = replace(asked, tool_calls=calls)
        found.append(_ended(message))
    return join_neighbours(found)


def _asked(message: Message, span: Span) -> Message:
    """Return the calls that a text tells, or the text where it tells none."""
    items = parse((message.content or "").strip().removeprefix(_CALLING)).value
    calls = [item for item in items if isinstance(item, Mapping)] if _is_list(items) else []
    (told,) = from_messages([{"role": "assistant", "tool_calls": calls}], span)
    return told if told.tool_calls else replace(message, role="assistant")


def _results(message: Message, calls: Sequence[ToolCall]) -> list[Message]:
    """Return the results that a text tells: of several calls, only that they are there."""
    if not calls:
        return [replace(message, role="user")]
    if len(calls) > 1:
        return [replace(message, role="tool", content=None, tool_call_id=c.id) for c in calls]
    text = _CALL_ID.sub("", message.content or "")
    result = text.removeprefix(_OBSERVED).removeprefix("\n")
    return [replace(message, role="tool", content=result, tool_call_id=calls[0].id)]


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _tool(tool: ToolRun) -> ToolRun:
    attributes = tool.span.attributes
    gaps = tool.gaps
    if tool.result is None and not gaps and OUTPUT not in attributes:
        gaps = (gap("content_not_captured", tool.span.span_id, switch=NO_RESULT),)
    names = parse(attributes.get(PARAMETERS)).value
    arguments = _arguments(tool.arguments, list(names) if isinstance(names, Mapping) else [])
    return replace(tool, arguments=arguments, gaps=gaps)


def _arguments(value: Any, names: Sequence[str]) -> Any:
    """Return a tool's arguments by name; those beyond the names known, as the list "args"."""
    if not isinstance(value, Mapping) or not {"args", "kwargs"} & set(value):
        return value
    positional, named = value.get("args"), value.get("kwargs")
    named = dict(named) if isinstance(named, Mapping) else {}
    positional = positional if isinstance(positional, list) else []
    if len(positional) == 1 and not named and isinstance(positional[0], Mapping):
        only = positional[0]
        if set(only) <= set(names):
            return dict(only)
    found = {**dict(zip(names, positional, strict=False)), **named}
    rest = positional[len(names) :]
    return {**found, "args": rest} if rest else found


def _agent(agent: AgentRun) -> AgentRun:
    attributes = agent.span.attributes
    asked = parse(attributes.get(INPUT)).value
    task = attributes.get(TASK) or (asked.get("task") if isinstance(asked, Mapping) else None)
    given = agent.input
    if isinstance(task, str) and task and not hidden(task):
        given = (Message("user", task, span_id=agent.span.span_id, trace_id=agent.span.trace_id),)
    return replace(agent, name=agent.name.removesuffix(".run"), input=given)


SMOLAGENTS = Dialect("smolagents", claims, read)
