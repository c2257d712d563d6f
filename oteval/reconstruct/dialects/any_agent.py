"""any-agent (scope ``any_agent``): close to the GenAI conventions, with some other keys.

Source: ``callbacks/span_generation`` and ``tracing/attributes.py`` of
https://github.com/mozilla-ai/any-agent. Only the first model call of a run contains its input, as
OpenAI's messages. Every call has its answer in ``gen_ai.output`` (``genai.output`` before): text,
or a JSON list of the requested calls. Tools have ``gen_ai.tool.args`` and the same output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...messages import (
    ModelAnswer,
    ModelRequest,
    decoded_text,
    from_messages,
    hidden,
    mappings_of,
    parse,
    text_of,
)
from ...model import Message, Span, semconv
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..gaps import gap
from ..readers.model_calls import call_gaps, model_call
from ..tool_spans import tool_of_attributes

__all__ = ["DIALECT"]

SWITCH = "any-agent always writes it: look for a span processor that removes it"
INPUT, ARGUMENTS = "gen_ai.input.messages", "gen_ai.tool.args"
OUTPUTS = ("gen_ai.output", "genai.output")
MODEL_OPERATION = "call_llm"
_CALL_NAMES, _CALL_ARGUMENTS = ("tool.name", "name"), ("tool.args", "arguments")


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """The span's operation."""
    operation = span.attributes.get("gen_ai.operation.name")
    if operation == MODEL_OPERATION:
        return _model_call(span)
    if operation == "execute_tool":
        return _tool(span)
    if operation == "invoke_agent":
        name = semconv.first(span.attributes, semconv.AGENT_NAME)
        return AgentRun(span, name=str(name or ""))
    return Wrapper(span)


def _model_call(span: Span) -> ModelCall:
    output = semconv.first(span.attributes, OUTPUTS)
    gaps = call_gaps(span, (INPUT, *OUTPUTS), SWITCH)
    if output is None and not gaps:
        gaps.append(gap("content_not_captured", span.span_id, switch=SWITCH))
    return model_call(span, ModelRequest(_sent(span)), ModelAnswer(_answer(output, span)), gaps)


def _sent(span: Span) -> list[Message]:
    value = span.attributes.get(INPUT)
    return [] if value is None or hidden(value) else from_messages(parse(value).value, span)


def _answer(output: Any, span: Span) -> list[Message]:
    """An answer from a list of calls, a list of messages, or a text."""
    if output is None or hidden(output):
        return []
    value, truncated = parse(output)
    items = mappings_of(value)
    calls = [call for call in map(_call, items) if call]
    if calls:
        return from_messages([{"role": "assistant", "tool_calls": calls}], span, "assistant")
    if any("content" in item for item in items):
        return from_messages(items, span, "assistant")
    if truncated:
        return []
    text = value if isinstance(value, str) else text_of(output)
    return from_messages(text, span, "assistant")


def _call(item: Mapping[str, Any]) -> dict[str, Any] | None:
    name = semconv.first(item, _CALL_NAMES)
    arguments = next((item[key] for key in _CALL_ARGUMENTS if key in item), None)
    if not isinstance(name, str) or "content" in item:
        return None
    return {"name": name, "arguments": arguments}


def _tool(span: Span) -> ToolRun:
    output = semconv.first(span.attributes, OUTPUTS)
    # Text that was JSON-encoded twice is shown without its quotes.
    return tool_of_attributes(span, (ARGUMENTS, *OUTPUTS), SWITCH, result=decoded_text(output))


DIALECT = Dialect(
    name="any-agent",
    title="any-agent",
    precedence=220,
    read=read,
    scopes=("any_agent",),
    keys=(*OUTPUTS, ARGUMENTS),
    operations=(MODEL_OPERATION,),
)
