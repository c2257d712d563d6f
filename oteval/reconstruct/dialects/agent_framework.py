"""Microsoft Agent Framework (scope ``agent_framework``; in .NET ``*Microsoft.Agents.AI``).

Source: ``agent_framework/observability.py`` of https://github.com/microsoft/agent-framework. It
follows the current GenAI conventions, with arguments as text. Log records repeat a model call's
messages, one each; they are read only if the span's own messages are missing or cut. The agent's
span has the turn's question and all messages that answer it, including tool messages. A missing
id or model is written as "unknown".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...messages import SYSTEM_ROLES, from_event, from_messages, join_neighbours, parse
from ...model import Message, Span
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..readers.spans import attribute_gaps, integer
from . import genai
from .genai_events import emitted
from .haystack import count_before_turn

__all__ = ["DIALECT"]

SWITCH = (
    "set ENABLE_SENSITIVE_DATA=true or call configure_otel_providers(enable_sensitive_data=True); "
    "in .NET, set EnableSensitiveData = true"
)
UNKNOWN = "unknown"

# Gaps of span attributes that log records fill.
_FILLED_BY_LOGS = frozenset({"content_not_captured", "content_truncated", "content_unreadable"})


def read(span: Span, logs: Logs) -> Operation:
    """The span's operation; workflows and their executors have none."""
    operation = span.attributes.get("gen_ai.operation.name")
    if operation == "invoke_agent":
        return _agent(span, logs)
    if operation == "execute_tool":
        return _tool(span)
    if str(operation) in genai.MODEL_OPERATIONS:
        return _model_call(span, logs)
    return Wrapper(span)


def _model_call(span: Span, logs: Logs) -> ModelCall:
    call = genai.read_model_call(span, logs, SWITCH)
    if call.model == UNKNOWN:
        call = replace(call, model="")
    lost = any(gap.code in _FILLED_BY_LOGS for gap in call.gaps)
    sent, received = _logged(span, logs) if lost else ([], [])
    if not sent and not received:
        return call
    if not any(message.role in SYSTEM_ROLES for message in sent):
        sent = [*(m for m in call.input if m.role in SYSTEM_ROLES), *sent]
    return replace(
        call,
        input=tuple(sent) or call.input,
        output=tuple(received) or call.output,
        gaps=tuple(gap for gap in call.gaps if gap.code not in _FILLED_BY_LOGS),
        whole=True,
    )


def _logged(span: Span, logs: Logs) -> tuple[list[Message], list[Message]]:
    """The messages sent and the first choice received, from the log records."""
    sent: list[Message] = []
    received: list[Message] = []
    for name, body in emitted(span, logs):
        fields = parse(body).value
        if isinstance(fields, Mapping) and isinstance(fields.get("parts"), list):
            messages = from_messages([fields], span)
        else:
            messages = from_event(name, body, span)
        if name != "gen_ai.choice":
            sent += messages
        elif not isinstance(fields, Mapping) or not integer(fields.get("index")):
            received += messages
    return join_neighbours(sent), join_neighbours(received)


def _tool(span: Span) -> ToolRun:
    tool = genai.read_tool(span, SWITCH)
    return replace(tool, call_id="") if tool.call_id == UNKNOWN else tool


def _agent(span: Span, logs: Logs) -> AgentRun:
    """An agent's run with its messages, for runs whose model calls contain no messages."""
    agent = genai.read_agent(span, logs)
    if attribute_gaps(span, genai.CONTENT, SWITCH):
        # In an incomplete list, only the agent's own messages are complete.
        own_messages = tuple(message for message in agent.output if message.role == "assistant")
        return replace(agent, output=own_messages)
    if not agent.output:
        return agent
    # A caller that stores the conversation passes all of it in.
    count = count_before_turn(agent.input)
    return replace(
        agent,
        transcript=agent.input + agent.output,
        transcript_new_from=count or None,
        transcript_is_turn=not count,
    )


DIALECT = Dialect(
    name="agent-framework",
    title="Microsoft Agent Framework",
    precedence=150,
    read=read,
    scopes=("agent_framework*", "Microsoft.Agents.AI*", "Experimental.Microsoft.Agents.AI*"),
    switch=SWITCH,
)
