"""Google's ADK, as OpenInference writes it (scope ``openinference.instrumentation.google_adk``).

The instrumentation sets its attributes on ADK's open span. In current versions this is the agent's
span, and each model call overwrites the call before. Such a span contains the last call of its run,
whose input repeats the run's steps, so it is the agent's transcript. The flat attributes mix an
earlier call with the last call; the raw request and response belong to one call. A tool's output is
Gemini's function response.

Source: https://github.com/Arize-ai/openinference (``openinference-instrumentation-google-adk``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...messages import SYSTEM_ROLES, mapping_of, text_of
from ...model import Message, Span
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun
from ..readers.openinference_raw import OUTPUT, answer, request
from . import genai, openinference

__all__ = ["DIALECT"]

SCOPES = ("gcp.vertex.agent", "openinference.instrumentation.google_adk")
_AGENT = "invoke_agent"


def claims(span: Span, logs: Logs) -> bool:
    """Whether OpenInference's instrumentation wrote the span, or added to ADK's span."""
    if openinference.KIND not in span.attributes:
        return False
    return not openinference.is_added(span) or genai.was_translated(span, logs)


def read(span: Span, logs: Logs) -> Operation:
    """The operation that OpenInference's kind names, in ADK's terms."""
    operation = openinference.read(span, logs)
    if isinstance(operation, ToolRun):
        return _tool(operation)
    if not isinstance(operation, ModelCall):
        return operation
    call = _model_call(operation)
    return _agent(call) if span.name.split(" ")[0] == _AGENT else call


def _model_call(call: ModelCall) -> ModelCall:
    """A call with the messages of its raw request and response, if it has any."""
    prompts = [message for message in call.input if message.role in SYSTEM_ROLES]
    turns = [message for message in request(call.span) if message.role not in SYSTEM_ROLES]
    received = answer(call.span).messages
    return replace(
        call,
        input=(*prompts, *turns) if turns else call.input,
        output=tuple(received) or call.output,
    )


def _agent(call: ModelCall) -> AgentRun:
    span = call.span
    transcript = (*call.input, *call.output)
    return AgentRun(
        span,
        name=str(span.attributes.get("gen_ai.agent.name") or span.name.removeprefix(f"{_AGENT} ")),
        transcript=transcript,
        transcript_new_from=_count_before_turn(transcript),
        tools=call.tools,
        gaps=call.gaps,
    )


def _count_before_turn(transcript: Sequence[Message]) -> int:
    """The number of messages before the user's last message."""
    turns = [message for message in transcript if message.role not in SYSTEM_ROLES]
    question_indexes = [index for index, message in enumerate(turns) if message.role == "user"]
    return question_indexes[-1] if question_indexes else 0


def _tool(tool: ToolRun) -> ToolRun:
    value = mapping_of(tool.span.attributes.get(OUTPUT))
    response = value.get("response") if "name" in value else None
    if not isinstance(response, Mapping):
        return tool
    result: Any = response["result"] if set(response) == {"result"} else response
    return replace(tool, result=text_of(result))


DIALECT = Dialect(
    name="adk-openinference",
    title="Google ADK with OpenInference",
    precedence=100,
    read=read,
    scopes=SCOPES,
    claims=claims,
)
