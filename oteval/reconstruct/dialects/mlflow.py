"""MLflow Tracing: ``mlflow.spanType``, ``mlflow.spanInputs`` and ``mlflow.spanOutputs``.

Every value is JSON, including quoted text. A model call's inputs and outputs are the client
library's request and response. Source: mlflow's ``tracing/constant.py``.
"""

from __future__ import annotations

from typing import Any

from ...base.jsontext import loads
from ...messages import hidden, last_message_of, parse, returned_value, tool_definitions
from ...model import Span, read_tokens
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..readers.model_calls import client_call
from ..readers.spans import only_argument, parsed_unless_cut
from ..tool_spans import tool_of_attributes

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
    """Whether the span may be another instrumentation's: MLflow marks all it stores."""
    return not span.scope.startswith("mlflow")


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """The span's operation, by its type."""
    kind = str(_decoded(span.attributes.get(TYPE))).upper()
    if kind in _MODEL_TYPES:
        return _model_call(span)
    if kind == "TOOL":
        return _tool(span)
    if kind == "AGENT":
        return _agent(span)
    return Wrapper(span)


def _decoded(value: Any) -> Any:
    """An attribute without MLflow's JSON encoding; text that was cut stays unchanged."""
    try:
        return loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _model_call(span: Span) -> ModelCall:
    attributes = span.attributes
    return client_call(
        span,
        {key: attributes.get(key) for key in (INPUT, OUTPUT)},
        SWITCH,
        model=_decoded(attributes.get(MODEL)),
        tools=tool_definitions(_decoded(attributes.get(TOOLS))),
        usage=read_tokens(parse(attributes.get(TOKENS)).value).usage,
    )


def _tool(span: Span) -> ToolRun:
    recorded = _decoded(span.attributes.get(OUTPUT))
    returned = returned_value(parsed_unless_cut(recorded), recorded)
    arguments = parsed_unless_cut(span.attributes.get(INPUT))
    return tool_of_attributes(
        span,
        (INPUT, OUTPUT),
        SWITCH,
        name=span.name,
        call_id=returned.call_id,
        arguments=None if hidden(arguments) else arguments,
        result=returned.content,
        failed=returned.is_error,
    )


def _agent(span: Span) -> AgentRun:
    question = only_argument(_decoded(span.attributes.get(INPUT)))
    answer = _decoded(span.attributes.get(OUTPUT))
    return AgentRun(
        span,
        name=span.name,
        input=last_message_of(question, span, "user"),
        output=last_message_of(answer, span, "assistant"),
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
