"""CrewAI: OpenInference's spans of crews and tasks, and CrewAI's own spans and telemetry.

Source: https://github.com/Arize-ai/openinference (``openinference-instrumentation-crewai``): a
crew's kickoff is a CHAIN, a task done by an agent an AGENT (``<role>._execute_core``) whose
output holds all of the task's messages, a tool a TOOL. Model calls are written by the model
client's instrumentation. CrewAI's own spans (scope ``crewai.telemetry``) say which crews and tools
were used, and hold no content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...model import Message, Span
from ..content import from_messages
from ..readings import AgentRun, Reading, ToolRun, Wrapper
from ..values import hidden, parse, parse_arguments
from . import crewai_native
from .base import Dialect, Logs
from .crewai_native import read_native
from .openinference import OPENINFERENCE, SWITCH

__all__ = ["CREWAI"]

SCOPE, TELEMETRY = "openinference.instrumentation.crewai", "crewai.telemetry"
KIND = "openinference.span.kind"
TASK = "._execute_core"
MARKS = ("crew_key", "crew_id", "task_key", "task_id")

# What no model's function may be called by; CrewAI then offers the tool by another name.
_NO_FUNCTION_NAME = re.compile(r"[^A-Za-z0-9_.-]")


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Return whether the span tells of a crew, a task or a crew's tool."""
    if span.scope == TELEMETRY or _is_native(span):
        return True
    if KIND not in span.attributes:
        return False
    return span.scope == SCOPE or any(mark in span.attributes for mark in MARKS)


def _is_native(span: Span) -> bool:
    return span.scope == crewai_native.SCOPE and crewai_native.EVENT in span.attributes


def read(span: Span, logs: Logs) -> Reading:
    """Return what OpenInference's kind says, with what CrewAI adds to it."""
    if span.scope == TELEMETRY:
        return Wrapper(span)
    if _is_native(span):
        return read_native(span, logs)
    reading = OPENINFERENCE.read(span, logs)
    if isinstance(reading, AgentRun):
        return _agent(reading)
    if isinstance(reading, ToolRun):
        return _tool(reading)
    return reading


def _agent(agent: AgentRun) -> AgentRun:
    """Return an agent's run of one task, with the messages that the task's output holds."""
    span = agent.span
    agent = replace(agent, name=agent.name.strip().removesuffix(TASK))
    value, truncated = parse(span.attributes.get("output.value"))
    if not isinstance(value, Mapping):
        return agent
    messages = value.get("messages")
    if isinstance(messages, list) and not truncated:
        told = from_messages([m for m in messages if isinstance(m, Mapping)], span)
        if told:
            return replace(agent, transcript=tuple(told), transcript_new_from=0)
    asked = _said("user", value.get("description"), span)
    answered = _said("assistant", value.get("raw"), span)
    return replace(agent, input=asked or agent.input, output=answered or agent.output)


def _said(role: str, text: Any, span: Span) -> tuple[Message, ...]:
    if not isinstance(text, str) or not text or hidden(text):
        return ()
    return (Message(role, text, span_id=span.span_id, trace_id=span.trace_id),)


def _tool(tool: ToolRun) -> ToolRun:
    name, arguments = tool.name, tool.arguments
    if "tool.name" not in tool.span.attributes:
        name = name.removesuffix("._use").removesuffix(".run")
    if _NO_FUNCTION_NAME.search(name):
        name = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or name
    # Before tools had spans of their own, the span was that of the use of one.
    if isinstance(arguments, Mapping) and {"calling", "tool_string"} & set(arguments):
        arguments = _calling(arguments.get("calling"))
    return replace(tool, name=name, arguments=arguments)


def _calling(value: Any) -> Any:
    """Return the arguments of a parsed call: its field, or what its repr says."""
    found = parse(value).value
    if isinstance(found, Mapping):
        return parse_arguments(found.get("arguments"))
    _, mark, text = str(found or "").partition("arguments=")
    return parse_arguments(text) if mark else None


CREWAI = Dialect("crewai", claims, read, switch=SWITCH)
