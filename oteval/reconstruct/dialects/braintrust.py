"""Braintrust's SDKs: ``braintrust.span_attributes`` with an input and an output as JSON.

The SDKs for Go, Java, Ruby and .NET write these spans. The JSON of ``braintrust.span_attributes``
has the type; programs that write such spans by hand set ``braintrust.span_attributes.type``. A
model call's input and output are the client library's messages and choices; its metadata are the
other parameters of the request. Source: https://www.braintrust.dev/docs/integrations/sdk-integrations/opentelemetry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...messages import (
    last_message_in,
    last_message_of,
    mapping_of,
    parse,
    returned_value,
    tool_definitions,
)
from ...model import Span, read_tokens
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..readers.model_calls import client_call
from ..readers.spans import only_argument, parsed_unless_cut, visible
from ..tool_spans import tool_of_attributes

__all__ = ["DIALECT"]

SWITCH = "Braintrust's SDKs always write it: look for a span processor that removes it"
TYPE, TYPE_ALONE = "braintrust.span_attributes", "braintrust.span_attributes.type"
INPUT, OUTPUT = "braintrust.input_json", "braintrust.output_json"
METADATA, METRICS = "braintrust.metadata", "braintrust.metrics"
_TOOL_TYPES = ("tool", "function_call")
_AGENT_PREFIX = "agent:"
_TOOL_PREFIXES = ("function:", "ruby_llm.tool.")


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Whether the span has a type; a processor marks spans of others with their project."""
    return bool(_type(span))


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """The span's operation, by its type."""
    kind = _type(span)
    # Calls of embedding models have the same type.
    if kind == "llm" and "embedding" not in span.name.lower():
        return _model_call(span)
    if kind in _TOOL_TYPES:
        return _tool(span)
    if span.name.startswith(_AGENT_PREFIX):
        return _agent(span)
    return Wrapper(span)


def _type(span: Span) -> str:
    attributes = span.attributes
    kind = mapping_of(attributes.get(TYPE)).get("type") or attributes.get(TYPE_ALONE)
    if kind is None and "model" in mapping_of(attributes.get(METADATA)):
        return "llm"  # Model calls of older SDKs have no type.
    return kind if isinstance(kind, str) else ""


def _model_call(span: Span) -> ModelCall:
    metadata = mapping_of(span.attributes.get(METADATA))
    return client_call(
        span,
        {key: visible(span, key) for key in (INPUT, OUTPUT)},
        SWITCH,
        model=metadata.get("model"),
        tools=tool_definitions(metadata.get("tools")),
        usage=read_tokens(_metrics(span)).usage,
    )


def _metrics(span: Span) -> Mapping[str, Any]:
    """The counts of tokens, from JSON or from an attribute for each."""
    prefix = f"{METRICS}."
    return mapping_of(span.attributes.get(METRICS)) or {
        key.removeprefix(prefix): value
        for key, value in span.attributes.items()
        if key.startswith(prefix)
    }


def _tool(span: Span) -> ToolRun:
    attributes = span.attributes
    recorded = parsed_unless_cut(visible(span, OUTPUT))
    returned = returned_value(recorded, recorded)
    sent = parsed_unless_cut(visible(span, INPUT))
    if isinstance(sent, Mapping) and set(sent) == {"name", "arguments"}:
        sent = sent["arguments"]
    return tool_of_attributes(
        span,
        (INPUT, OUTPUT),
        SWITCH,
        name=attributes.get("tool.name") or attributes.get("function.name") or _named(span),
        call_id=returned.call_id or attributes.get("tool.call_id"),
        arguments=sent,
        result=returned.content,
        failed=returned.is_error,
    )


def _named(span: Span) -> str:
    name = span.name
    for prefix in _TOOL_PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _agent(span: Span) -> AgentRun:
    question = only_argument(parse(visible(span, INPUT)).value)
    return AgentRun(
        span,
        name=span.name.removeprefix(_AGENT_PREFIX),
        input=last_message_of(question, span, "user"),
        output=last_message_in(visible(span, OUTPUT), span, "assistant"),
    )


DIALECT = Dialect(
    name="braintrust",
    title="Braintrust",
    precedence=45,
    read=read,
    keys=(TYPE, TYPE_ALONE, INPUT),
    claims=claims,
    switch=SWITCH,
)
