"""CrewAI's own spans since version 1.15 (scope ``crewai``): the current GenAI conventions.

A crew's kickoff and its tasks only group; each agent's execution is a run. The history that a model
call was sent has the calls of earlier answers as Python reprs (``"'get_weather'"``), and so have
the schemas of the tools. A failed tool has a second span without length, ``tool_failure_detected``.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...model import Message, Span, ToolCall
from ..readings import AgentRun, ModelCall, Reading, Wrapper
from ..values import parse, parse_arguments
from . import genai
from .base import Logs

__all__ = ["EVENT", "SCOPE", "read_native"]

SCOPE = "crewai"
EVENT = "crewai.event_name"
SWITCH = "set CREWAI_TRACING_ENABLED=true, and include content in the telemetry session"
_FAILURE = "tool_failure_detected"


def read_native(span: Span, logs: Logs) -> Reading:
    """Return what the span's operation says it is."""
    operation = str(span.attributes.get("gen_ai.operation.name") or "")
    if span.attributes.get(EVENT) == _FAILURE:
        return Wrapper(span)
    if operation in genai.MODEL_OPERATIONS:
        return _model_call(span, logs)
    if operation == "execute_tool":
        return genai.read_tool(span, SWITCH)
    if operation == "invoke_agent":
        return _agent(span, logs)
    return Wrapper(span)


def _agent(span: Span, logs: Logs) -> AgentRun:
    """Return an agent's run; its name is a hash, its role is what people call it."""
    agent = genai.read_agent(span, logs)
    role = span.attributes.get("crewai.agent.role")
    return replace(agent, name=role.strip()) if isinstance(role, str) and role else agent


def _model_call(span: Span, logs: Logs) -> ModelCall:
    call = genai.read_model_call(span, logs, SWITCH)
    return replace(
        call,
        input=tuple(_as_called(message) for message in call.input),
        output=tuple(_as_called(message) for message in call.output),
        tools=tuple(_plain(tool) for tool in call.tools),
    )


def _as_called(message: Message) -> Message:
    """Return a message with the calls that the reprs stand for."""
    calls = tuple(_call(call) for call in message.tool_calls)
    return message if calls == message.tool_calls else replace(message, tool_calls=calls)


def _call(call: ToolCall) -> ToolCall:
    name, arguments = _unquoted(call.name), _unquoted(call.arguments)
    if isinstance(arguments, str) and arguments != call.arguments:
        arguments = parse_arguments(arguments)
    return replace(call, name=str(name), arguments=arguments)


def _unquoted(value: Any) -> Any:
    """Return the text that a repr of text stands for; anything else as it is."""
    if (
        not isinstance(value, str)
        or len(value) < 2
        or value[0] != value[-1]
        or value[0] not in "'\""
    ):
        return value
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value
    return found if isinstance(found, str) else value


def _plain(value: Any) -> Any:
    """Return a tool's definition with its reprs read; a description is left as it is."""
    if isinstance(value, Mapping):
        return {k: v if k == "description" else _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str) and value[:1] == "{":
        return parse(value).value
    return _unquoted(value)
