"""OpenLIT (scopes ``openlit`` and ``openlit.*``): current GenAI conventions with extra keys.

Source: ``sdk/python/src/openlit`` of https://github.com/openlit/openlit. A model call's span
repeats its answer's calls in ``gen_ai.tool.name`` and ``gen_ai.tool.args``, like a tool's span. Its
input leaves out the calls of earlier answers, but not their results. With LangChain, the input also
leaves out the ids of results, and values are Python reprs. LangGraph's nodes are called agents; the
graph is a workflow. A traced function's span has the returned text as ``gen_ai.output.messages``.
Before version 1.30, prompt and completion are span events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...messages import content_of, literal_of, returned_value
from ...model import Message, Span, ToolCall, semconv
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..gaps import gap
from ..tool_spans import tool_of_attributes
from . import genai, genai_events

__all__ = ["DIALECT"]

SWITCH = "set capture_message_content=True in openlit.init()"
NO_TOOLS = (
    "OpenLIT omits the calls and results of the Responses API; instrument the client with "
    "opentelemetry-instrumentation-genai-openai"
)
SCOPE, SDK = "openlit", "telemetry.sdk.name"
LANGGRAPH = "openlit.instrumentation.langgraph"
_NAMES = {"gen_ai.agent.name", "gen_ai.agent.id"}
ARGUMENTS = ("gen_ai.tool.args", "gen_ai.tool.input")
RESULT = ("gen_ai.tool.output", "gen_ai.output.messages")


def read(span: Span, logs: Logs) -> Operation:
    """The span's operation; a traced function is a wrapper."""
    operation = str(span.attributes.get("gen_ai.operation.name") or "")
    if operation in genai.MODEL_OPERATIONS:
        return _model_call(span, logs)
    if operation == "execute_tool":
        return _tool(span)
    if span.scope == LANGGRAPH and operation in ("invoke_agent", "invoke_workflow"):
        return _graph_or_node(span, logs, operation)
    # Turns and tasks of the OpenAI Agents SDK are called agents too, but have no name.
    if operation == "invoke_agent" and _NAMES & set(span.attributes):
        return genai.read_agent(span, logs)
    return Wrapper(span)


def _graph_or_node(span: Span, logs: Logs, operation: str) -> AgentRun | Wrapper:
    name = str(semconv.first(span.attributes, ("gen_ai.workflow.name", *semconv.AGENT_NAME)) or "")
    if operation == "invoke_agent":
        return Wrapper(span, node=name)
    output = genai.read_agent(span, logs).output
    # A checkpoint's graph repeats the answers of earlier turns.
    return AgentRun(span, name=name, output=output[-1:])


def _model_call(span: Span, logs: Logs) -> ModelCall:
    if genai_events.has_messages(span, logs):
        return genai_events.read_model_call(span, logs, SWITCH)
    call = genai.read_model_call(span, logs, SWITCH)
    call = replace(call, input=tuple(_with_calls(call.input)), calls_by_id=True)
    if span.attributes.get("openai.api.type") != "responses":
        return call
    missing = gap("content_not_captured", span.span_id, switch=NO_TOOLS)
    gaps = (*call.gaps, missing) if _lacks_tools(call) else call.gaps
    return replace(call, whole=False, gaps=gaps)


def _lacks_tools(call: ModelCall) -> bool:
    """Whether tools may have run: with the Responses API, the history has only texts."""
    asks = any(message.tool_calls for message in call.output)
    return asks or bool(call.tools) or len(call.input) > 1 or not call.input


def _with_calls(messages: Sequence[Message]) -> list[Message]:
    """A history with the calls that its results answer; the results have only names and ids."""
    history: list[Message] = []
    call_ids: set[str] = set()
    at = -1  # the index of the answer whose results follow
    for message in map(_unprinted, messages):
        if message.role != "tool":
            call_ids = {call.id for call in message.tool_calls}
            at = len(history) if message.role == "assistant" else -1
        elif message.tool_call_id and message.tool_call_id not in call_ids:
            if at < 0:
                at = len(history)
                history.append(
                    replace(
                        message,
                        role="assistant",
                        content=None,
                        tool_call_id="",
                        name="",
                        is_error=False,
                        is_outcome_recorded=False,
                    )
                )
            call_ids.add(message.tool_call_id)
            call = ToolCall(message.name, arguments=None, id=message.tool_call_id)
            history[at] = replace(history[at], tool_calls=(*history[at].tool_calls, call))
        history.append(message)
    return history


def _unprinted(message: Message) -> Message:
    """A result as text; the history has results in blocks as reprs."""
    if message.role != "tool" or not (message.content or "").startswith("[{'"):
        return message
    return replace(message, content=content_of(message.content)[0])


def _tool(span: Span) -> ToolRun:
    """A tool's run, whose arguments and result may be in older keys."""
    attributes = dict(span.attributes)
    for key, further_keys in ((genai.ARGUMENTS, ARGUMENTS), (genai.RESULT, RESULT)):
        content = semconv.first(attributes, (key, *further_keys))
        if content is not None:
            attributes[key] = content
    recorded = attributes.get(genai.RESULT)
    returned = returned_value(recorded, recorded)
    run = tool_of_attributes(
        replace(span, attributes=attributes),
        (genai.ARGUMENTS, genai.RESULT),
        SWITCH,
        result=returned.content,
        failed=returned.is_error,
    )
    arguments = run.arguments
    if isinstance(arguments, str) and (values := literal_of(arguments)) is not None:
        arguments = values
    return replace(run, span=span, arguments=arguments)


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Whether OpenLIT wrote the span, by its scope or else the SDK's name."""
    return span.scope.startswith(SCOPE) or (not span.scope and span.attributes.get(SDK) == SCOPE)


DIALECT = Dialect(
    name="openlit",
    title="OpenLIT",
    precedence=200,
    read=read,
    scopes=(SCOPE, f"{SCOPE}.*"),
    keys=(SDK,),
    claims=claims,
    switch=SWITCH,
)
