"""Gemini CLI (scope ``gemini-cli``): every span's input and output, in Gemini's JSON.

Source: ``packages/core/src/telemetry/trace.ts`` of https://github.com/google-gemini/gemini-cli. The
operation is ``llm_call``, ``tool_call`` or ``agent_call``. Its input and output are in
``gen_ai.input.messages`` and ``gen_ai.output.messages``; older versions use ``input-json`` and
``output-json`` on spans named ``generateContent``. A streamed answer is a list of its pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...messages import (
    ModelAnswer,
    ModelRequest,
    decoded,
    definitions,
    from_messages,
    mapping_of,
    parse,
    recorded_outcome,
    system_messages,
)
from ...model import Span, semconv
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..readers.model_calls import call_gaps, model_call
from ..readers.spans import not_captured
from ..tool_spans import tool_of_attributes
from . import genai

__all__ = ["DIALECT"]

SWITCH = "set telemetry.logPrompts to true in settings.json (or GEMINI_TELEMETRY_LOG_PROMPTS=true)"
SCOPE = "gemini-cli"
INPUTS, OUTPUTS = (genai.INPUT, "input-json"), (genai.OUTPUT, "output-json")
CALL_IDS = ("gen_ai.tool.call_id", "gen_ai.tool.call.id")
_MODEL_SPANS = ("generateContent", "generateContentStream")
_TOOL_SPANS = ("tool_call", "executeTool", "execute_tool")


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """The span's operation, by its operation name or its span name."""
    operation = str(span.attributes.get("gen_ai.operation.name") or span.name)
    if operation == "llm_call" or operation in _MODEL_SPANS:
        return _model_call(span)
    if operation in _TOOL_SPANS:
        return _tool(span)
    if operation in ("agent_call", "invoke_agent"):
        return AgentRun(span, name=_agent_name(span))
    return Wrapper(span)


def _agent_name(span: Span) -> str:
    inputs = mapping_of(_value(span, INPUTS))
    agent_name = semconv.first(inputs, ("agentName", "agent", "name"))
    return str(agent_name or semconv.first(span.attributes, semconv.AGENT_NAME) or span.name)


def _value(span: Span, keys: Sequence[str]) -> Any:
    return decoded(semconv.first(span.attributes, keys))


def _model_call(span: Span) -> ModelCall:
    attributes = span.attributes
    gaps = call_gaps(span, (*INPUTS, *OUTPUTS), SWITCH)
    input_value, output_value = _value(span, INPUTS), _value(span, OUTPUTS)
    request = mapping_of(mapping_of(input_value).get("request"))
    contents = request.get("contents", input_value)
    config = mapping_of(request.get("config"))
    system = {"system": decoded(attributes.get(genai.SYSTEM, config.get("systemInstruction")))}
    sent = from_messages(_items(contents), span)
    received = from_messages(_whole(_answers(output_value)), span, "assistant")
    messages_by_key = {
        next((key for key in INPUTS if key in attributes), INPUTS[0]): sent,
        next((key for key in OUTPUTS if key in attributes), OUTPUTS[0]): received or span.is_error,
    }
    gaps += not_captured(span, messages_by_key, SWITCH, gaps)
    offered = parse(attributes.get("gen_ai.tool.definitions")).value or config.get("tools")
    return model_call(
        span,
        ModelRequest(
            [*system_messages(system, span), *sent], tuple(definitions({"tools": offered}))
        ),
        ModelAnswer(received),
        gaps,
        model=semconv.first(attributes, semconv.RESPONSE_MODEL) or request.get("model"),
    )


def _items(value: Any) -> list[Any]:
    """Gemini's contents as a list; the value may be one content, or only its text."""
    if isinstance(value, str):
        return [{"role": "user", "parts": [{"text": value}]}] if value else []
    items = value if isinstance(value, list) else [value]
    if items and all(isinstance(item, Mapping) and "parts" not in item for item in items):
        return [{"role": "user", "parts": items}]  # the parts of one content
    return [item for item in items if isinstance(item, Mapping)]


def _answers(value: Any) -> list[Any]:
    """The contents of an answer: a response, a content, or the pieces of a stream."""
    if isinstance(value, list):
        return [answer for item in value for answer in _answers(item)]
    fields = mapping_of(value)
    if "streamChunks" in fields:
        return _answers(fields["streamChunks"])
    for key in ("response", "content"):
        if isinstance(fields.get(key), Mapping):
            return _answers(fields[key])
    candidates = fields.get("candidates")
    if isinstance(candidates, list):
        return _answers(candidates[:1])
    return [fields] if "parts" in fields else []


def _whole(pieces: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The pieces of a streamed answer as one message."""
    parts: list[Any] = []
    for piece in pieces:
        for part in piece.get("parts") or ():
            last = parts[-1] if parts else {}
            if "text" in last and "text" in part and not (last.keys() | part.keys()) - {"text"}:
                parts[-1] = {"text": f"{last['text'] or ''}{part['text'] or ''}"}
            else:
                parts.append(part)
    return [{"role": "assistant", "parts": parts}] if parts else []


def _tool(span: Span) -> ToolRun:
    inputs, output_value = mapping_of(_value(span, INPUTS)), _value(span, OUTPUTS)
    request = mapping_of(inputs.get("request", inputs))
    fields = mapping_of(output_value)
    response = mapping_of(fields.get("response", fields))
    result, error = _result(output_value, response)
    return tool_of_attributes(
        span,
        (*INPUTS, *OUTPUTS),
        SWITCH,
        name=span.attributes.get("gen_ai.tool.name") or request.get("name"),
        call_id=semconv.first(span.attributes, CALL_IDS) or request.get("callId"),
        arguments=request.get("args"),
        result=error if result is None else result,
        failed=recorded_outcome({**response, **fields, "error": error}.get),
    )


def _result(value: Any, response: Mapping[str, Any]) -> tuple[Any, Any]:
    """The result that the model received, and the error."""
    error = response.get("error", mapping_of(value).get("error"))
    for part in _items(response.get("responseParts")):
        for inner in _items(part.get("parts")) if "parts" in part else [part]:
            fields = mapping_of(mapping_of(inner.get("functionResponse")).get("response"))
            if fields:
                default = None if "error" in fields else fields
                return fields.get("output", default), fields.get("error") or error
    content = semconv.first(response, ("llmContent", "output", "result"))
    return (value if content is None else content), error


def claims(span: Span, logs: Logs) -> bool:  # noqa: ARG001
    """Whether Gemini CLI wrote the span, by its scope or else the agent's name."""
    agent = span.attributes.get("gen_ai.agent.name")
    return span.scope == SCOPE or (not span.scope and agent == SCOPE)


DIALECT = Dialect(
    name="gemini-cli",
    title="Gemini CLI",
    precedence=190,
    read=read,
    scopes=(SCOPE,),
    keys=("gen_ai.agent.name",),
    claims=claims,
    switch=SWITCH,
)
