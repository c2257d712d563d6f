"""MLflow Tracing: ``mlflow.spanType``, ``mlflow.spanInputs`` and ``mlflow.spanOutputs``.

Every value is JSON text, text in quotes too. A model call's inputs and outputs are the client
library's request and response. Source: mlflow's ``tracing/constant.py``.
"""

from __future__ import annotations

from typing import Any

from ...call_outcome import recorded_outcome
from ...jsontext import loads
from ...messages.langchain import model_of, tool_message
from ...messages.provider_calls import answer_of, last_message_of, request_of
from ...messages.reader import tool_definitions
from ...messages.values import hidden, parse
from ...model import Span, read_tokens
from ..dialect import Dialect, Logs
from ..gaps import gap
from ..operations import AgentRun, ModelCall, Operation, ToolRun, Wrapper
from ..readers.spans import (
    attribute_gaps,
    is_whole,
    model_failure,
    not_captured,
    only_argument,
    parsed_unless_cut,
)
from ..tool_spans import tool_run

__all__ = ["DIALECT"]

SWITCH = (
    "keep inputs and outputs in the spans: mlflow.tracing.configure(span_processors=...) or the "
    "traced code removes them"
)
TYPE = "mlflow.spanType"
INPUT, OUTPUT = "mlflow.spanInputs", "mlflow.spanOutputs"
MODEL, TOOLS, TOKENS = "mlflow.llm.model", "mlflow.chat.tools", "mlflow.chat.tokenUsage"
_MODEL_TYPES = ("CHAT_MODEL", "LLM")


def is_added(span: Span) -> bool:
    """Return whether the span may be another instrumentation's: MLflow marks all that it stores."""
    return not span.scope.startswith("mlflow")


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """Return the span's operation, by its type."""
    kind = str(_decoded(span.attributes.get(TYPE))).upper()
    if kind in _MODEL_TYPES:
        return _model_call(span)
    if kind == "TOOL":
        return _tool(span)
    if kind == "AGENT":
        return _agent(span)
    return Wrapper(span)


def _decoded(value: Any) -> Any:
    """Return an attribute without MLflow's own encoding; text that is cut stays as it is."""
    try:
        return loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _model_call(span: Span) -> ModelCall:
    attributes = span.attributes
    gaps = attribute_gaps(span, (INPUT, OUTPUT), SWITCH) + model_failure(span)
    returned = _decoded(attributes.get(OUTPUT))
    asked = request_of(attributes.get(INPUT), span)
    answered = answer_of(attributes.get(OUTPUT), span)
    found = {INPUT: asked.messages, OUTPUT: answered.messages or span.is_error}
    gaps += not_captured(span, found, SWITCH, gaps)
    return ModelCall(
        span,
        input=tuple(asked.messages),
        output=tuple(answered.messages),
        choices=answered.choices,
        tools=asked.tools or tool_definitions(_decoded(attributes.get(TOOLS))),
        model=str(_decoded(attributes.get(MODEL)) or answered.model or model_of(returned)),
        response_id=answered.response_id,
        usage=read_tokens(parse(attributes.get(TOKENS)).value).usage,
        whole=is_whole(gaps),
        is_delta=asked.is_delta,
        gaps=tuple(gaps),
    )


def _tool(span: Span) -> ToolRun:
    attributes = span.attributes
    gaps = attribute_gaps(span, (INPUT, OUTPUT), SWITCH)
    if INPUT not in attributes and OUTPUT not in attributes:
        gaps.append(gap("content_not_captured", span.span_id, switch=SWITCH))
    returned = _decoded(attributes.get(OUTPUT))
    said = tool_message(parsed_unless_cut(returned))
    given = parsed_unless_cut(attributes.get(INPUT))
    return tool_run(
        span,
        name=span.name,
        call_id=(said or {}).get("tool_call_id"),
        arguments=None if hidden(given) else given,
        result=returned if said is None else said.get("content"),
        failed=recorded_outcome((said or {}).get),
        gaps=gaps,
    )


def _agent(span: Span) -> AgentRun:
    asked = only_argument(_decoded(span.attributes.get(INPUT)))
    answered = _decoded(span.attributes.get(OUTPUT))
    return AgentRun(
        span,
        name=span.name,
        input=last_message_of(asked, span, "user"),
        output=last_message_of(answered, span, "assistant"),
    )


DIALECT = Dialect(
    name="mlflow",
    title="MLflow",
    precedence=310,
    read=read,
    keys=(TYPE, INPUT),
    is_added=is_added,
    switch=SWITCH,
)
