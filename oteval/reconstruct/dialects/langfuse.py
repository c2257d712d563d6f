"""Langfuse's SDK: ``langfuse.observation.type`` with the observation's input and output.

A generation's input is the client library's request, or LangChain's list of messages with the tool
definitions at its end. A decorated function's input is ``{"args": [...], "kwargs": {...}}``.
Source: langfuse-python's ``_client/attributes.py`` and ``langchain/CallbackHandler.py``.
"""

from __future__ import annotations

from ...messages import last_message_in, last_message_of, parse, returned_value
from ...model import Span, read_tokens
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..readers.model_calls import client_call
from ..readers.spans import call_arguments, error_text, only_argument, parsed_unless_cut, visible
from ..tool_spans import tool_of_attributes

__all__ = ["DIALECT"]

SWITCH = (
    "set LANGFUSE_OBSERVE_DECORATOR_IO_CAPTURE_ENABLED=true and drop capture_input=False and "
    "capture_output=False"
)
TYPE, LEVEL = "langfuse.observation.type", "langfuse.observation.level"
INPUT, OUTPUT = "langfuse.observation.input", "langfuse.observation.output"
MESSAGE = "langfuse.observation.status_message"
MODEL, TOKENS = "langfuse.observation.model.name", "langfuse.observation.usage_details"
NODE = "langfuse.observation.metadata.langgraph_node"
INTEGRATION = "langfuse.observation.metadata.ls_integration"
AGENT = "langfuse.observation.metadata.lc_agent_name"
CALL_ID = "langfuse.observation.metadata.tool_call_id"
_SCOPE = "langfuse-sdk"


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Whether the span has Langfuse's attributes, from its SDK or set by hand."""
    attributes = span.attributes
    is_told = INPUT in attributes or OUTPUT in attributes or span.scope == _SCOPE
    return TYPE in attributes and is_told


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """The span's operation, by the type of the observation."""
    kind = str(span.attributes[TYPE]).lower()
    if kind == "generation":
        return _model_call(span)
    if kind == "tool":
        return _tool(span)
    # A LangGraph agent's steps have the type agent too, with their own names. From version 5 on,
    # metadata is JSON.
    integration, *node_names = (
        parse(span.attributes.get(key)).value for key in (INTEGRATION, NODE, AGENT)
    )
    node, agent = (name == span.name for name in node_names)
    is_graph = integration == "langgraph" and node_names[0] is None
    if (kind == "agent" and not node) or agent or is_graph:
        return _agent(span)
    return Wrapper(span, node=span.name if node else "")


def _is_error(span: Span) -> bool:
    return span.is_error or span.attributes.get(LEVEL) == "ERROR"


def _reason(span: Span) -> str:
    parsed = span.attributes.get(MESSAGE)
    return parsed if isinstance(parsed, str) and parsed else error_text(span)


def _model_call(span: Span) -> ModelCall:
    return client_call(
        span,
        {key: visible(span, key) for key in (INPUT, OUTPUT)},
        SWITCH,
        model=span.attributes.get(MODEL),
        usage=read_tokens(parse(span.attributes.get(TOKENS)).value).usage,
        failure=_reason(span) if _is_error(span) else "",
    )


def _tool(span: Span) -> ToolRun:
    attributes = span.attributes
    recorded = visible(span, OUTPUT)
    returned = returned_value(parsed_unless_cut(recorded), recorded)
    return tool_of_attributes(
        span,
        (INPUT, OUTPUT),
        SWITCH,
        name=span.name,
        call_id=returned.call_id or parse(attributes.get(CALL_ID)).value,
        arguments=call_arguments(parsed_unless_cut(visible(span, INPUT))),
        result=returned.content,
        failed=attributes.get(LEVEL) == "ERROR" or returned.is_error,
        reason=_reason(span),
    )


def _agent(span: Span) -> AgentRun:
    question = only_argument(parse(visible(span, INPUT)).value)
    return AgentRun(
        span,
        name=span.name,
        input=last_message_of(question, span, "user"),
        output=last_message_in(visible(span, OUTPUT), span, "assistant"),
    )


DIALECT = Dialect(
    name="langfuse",
    title="Langfuse",
    precedence=40,
    read=read,
    keys=(TYPE,),
    claims=claims,
    switch=SWITCH,
)
