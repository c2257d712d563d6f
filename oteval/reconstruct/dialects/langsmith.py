"""LangSmith's own OpenTelemetry export: ``langsmith.span.kind`` and the run's inputs and outputs.

The inputs are in ``gen_ai.prompt`` and the outputs in ``gen_ai.completion``, as JSON: LangChain's
dumps, or the arguments and results of a traced function. Source: langsmith-sdk's
``_internal/otel/_otel_exporter.py``. Graph steps, middleware and agents are chains; an
agent made by LangChain names itself in ``langsmith.metadata.lc_agent_name``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...messages import mapping_of, messages, parse, returned_value
from ...model import NO_TOKENS, Message, Span, read_tokens
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..gaps import gap
from ..readers.model_calls import client_call
from ..readers.spans import attribute_gaps, error_text, parsed_unless_cut, visible
from ..tool_spans import tool_run

__all__ = ["DIALECT"]

SWITCH = (
    "unset LANGSMITH_HIDE_INPUTS and LANGSMITH_HIDE_OUTPUTS, and the client's hide_inputs and "
    "hide_outputs"
)
KIND, NAME = "langsmith.span.kind", "langsmith.trace.name"
INPUT, OUTPUT = "gen_ai.prompt", "gen_ai.completion"
AGENT, NODE = "langsmith.metadata.lc_agent_name", "langsmith.metadata.langgraph_node"
TOKENS = "langsmith.metadata.usage_metadata"
# Programs may set LangSmith's kind on a span with another dialect's content.
_OTHERS = ("gen_ai.input.messages", "gen_ai.prompt.0.role")
_MODEL_KINDS = ("llm", "prompt_llm")
_REPR = re.compile(r"\w+\((['\"])(?P<text>.*)\1\)", re.DOTALL)


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Whether LangSmith's exporter wrote the span."""
    attributes = span.attributes
    return KIND in attributes and not any(key in attributes for key in _OTHERS)


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """The span's operation, by the run's type, and a chain's name and state."""
    kind = str(span.attributes[KIND]).lower()
    if kind in _MODEL_KINDS:
        return _model_call(span)
    if kind == "tool":
        return _tool(span)
    if kind == "chain":
        return _chain(span)
    return Wrapper(span)


def _model_call(span: Span) -> ModelCall:
    tokens = read_tokens(parse(span.attributes.get(TOKENS)).value)
    return client_call(
        span,
        {key: span.attributes.get(key) for key in (INPUT, OUTPUT)},
        SWITCH,
        usage=None if tokens == NO_TOKENS else tokens.usage,
    )


def _tool(span: Span) -> ToolRun:
    attributes = span.attributes
    gaps = attribute_gaps(span, (INPUT, OUTPUT), SWITCH)
    arguments, returned = (parsed_unless_cut(visible(span, key)) for key in (INPUT, OUTPUT))
    if not arguments and not returned and not span.is_error:
        # A tool without arguments that returns nothing looks the same, but is rare.
        gaps.append(gap("content_not_captured", span.span_id, switch=SWITCH))
        arguments = None
    result = returned_value(returned, _returned(returned))
    return tool_run(
        span,
        name=str(attributes.get("gen_ai.tool.name") or attributes.get(NAME) or span.name),
        call_id=attributes.get("gen_ai.tool.call.id") or result.call_id,
        arguments=_arguments(arguments),
        result=result.content,
        failed=result.is_error,
        reason=_reason(span),
        gaps=gaps,
    )


def _arguments(value: Any) -> Any:
    """A tool's arguments, which LangChain may write as one text under ``input``."""
    if isinstance(value, Mapping) and set(value) == {"input"}:
        inner = parse(value["input"]).value
        return inner if isinstance(inner, Mapping) else value
    return value


def _returned(value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {"output"}:
        return value["output"]
    return value or None


def _reason(span: Span) -> str:
    """Why a run failed; LangSmith writes the exception's repr and traceback as one text."""
    text = error_text(span).split("Traceback (most recent call last)", 1)[0].strip()
    match = _REPR.fullmatch(text)
    return match["text"] if match else text


def _chain(span: Span) -> AgentRun | Wrapper:
    attributes = span.attributes
    name = str(attributes.get(NAME) or span.name)
    node = name if attributes.get(NODE) == name else ""
    if attributes.get(AGENT) != name and (span.parent_id or not _is_state(span)):
        return Wrapper(span, node=node)
    inputs = _state(span, INPUT)
    transcript = _state(span, OUTPUT)
    return AgentRun(
        span,
        name=name,
        input=tuple(m for m in inputs if m.role == "user")[-1:],
        output=tuple(m for m in transcript if m.role == "assistant")[-1:],
        transcript=tuple(transcript),
        transcript_new_from=_new_from(inputs, transcript),
        node=node,
    )


def _is_state(span: Span) -> bool:
    """Whether a chain's input and output contain a graph's messages."""
    return all("messages" in mapping_of(span.attributes.get(key)) for key in (INPUT, OUTPUT))


def _state(span: Span, key: str) -> list[Message]:
    state_messages = mapping_of(span.attributes.get(key)).get("messages")
    return messages(state_messages, span) if isinstance(state_messages, list) else []


def _new_from(inputs: list[Message], transcript: list[Message]) -> int | None:
    """The last index of the first input message in a graph's messages, or None."""
    spoken = [message for message in transcript if message.role != "system"]
    first = next((message for message in inputs if message.role != "system"), None)
    if first is None:
        return None
    places = [i for i, m in enumerate(spoken) if (m.role, m.content) == (first.role, first.content)]
    return places[-1] if places else None


DIALECT = Dialect(
    name="langsmith",
    title="LangSmith",
    precedence=60,
    read=read,
    keys=(KIND,),
    claims=claims,
    switch=SWITCH,
)
