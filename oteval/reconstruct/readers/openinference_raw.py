"""The raw request and response in ``input.value`` and ``output.value`` of OpenInference's spans.

They have the form of the called client. A value of an unknown form is the text of the question or
answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...messages import (
    ModelAnswer,
    answer_of,
    from_messages,
    hidden,
    parse,
    request_of,
    response_id_of,
    system_prompt_of,
    text_of,
)
from ...model import Message, Span
from .spans import only_argument

__all__ = ["INPUT", "OUTPUT", "answer", "request", "response_id"]

INPUT, OUTPUT = "input.value", "output.value"
_TURNS = ("messages", "input", "contents", "prompt", "message")
_TEXTS = ("text", "response", "completion", "output_text", "generated_text")


def request(span: Span) -> list[Message]:
    """The messages in a span's raw request."""
    value = _value(span, INPUT)
    if isinstance(value, Mapping):
        fields = _request(value)
        return request_of(fields, span).messages if fields else _plain(_only(span), span, "user")
    if isinstance(value, list):
        return request_of(value, span).messages
    return _plain(value, span, "user")


def _request(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A request in the form of chat completions, or None for any other value."""
    arguments = value.get("kwargs")
    turns = _turns(value)
    if isinstance(arguments, Mapping) and (turns is None or _turns(arguments) is not None):
        value, turns = arguments, _turns(arguments)
    if turns is None:
        return None
    system = system_prompt_of(value)
    return {"messages": turns if isinstance(turns, list) else [turns], "system": system}


def _turns(value: Mapping[str, Any]) -> Any:
    return next((value[key] for key in _TURNS if value.get(key) not in (None, "", [])), None)


def _only(span: Span) -> Any:
    """A traced function's only argument if it is text, or all of its arguments."""
    argument = only_argument(_value(span, INPUT))
    return argument if isinstance(argument, str) else span.attributes[INPUT]


def answer(span: Span) -> ModelAnswer:
    """The answer and other choices of a span's raw response."""
    value = _value(span, OUTPUT)
    if isinstance(value, Mapping):
        response = answer_of(_response(value), span)
        return response if response.messages else _as_written(span)
    if isinstance(value, list) and value:
        return _answer_in_list(value, span)
    return ModelAnswer(_plain(value, span, "assistant"))


def _response(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """A response, with a single text or content in the form of chat completions."""
    if isinstance(value.get("content"), Mapping):
        return {"message": value["content"]}
    text = next((value[key] for key in _TEXTS if isinstance(value.get(key), str)), None)
    answer_fields = {
        "candidates",
        "choices",
        "output",
        "message",
        "content",
        "parts",
        "tool_calls",
        "generations",
    }
    if text is not None and answer_fields.isdisjoint(value):
        return {"message": {"role": "assistant", "content": text}}
    return value


def _answer_in_list(value: list[Any], span: Span) -> ModelAnswer:
    """The answer in a list of texts (choices), calls or messages."""
    if all(isinstance(item, str) for item in value):
        choices = [from_messages([text], span, "assistant") if text else [] for text in value]
        first = next(iter(choices), [])
        return ModelAnswer(first, tuple(message for other in choices[1:] for message in other[:1]))
    calls = [item for item in value if isinstance(item, Mapping) and "arguments" in item]
    if len(calls) == len(value) and not any("type" in call for call in calls):
        call_messages = [{"role": "assistant", "tool_calls": calls}]
        return ModelAnswer(from_messages(call_messages, span))
    response = answer_of(value, span)
    answers = [message for message in response.messages if message.role in ("assistant", "tool")]
    return ModelAnswer(answers, response.choices) if answers else _as_written(span)


def _as_written(span: Span) -> ModelAnswer:
    return ModelAnswer(_plain(span.attributes[OUTPUT], span, "assistant"))


def _value(span: Span, key: str) -> Any:
    """The parsed value of an attribute, or the text itself if its MIME type is text."""
    value = span.attributes.get(key)
    if value is None or hidden(value):
        return None
    parsed = parse(value)
    if parsed.truncated:
        return None
    kind = str(span.attributes.get(key.replace("value", "mime_type")) or "")
    return value if kind.startswith("text/") else parsed.value


def _plain(value: Any, span: Span, role: str) -> list[Message]:
    text = text_of(value)
    if not text or not text.strip():
        return []
    return [Message(role, text, span_id=span.span_id, trace_id=span.trace_id)]


def response_id(span: Span) -> str:
    """The provider's id of a raw response's answer, or ""."""
    return response_id_of(_value(span, OUTPUT))
