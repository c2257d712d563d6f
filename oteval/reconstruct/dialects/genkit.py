"""Genkit (JavaScript, Go, Python): spans with ``genkit:type``, ``genkit:input``, ``genkit:output``.

Source: ``core/src/tracing`` and ``ai/src`` of https://github.com/firebase/genkit. An action's
subtype names its kind: a model, a tool, a flow. Messages are lists of parts, each known by its one
key: ``text``, ``toolRequest``, ``toolResponse``, ``media``, ``reasoning``. The exporter to Google
Cloud writes the same attributes with ``/`` in place of ``:``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...messages.reader import from_messages, tool_definitions
from ...messages.values import hidden, mapping_of, parse, parse_arguments
from ...model import Message, Span, read_tokens
from ..dialect import Dialect, Logs
from ..gaps import gap
from ..operations import AgentRun, ModelCall, Operation, ToolRun, Wrapper
from ..readers.spans import (
    attribute_gaps,
    is_whole,
    model_failure,
    not_captured,
)
from ..tool_spans import tool_run

__all__ = ["DIALECT"]

SWITCH = "set disableLoggingInputAndOutput to false in the plugin that exports the spans"
PREFIXES = ("genkit:", "genkit/")
# Names of the question in the input of a flow or an agent.
_QUESTIONS = ("prompt", "message", "question", "query", "input", "text")


def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG001
    """Return the span's operation, by its type and subtype; ``generate`` only groups."""
    kinds = {str(_field(span, name)) for name in ("type", "metadata:subtype")}
    if "model" in kinds:
        return _model_call(span)
    if kinds & {"tool", "tool.v2"}:
        return _tool(span)
    if kinds & {"flow", "agent"}:
        return _flow(span)
    return Wrapper(span)


def _key(span: Span, name: str) -> str:
    """Return an attribute's name with the separator that the span has."""
    if f"{PREFIXES[0]}type" in span.attributes:
        return PREFIXES[0] + name
    return PREFIXES[1] + name.replace(":", "/")


def _field(span: Span, name: str) -> Any:
    return span.attributes.get(_key(span, name))


def _model_call(span: Span) -> ModelCall:
    keys = _key(span, "input"), _key(span, "output")
    gaps = attribute_gaps(span, keys, SWITCH) + model_failure(span)
    request, response = (mapping_of(span.attributes.get(key)) for key in keys)
    sent = _messages(request.get("messages"), span)
    received = _answer(response, span)
    found = {keys[0]: sent, keys[1]: received}
    if not span.is_error or not sent:
        gaps += not_captured(span, found, SWITCH, gaps)
    raw = mapping_of(response.get("raw"))
    return ModelCall(
        span,
        input=tuple(sent),
        output=tuple(received),
        tools=tool_definitions(request.get("tools")),
        model=str(raw.get("model") or _field(span, "name") or span.name),
        response_id=str(raw.get("id") or raw.get("responseId") or ""),
        usage=read_tokens(response.get("usage")).usage,
        whole=is_whole(gaps),
        gaps=tuple(gaps),
    )


def _answer(response: Mapping[str, Any], span: Span) -> list[Message]:
    """Return a response's message; the oldest versions had candidates."""
    candidates = response.get("candidates")
    if "message" not in response and isinstance(candidates, list) and candidates:
        response = mapping_of(candidates[0])
    return _messages([response.get("message")], span)


def _messages(found: Any, span: Span) -> list[Message]:
    items = found if isinstance(found, list) else []
    return from_messages([_message(item) for item in items if isinstance(item, Mapping)], span)


def _message(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message in the form of parts."""
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    role = item.get("role")
    return {
        "role": "assistant" if role == "model" else role or "user",
        "parts": [_part(part) for part in parts if isinstance(part, Mapping)],
    }


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    request, response = part.get("toolRequest"), part.get("toolResponse")
    if isinstance(request, Mapping):
        name, arguments = request.get("name"), request.get("input")
        call_id = str(request.get("ref") or "")
        return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
    if isinstance(response, Mapping):
        return {
            "type": "tool_call_response",
            "id": str(response.get("ref") or ""),
            "name": response.get("name"),
            "response": response.get("output", response.get("content")),
        }
    if isinstance(part.get("text"), str):
        return {"type": "text", "content": part["text"]}
    kind = next((key for key in part if key not in ("metadata", "custom")), "unknown")
    return {"type": kind, **part}


def _tool(span: Span) -> ToolRun:
    keys = _key(span, "input"), _key(span, "output")
    given, returned = (span.attributes.get(key) for key in keys)
    gaps = attribute_gaps(span, keys, SWITCH)
    if given is None and returned is None:
        gaps.append(gap("content_not_captured", span.span_id, switch=SWITCH))
    output = None if hidden(returned) else parse(returned).value
    state = _field(span, "state")
    return tool_run(
        span,
        name=str(_field(span, "name") or span.name),
        arguments=None if given is None else parse_arguments(given),
        result=output,
        failed=True if state == "error" else None,
        gaps=gaps,
    )


def _flow(span: Span) -> AgentRun:
    """Return a flow as the run of an agent, with its question and answer where they are text."""
    asked, answered = (
        parse(span.attributes.get(_key(span, name))).value for name in ("input", "output")
    )
    return AgentRun(
        span,
        name=str(_field(span, "name") or span.name),
        input=tuple(_messages_of("user", asked, span)),
        output=tuple(_messages_of("assistant", answered, span)),
    )


def _messages_of(role: str, value: Any, span: Span) -> list[Message]:
    """Return the text of a flow's input or output: the value itself, or its one text field."""
    if isinstance(value, Mapping):
        texts = [value[key] for key in _QUESTIONS if isinstance(value.get(key), str)]
        value = texts[0] if len(texts) == 1 else None
    if not isinstance(value, str) or not value or hidden(value):
        return []
    return [Message(role, value, span_id=span.span_id, trace_id=span.trace_id)]


DIALECT = Dialect(
    name="genkit",
    title="Genkit",
    precedence=170,
    read=read,
    keys=tuple(f"{prefix}type" for prefix in PREFIXES),
    switch=SWITCH,
)
