"""CrewAI: OpenInference's spans of crews and tasks, and CrewAI's own spans and telemetry.

Source: https://github.com/Arize-ai/openinference (``openinference-instrumentation-crewai``). A
crew's kickoff is a CHAIN, a tool a TOOL. A task done by an agent is an AGENT
(``<role>._execute_core``), whose output contains all of the task's messages. Model calls are
written by the model client's instrumentation. CrewAI's telemetry (scope ``crewai.telemetry``) names
the crews and tools that were used, without content.

CrewAI's own spans since version 1.15 (scope ``crewai``) follow the current GenAI conventions. The
spans of a crew's kickoff and its tasks only group; each agent's execution is a run. In the history
of a model call, calls of earlier answers are Python reprs (``"'get_weather'"``). The schemas of the
tools are reprs too. A failed tool has a second span without duration, ``tool_failure_detected``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...messages import from_messages, parse, parse_arguments, text_message
from ...model import Message, Span, ToolCall
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from . import genai, openinference
from .openinference import SWITCH

__all__ = ["DIALECT", "EVENT", "NATIVE_SCOPE", "read_native"]

SCOPE, TELEMETRY = "openinference.instrumentation.crewai", "crewai.telemetry"
KIND = "openinference.span.kind"
NATIVE_SCOPE = "crewai"
EVENT = "crewai.event_name"
NATIVE_SWITCH = "set CREWAI_TRACING_ENABLED=true, and include content in the telemetry session"
_FAILURE = "tool_failure_detected"
TASK = "._execute_core"
MARKS = ("crew_key", "crew_id", "task_key", "task_id")

# Characters that a function's name must not contain; CrewAI renames the tool for the model.
_NO_FUNCTION_NAME = re.compile(r"[^A-Za-z0-9_.-]")


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Whether the span is a span of a crew, a task or a crew's tool."""
    if span.scope == TELEMETRY or _is_native(span):
        return True
    is_marked = span.scope == SCOPE or any(mark in span.attributes for mark in MARKS)
    return is_marked and KIND in span.attributes


def _is_native(span: Span) -> bool:
    return span.scope in (NATIVE_SCOPE, "") and EVENT in span.attributes


def read(span: Span, logs: Logs) -> Operation:
    """The operation that OpenInference's kind names, with CrewAI's additions."""
    if span.scope == TELEMETRY:
        return Wrapper(span)
    if _is_native(span):
        return read_native(span, logs)
    operation = openinference.read(span, logs)
    if isinstance(operation, AgentRun):
        return _agent(operation)
    if isinstance(operation, ToolRun):
        return _tool(operation)
    return operation


def _agent(agent: AgentRun) -> AgentRun:
    """An agent's run of one task, with the messages in the task's output."""
    span = agent.span
    agent = replace(agent, name=agent.name.strip().removesuffix(TASK))
    value, truncated = parse(span.attributes.get("output.value"))
    if not isinstance(value, Mapping):
        return agent
    messages = value.get("messages")
    if isinstance(messages, list) and not truncated:
        transcript = from_messages([m for m in messages if isinstance(m, Mapping)], span)
        if transcript:
            return replace(agent, transcript=tuple(transcript), transcript_new_from=0)
    question = text_message(value.get("description"), span, "user")
    answer = text_message(value.get("raw"), span, "assistant")
    return replace(agent, input=question or agent.input, output=answer or agent.output)


def _tool(tool: ToolRun) -> ToolRun:
    name, arguments = tool.name, tool.arguments
    if "tool.name" not in tool.span.attributes:
        name = name.removesuffix("._use").removesuffix(".run")
    if _NO_FUNCTION_NAME.search(name):
        name = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or name
    # Older versions write one span for the use of a tool, with the call inside.
    if isinstance(arguments, Mapping) and {"calling", "tool_string"} & set(arguments):
        arguments = _calling(arguments.get("calling"))
    return replace(tool, name=name, arguments=arguments)


def _calling(value: Any) -> Any:
    """The arguments of a parsed call, from its field or its repr."""
    calling = parse(value).value
    if isinstance(calling, Mapping):
        return parse_arguments(calling.get("arguments"))
    _, mark, text = str(calling or "").partition("arguments=")
    return parse_arguments(text) if mark else None


def read_native(span: Span, logs: Logs) -> Operation:
    """The span's operation, by its operation name."""
    operation = str(span.attributes.get("gen_ai.operation.name") or "")
    if span.attributes.get(EVENT) == _FAILURE:
        return Wrapper(span)
    if operation in genai.MODEL_OPERATIONS:
        return _model_call(span, logs)
    if operation == "execute_tool":
        return genai.read_tool(span, NATIVE_SWITCH)
    if operation == "invoke_agent":
        return _native_agent(span, logs)
    return Wrapper(span)


def _native_agent(span: Span, logs: Logs) -> AgentRun:
    """An agent's run, named by its role; the recorded name is a hash."""
    agent = genai.read_agent(span, logs)
    role = span.attributes.get("crewai.agent.role")
    return replace(agent, name=role.strip()) if isinstance(role, str) and role else agent


def _model_call(span: Span, logs: Logs) -> ModelCall:
    call = genai.read_model_call(span, logs, NATIVE_SWITCH)
    return replace(
        call,
        input=tuple(_as_called(message) for message in call.input),
        output=tuple(_as_called(message) for message in call.output),
        tools=tuple(_plain(tool) for tool in call.tools),
    )


def _as_called(message: Message) -> Message:
    """A message whose calls are read from their reprs."""
    calls = tuple(_call(call) for call in message.tool_calls)
    return message if calls == message.tool_calls else replace(message, tool_calls=calls)


def _call(call: ToolCall) -> ToolCall:
    name, arguments = _unquoted(call.name), _unquoted(call.arguments)
    if isinstance(arguments, str) and arguments != call.arguments:
        arguments = parse_arguments(arguments)
    return replace(call, name=str(name), arguments=arguments)


def _unquoted(value: Any) -> Any:
    """The text of a repr of text; anything else unchanged."""
    if (
        not isinstance(value, str)
        or len(value) < 2
        or value[0] != value[-1]
        or value[0] not in "'\""
    ):
        return value
    try:
        literal = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value
    return literal if isinstance(literal, str) else value


def _plain(value: Any) -> Any:
    """A tool's definition with its reprs parsed, except the description."""
    if isinstance(value, Mapping):
        return {k: v if k == "description" else _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str) and value[:1] == "{":
        return parse(value).value
    return _unquoted(value)


DIALECT = Dialect(
    name="crewai",
    title="CrewAI",
    precedence=70,
    read=read,
    scopes=(SCOPE, TELEMETRY, NATIVE_SCOPE),
    keys=(*MARKS, EVENT),
    claims=claims,
    switch=SWITCH,
)
