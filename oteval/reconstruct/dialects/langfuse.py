"""Langfuse's SDK: ``langfuse.observation.type`` with the observation's input and output.

A generation's input is the client library's request, or LangChain's list of messages with the tool
definitions at its end; a decorated function's is ``{"args": [...], "kwargs": {...}}``. Source:
langfuse-python's ``_client/attributes.py`` and ``langchain/CallbackHandler.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import semconv
from ...call_outcome import recorded_outcome
from ...messages.langchain import tool_message
from ...messages.provider_calls import answer_of, last_message_of, request_of
from ...messages.values import hidden, parse
from ...model import Span, read_tokens
from ..dialect import Dialect, Logs
from ..gaps import gap
from ..operations import AgentRun, ModelCall, Operation, ToolRun, Wrapper
from ..readers.spans import (
    attribute_gaps,
    call_arguments,
    error_text,
    is_whole,
    not_captured,
    only_argument,
    parsed_unless_cut,
)
from ..tool_spans import tool_run

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
    """Return whether the span has Langfuse's attributes, from its SDK or set by hand."""
    attributes = span.attributes
    is_told = INPUT in attributes or OUTPUT in attributes or span.scope == _SCOPE
    return TYPE in attributes and is_told


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """Return the span's operation, by the type of the observation."""
    kind = str(span.attributes[TYPE]).lower()
    if kind == "generation":
        return _model_call(span)
    if kind == "tool":
        return _tool(span)
    # The steps of a LangGraph agent are called agents too, by their names. From version 5 on,
    # metadata is JSON.
    integration, *named = (
        parse(span.attributes.get(key)).value for key in (INTEGRATION, NODE, AGENT)
    )
    node, agent = (name == span.name for name in named)
    is_graph = integration == "langgraph" and named[0] is None
    if (kind == "agent" and not node) or agent or is_graph:
        return _agent(span)
    return Wrapper(span, node=span.name if node else "")


def _is_error(span: Span) -> bool:
    return span.is_error or span.attributes.get(LEVEL) == "ERROR"


def _reason(span: Span) -> str:
    parsed = span.attributes.get(MESSAGE)
    return parsed if isinstance(parsed, str) and parsed else error_text(span)


def _model_call(span: Span) -> ModelCall:
    attributes = span.attributes
    gaps = attribute_gaps(span, (INPUT, OUTPUT), SWITCH)
    failed = _is_error(span)
    if failed:
        gaps.append(gap("model_call_failed", span.span_id, reason=_reason(span)))
    asked = request_of(_shown(span, INPUT), span)
    answered = answer_of(_shown(span, OUTPUT), span)
    found = {INPUT: asked.messages, OUTPUT: answered.messages or failed}
    gaps += not_captured(span, found, SWITCH, gaps)
    return ModelCall(
        span,
        input=tuple(asked.messages),
        output=tuple(answered.messages),
        choices=answered.choices,
        tools=asked.tools,
        model=str(attributes.get(MODEL) or semconv.first(attributes, semconv.RESPONSE_MODEL) or ""),
        response_id=answered.response_id,
        usage=read_tokens(parse(attributes.get(TOKENS)).value).usage,
        whole=is_whole(gaps),
        is_delta=asked.is_delta,
        gaps=tuple(gaps),
    )


def _shown(span: Span, key: str) -> Any:
    value = span.attributes.get(key)
    return None if hidden(value) else value


def _tool(span: Span) -> ToolRun:
    attributes = span.attributes
    gaps = attribute_gaps(span, (INPUT, OUTPUT), SWITCH)
    if INPUT not in attributes and OUTPUT not in attributes:
        gaps.append(gap("content_not_captured", span.span_id, switch=SWITCH))
    returned = _shown(span, OUTPUT)
    said = tool_message(parsed_unless_cut(returned))
    return tool_run(
        span,
        name=span.name,
        call_id=(said or {}).get("tool_call_id") or parse(attributes.get(CALL_ID)).value,
        arguments=call_arguments(parsed_unless_cut(_shown(span, INPUT))),
        result=returned if said is None else said.get("content"),
        failed=attributes.get(LEVEL) == "ERROR" or recorded_outcome((said or {}).get),
        reason=_reason(span),
        gaps=gaps,
    )


def _agent(span: Span) -> AgentRun:
    asked = only_argument(parse(_shown(span, INPUT)).value)
    answered = _shown(span, OUTPUT)
    parsed = parse(answered).value
    return AgentRun(
        span,
        name=span.name,
        input=last_message_of(asked, span, "user"),
        output=last_message_of(
            parsed if isinstance(parsed, (Mapping, list)) else answered, span, "assistant"
        ),
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
