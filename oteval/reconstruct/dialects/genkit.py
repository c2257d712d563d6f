"""Genkit (JavaScript, Go, Python): spans with ``genkit:type``, ``genkit:input``, ``genkit:output``.

Source: ``core/src/tracing`` and ``ai/src`` of https://github.com/firebase/genkit. An action's
subtype names its kind: a model, a tool, a flow. Messages are lists of parts, each known by its one
key: ``text``, ``toolRequest``, ``toolResponse``, ``media``, ``reasoning``. The exporter to Google
Cloud writes the same attributes with ``/`` in place of ``:``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...messages import (
    ModelAnswer,
    ModelRequest,
    decoded,
    from_messages,
    list_of,
    mapping_of,
    text_message,
    tool_definitions,
)
from ...model import Message, Span, read_tokens
from ..dialect import AgentRun, Dialect, Logs, ModelCall, Operation, ToolRun, Wrapper
from ..readers.model_calls import call_gaps, model_call
from ..readers.spans import not_captured
from ..tool_spans import tool_of_attributes

__all__ = ["DIALECT"]

SWITCH = "set disableLoggingInputAndOutput to false in the plugin that exports the spans"
PREFIXES = ("genkit:", "genkit/")
# Names of the question in the input of a flow or an agent.
_SIDES = ("input", "output")
_QUESTIONS = ("prompt", "message", "question", "query", "input", "text")


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """The span's operation, by its type and subtype; ``generate`` only groups."""
    kinds = {str(_field(span, name)) for name in ("type", "metadata:subtype")}
    if "model" in kinds:
        return _model_call(span)
    if kinds & {"tool", "tool.v2"}:
        return _tool(span)
    if kinds & {"flow", "agent"}:
        return _flow(span)
    return Wrapper(span)


def _key(span: Span, name: str) -> str:
    """An attribute's name with the span's separator."""
    if f"{PREFIXES[0]}type" in span.attributes:
        return PREFIXES[0] + name
    return PREFIXES[1] + name.replace(":", "/")


def _field(span: Span, name: str) -> Any:
    return span.attributes.get(_key(span, name))


def _model_call(span: Span) -> ModelCall:
    keys = _key(span, "input"), _key(span, "output")
    gaps = call_gaps(span, keys, SWITCH)
    request, response = (mapping_of(span.attributes.get(key)) for key in keys)
    sent = from_messages(list_of(request.get("messages")), span)
    received = _answer(response, span)
    gaps += not_captured(span, {keys[0]: sent, keys[1]: received or span.is_error}, SWITCH, gaps)
    raw = mapping_of(response.get("raw"))
    return model_call(
        span,
        ModelRequest(sent, tool_definitions(request.get("tools"))),
        ModelAnswer(received, response_id=str(raw.get("id") or raw.get("responseId") or "")),
        gaps,
        model=raw.get("model") or _field(span, "name") or span.name,
        usage=read_tokens(response.get("usage")).usage,
    )


def _answer(response: Mapping[str, Any], span: Span) -> list[Message]:
    """A response's message; the oldest versions write candidates."""
    candidates = list_of(response.get("candidates"))
    if "message" not in response and candidates:
        response = mapping_of(candidates[0])
    return from_messages([response.get("message")], span)


def _tool(span: Span) -> ToolRun:
    keys = _key(span, "input"), _key(span, "output")
    return tool_of_attributes(
        span,
        keys,
        SWITCH,
        name=_field(span, "name"),
        result=decoded(span.attributes.get(keys[1])),
        failed=True if _field(span, "state") == "error" else None,
    )


def _flow(span: Span) -> AgentRun:
    """A flow as the run of an agent, with its question and answer if they are text."""
    question, answer = (decoded(span.attributes.get(_key(span, name))) for name in _SIDES)
    return AgentRun(
        span,
        name=str(_field(span, "name") or span.name),
        input=text_message(_text(question), span, "user"),
        output=text_message(_text(answer), span, "assistant"),
    )


def _text(value: Any) -> Any:
    """The text of a flow's input or output: the value itself, or its one text field."""
    if not isinstance(value, Mapping):
        return value
    texts = [value[key] for key in _QUESTIONS if isinstance(value.get(key), str)]
    return texts[0] if len(texts) == 1 else None


DIALECT = Dialect(
    name="genkit",
    title="Genkit",
    precedence=170,
    read=read,
    keys=tuple(f"{prefix}type" for prefix in PREFIXES),
    switch=SWITCH,
)
