"""LangWatch's SDKs: ``langwatch.span.type`` with the span's input and output.

A value names its type: ``{"type": "chat_messages", "value": [...]}``, ``text`` or ``json``; a
``list`` contains such values. Spans with another instrumentation's messages are left to its
dialect.
Source: langwatch's ``attributes.py`` and ``domain/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...messages import last_message_of, mapping_of, parse
from ...model import Span, semconv
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..readers.model_calls import client_call
from ..readers.spans import call_arguments, integer, usage, visible
from ..tool_spans import tool_of_attributes

__all__ = ["DIALECT"]

SWITCH = "do not turn off capture_input and capture_output of the LangWatch SDK"
TYPE, INPUT, OUTPUT = "langwatch.span.type", "langwatch.input", "langwatch.output"
METRICS = "langwatch.metrics"
_OTHERS = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.prompt.0.role")
_TYPES = frozenset({"chat_messages", "json", "list", "raw", "text"})


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Whether the content of the span is in LangWatch's attributes."""
    attributes = span.attributes
    is_theirs = TYPE in attributes or INPUT in attributes or OUTPUT in attributes
    return is_theirs and not any(key in attributes for key in _OTHERS)


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """The span's operation, by its type."""
    kind = span.attributes.get(TYPE)
    if kind == "llm":
        return _model_call(span)
    if kind == "tool":
        return _tool(span)
    if kind == "agent":
        return AgentRun(
            span,
            name=str(semconv.first(span.attributes, semconv.AGENT_NAME) or span.name),
            input=last_message_of(_value(span, INPUT), span, "user"),
            output=last_message_of(_value(span, OUTPUT), span, "assistant"),
        )
    return Wrapper(span)


def _value(span: Span, key: str) -> Any:
    """The value of an attribute without the types around it."""
    value = visible(span, key)
    return None if value is None else _untyped(parse(value).value)


def _untyped(value: Any) -> Any:
    if not isinstance(value, Mapping) or value.get("type") not in _TYPES or "value" not in value:
        return value
    inner = value["value"]
    if value["type"] != "list" or not isinstance(inner, list):
        return inner
    return [_untyped(item) for item in inner]


def _model_call(span: Span) -> ModelCall:
    sides = {key: _value(span, key) for key in (INPUT, OUTPUT)}
    return client_call(span, sides, SWITCH, usage=usage({**_metrics(span), **span.attributes}))


def _metrics(span: Span) -> Mapping[str, Any]:
    """The tokens in the span's metrics under the conventions' names."""
    metrics = _untyped(mapping_of(span.attributes.get(METRICS)))
    counts = metrics if isinstance(metrics, Mapping) else {}
    sent = integer(counts.get("promptTokens", counts.get("prompt_tokens")))
    received = integer(counts.get("completionTokens", counts.get("completion_tokens")))
    return {"gen_ai.usage.input_tokens": sent, "gen_ai.usage.output_tokens": received}


def _tool(span: Span) -> ToolRun:
    return tool_of_attributes(
        span,
        (INPUT, OUTPUT),
        SWITCH,
        arguments=call_arguments(parse(_value(span, INPUT)).value),
        result=_value(span, OUTPUT),
    )


DIALECT = Dialect(
    name="langwatch",
    title="LangWatch SDK",
    precedence=265,
    read=read,
    keys=(TYPE, INPUT, OUTPUT),
    claims=claims,
    switch=SWITCH,
)
