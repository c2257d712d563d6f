"""smolagents, as OpenInference writes it (scope ``openinference.instrumentation.smolagents``).

Source: https://github.com/Arize-ai/openinference (``openinference-instrumentation-smolagents``) and
``memory.py`` of https://github.com/huggingface/smolagents. An agent's run is an AGENT (its class
and ``.run``), a step a CHAIN. Model calls contain the framework's memory: a step's calls are text
of role ``tool-call`` (a Python repr), and all their results one text of role ``tool-response``. A
tool's input is ``{"args": ..., "kwargs": ..., "sanitize_inputs_outputs": ...}``. A code agent's
model does not request tools: it answers with code, and the tools that the code calls have spans.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...messages import (
    from_messages,
    join_neighbours,
    mapping_of,
    mappings_of,
    parse,
    parse_arguments,
    text_message,
)
from ...model import Gap, Message, Span, ToolCall
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun
from ..gaps import gap
from . import openinference
from .openinference import SWITCH

__all__ = ["DIALECT"]

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
# The framework appends it to an answer that ended at a stop sequence.
_END = re.compile(r"\s*(?:</code>|<end_code>)\s*\Z")
_ERROR = "Error:"
_FAILED_CALL = re.compile(
    r"Error executing (?:tool|request to team member) '|Unknown tool |Argument "
)
_CALL_ID = re.compile(r"\ACall id: [^\n]*\n")


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Whether OpenInference's instrumentation of smolagents wrote the span."""
    return KIND in span.attributes


def read(span: Span, logs: Logs) -> Operation:
    """The operation that OpenInference's kind names, in smolagents' terms."""
    operation = openinference.read(span, logs)
    if isinstance(operation, ModelCall):
        return _model_call(operation)
    if isinstance(operation, ToolRun):
        return _tool(operation)
    return _agent(operation) if isinstance(operation, AgentRun) else operation


def _model_call(call: ModelCall) -> ModelCall:
    output = tuple(_with_written_call(_ended(message)) for message in call.output)
    asks = any(message.tool_calls for message in output)
    writes_code = not asks and any(_CODE.search(message.content or "") for message in output)
    # The answer does not contain the calls that its code makes: the tools' spans add them.
    cut = _cut_texts([*call.input, *output], call.span)
    return replace(
        call,
        input=tuple(_memory(call.input, call.span)),
        output=tuple(message for message in output if not _is_empty(message)),
        whole=call.whole and not writes_code and not cut,
        gaps=(*call.gaps, *cut),
    )


def _is_empty(message: Message) -> bool:
    """Whether only the role of an answer was recorded."""
    return not (message.content or message.tool_calls or message.parts)


def _cut_texts(messages: Sequence[Message], span: Span) -> list[Gap]:
    """The gap of texts that describe calls and were cut."""
    if any(map(_is_cut, messages)):
        return [gap("content_truncated", span.span_id, key="a text that describes calls")]
    return []


def _is_cut(message: Message) -> bool:
    text = (message.content or "").strip()
    if message.role == "tool-call":
        items = text.removeprefix(_CALLING).strip()
        return items.startswith("[{") and not isinstance(parse(items).value, list)
    start = text.find("{")
    is_call = message.role == "assistant" and start >= 0 and not message.tool_calls
    return is_call and '"name"' in text and parse(text[start:]).truncated


def _with_written_call(message: Message) -> Message:
    """An answer with the call in its text; models without tools write such answers."""
    text = message.content or ""
    blob = text[text.find("{") : text.rfind("}") + 1]
    if message.tool_calls or not blob:
        return message
    fields = parse(blob).value
    if not isinstance(fields, Mapping) or not {"name", "arguments"} <= set(fields):
        return message
    call = ToolCall(str(fields["name"]), parse_arguments(fields["arguments"]))
    return replace(message, tool_calls=(call,))


def _ended(message: Message) -> Message:
    if message.role != "assistant" or message.content is None:
        return message
    return replace(message, content=_END.sub("", message.content))


def _memory(messages: Sequence[Message], span: Span) -> list[Message]:
    """The framework's memory, with its texts parsed into calls and results."""
    memory: list[Message] = []
    calls: tuple[ToolCall, ...] = ()
    for message in messages:
        if message.role == "tool-response":
            memory += _results(message, calls, memory)
            calls = ()
            continue
        calls = ()
        if message.role == "tool-call":
            call_message = _call_message(message, span)
            calls = tuple(call for call in call_message.tool_calls if call.name != _CODE_TOOL)
            # The answer before it already shows the code.
            if not calls and call_message.tool_calls:
                continue
            message = replace(call_message, tool_calls=calls)
        memory.append(_ended(message))
    return join_neighbours(memory)


def _call_message(message: Message, span: Span) -> Message:
    """The calls that a text describes, or the text if it describes none."""
    calls = mappings_of(parse((message.content or "").strip().removeprefix(_CALLING)).value)
    (parsed,) = from_messages([{"role": "assistant", "tool_calls": calls}], span)
    return parsed if parsed.tool_calls else replace(message, role="assistant")


def _results(
    message: Message, calls: Sequence[ToolCall], before: Sequence[Message]
) -> list[Message]:
    """The results in a text, which cannot be split if there are several calls."""
    text = _CALL_ID.sub("", message.content or "")
    if not calls and _shows_failed_call(text, before):
        return [replace(message, role="tool", content=text)]
    if not calls:
        return [replace(message, role="user")]
    if len(calls) > 1:
        return [replace(message, role="tool", content=None, tool_call_id=c.id) for c in calls]
    result = text.removeprefix(_OBSERVED).removeprefix("\n")
    return [replace(message, role="tool", content=result, tool_call_id=calls[0].id)]


def _shows_failed_call(text: str, before: Sequence[Message]) -> bool:
    """Whether an error belongs to calls that the framework's memory dropped.

    A text that is not a call at all fails too, but stays in the memory.
    """
    if not text.startswith(_ERROR):
        return False
    is_answered = bool(before) and before[-1].role == "assistant"
    return not is_answered or _FAILED_CALL.search(text) is not None


def _tool(tool: ToolRun) -> ToolRun:
    attributes = tool.span.attributes
    gaps = tool.gaps
    if tool.result is None and not gaps and OUTPUT not in attributes:
        gaps = (gap("content_not_captured", tool.span.span_id, switch=NO_RESULT),)
    arguments = _arguments(tool.arguments, list(mapping_of(attributes.get(PARAMETERS))))
    return replace(tool, arguments=arguments, gaps=gaps)


def _arguments(value: Any, names: Sequence[str]) -> Any:
    """A tool's arguments by name, with unnamed arguments in the list "args"."""
    if not isinstance(value, Mapping) or not {"args", "kwargs"} & set(value):
        return value
    positional, keywords = value.get("args"), value.get("kwargs")
    keywords = dict(keywords) if isinstance(keywords, Mapping) else {}
    positional = positional if isinstance(positional, list) else []
    if len(positional) == 1 and not keywords and isinstance(positional[0], Mapping):
        only = positional[0]
        if set(only) <= set(names):
            return dict(only)
    arguments = {**dict(zip(names, positional, strict=False)), **keywords}
    surplus = positional[len(names) :]
    return {**arguments, "args": surplus} if surplus else arguments


def _agent(agent: AgentRun) -> AgentRun:
    attributes = agent.span.attributes
    # The attribute belongs to the agent object: a later run may still have the first run's task.
    task = mapping_of(attributes.get(INPUT)).get("task") or attributes.get(TASK)
    question = text_message(task, agent.span, "user") or agent.input
    return replace(agent, name=agent.name.removesuffix(".run"), input=question)


DIALECT = Dialect(
    name="smolagents",
    title="smolagents",
    precedence=80,
    read=read,
    scopes=(SCOPE,),
    keys=(f"{PREFIX}*",),
    claims=claims,
    switch=SWITCH,
)
