"""OpenAI's chat completions, which most other providers and gateways offer as well.

Facts from OpenAI's API reference and from the types of its Python client. Azure's deployments and
gateways have the same path after a prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlsplit

from ...base.jsontext import dumps, dumps_exact
from ...messages import is_reasoning, reasoning_text
from ...model import Message, RecordedModelCall, RecordedRequest, ToolCall, read_tokens
from .model_api import (
    DONE,
    ApiAnswer,
    ModelApi,
    call_id,
    created,
    event,
    json_object,
    pieces,
    refusal_of,
    response_id,
    without,
)
from .repeated_messages import repeated_messages

__all__ = ["ChatCompletions"]

_OWN_FIELDS = ("functions", "messages", "model", "response_format", "stream", "tools")
# In other providers' words for the same reasons.
_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "completed": "stop",
    "tool_use": "tool_calls",
    "tool_call": "tool_calls",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "incomplete": "length",
    "refusal": "content_filter",
    "safety": "content_filter",
}
_KNOWN_REASONS = frozenset({"content_filter", "function_call", "length", "stop", "tool_calls"})


class ChatCompletions(ModelApi):
    """The API ``POST .../chat/completions``."""

    name = "chat_completions"

    def has_path(self, path: str) -> bool:
        """Whether a path is the path of chat completions, after any prefix."""
        return path.endswith("/chat/completions")

    def parse_request(self, body: bytes, url: str = "", /) -> RecordedRequest:
        """The request in a body; a deployment in the URL is the model."""
        fields = json_object(body)
        functions = [
            {"type": "function", "function": function} for function in fields.get("functions") or ()
        ]
        return RecordedRequest(
            api=self.name,
            model=str(fields.get("model") or _deployment(url)),
            messages=tuple(_messages(fields.get("messages") or ())),
            tools=(*(fields.get("tools") or ()), *functions),
            response_format=fields.get("response_format"),
            settings=without(fields, *_OWN_FIELDS),
            is_stream=fields.get("stream") is True,
        )

    def _assembled(self, events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        response: dict[str, Any] = {}
        choices: dict[int, dict[str, Any]] = {}
        for chunk in events:
            response.update(without(chunk, "choices"))
            for item in chunk.get("choices") or ():
                index = item.get("index") or 0
                choice = choices.setdefault(index, {"message": {"role": "assistant"}})
                choice.update(without(item, "delta"))
                _merge(choice["message"], item.get("delta") or {})
        return {**response, "choices": [choices[index] for index in sorted(choices)]}

    def _answer(self, response: Mapping[str, Any]) -> ApiAnswer:
        choices = [choice for choice in response.get("choices") or () if choice.get("message")]
        messages = [_answer_of(choice["message"]) for choice in choices]
        return ApiAnswer(
            message=messages[0] if messages else None,
            choices=tuple(messages[1:]),
            finish_reason=str(choices[0].get("finish_reason") or "") if choices else "",
            usage=read_tokens(response.get("usage")).usage,
            model=str(response.get("model") or ""),
            response_id=str(response.get("id") or ""),
        )

    def write_response(self, call: RecordedModelCall, request: RecordedRequest) -> bytes:
        """A ``chat.completion``."""
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", **_written(call, message, request, index)},
                "logprobs": None,
                "finish_reason": _finish_reason(call, message),
            }
            for index, message in enumerate(_answers(call))
        ]
        head = _head(call, request, "chat.completion")
        return dumps({**head, "choices": choices, "usage": _written_usage(call)}).encode()

    def write_stream(self, call: RecordedModelCall, request: RecordedRequest) -> list[bytes]:
        """``chat.completion.chunk`` events, with ``[DONE]`` at the end."""
        head = _head(call, request, "chat.completion.chunk")
        options = request.settings.get("stream_options")
        has_usage = isinstance(options, Mapping) and options.get("include_usage") is True
        if has_usage:
            head["usage"] = None
        events: list[bytes] = []
        for index, message in enumerate(_answers(call)):
            reason = _finish_reason(call, message)
            deltas = _deltas(_written(call, message, request, index))
            for delta, end in [*((delta, None) for delta in deltas), ({}, reason)]:
                choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": end}
                events.append(event({**head, "choices": [choice]}))
        if has_usage:
            events.append(event({**head, "choices": [], "usage": _written_usage(call)}))
        return [*events, DONE]


def _deployment(url: str) -> str:
    """The name of the deployment in an Azure URL, or ""."""
    _, marker, tail = urlsplit(url).path.partition("/deployments/")
    return unquote(tail.partition("/")[0]) if marker else ""


def _messages(items: Sequence[Mapping[str, Any]]) -> list[Message]:
    return repeated_messages(list(items))


def _answer_of(fields: Mapping[str, Any]) -> Message:
    """The message of a choice."""
    return _messages([{**fields, "role": "assistant"}])[0]


def _merge(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a delta of a streamed message to the message: texts grow, lists merge by index."""
    for key, value in delta.items():
        current = message.get(key)
        if isinstance(value, list):
            items = message.setdefault(key, []) if current is None else current
            _merge_list(items, value)
        elif isinstance(value, dict):
            inner = current if isinstance(current, dict) else {}
            _merge(inner, value)
            message[key] = inner
        elif isinstance(value, str) and isinstance(current, str) and key in _GROWING:
            message[key] = current + value
        elif value is not None:
            message[key] = value


_GROWING = frozenset(
    {"arguments", "content", "data", "input", "reasoning", "reasoning_content", "refusal"}
    | {"text", "transcript"}
)


def _merge_list(items: list[Any], deltas: list[Any]) -> None:
    places = {item.get("index"): item for item in items if isinstance(item, dict)}
    for delta in deltas:
        index = delta.get("index") if isinstance(delta, dict) else None
        if index is None:
            items.append(delta)
            continue
        if index not in places:
            places[index] = {}
            items.append(places[index])
        _merge(places[index], delta)


def _head(call: RecordedModelCall, request: RecordedRequest, kind: str) -> dict[str, Any]:
    return {
        "id": response_id(call, "chatcmpl-"),
        "object": kind,
        "created": created(call),
        "model": call.model or call.request.model or request.model,
        "service_tier": "default",
        "system_fingerprint": None,
    }


def _answers(call: RecordedModelCall) -> list[Message]:
    return [call.answer or Message("assistant"), *call.choices]


def _written(
    call: RecordedModelCall, message: Message, request: RecordedRequest, choice: int
) -> dict[str, Any]:
    """The fields of an answer, except for its role.

    Args:
        call: The recorded call.
        message: The answer.
        request: The request to answer.
        choice: The index of the choice.
    """
    text, refusal = refusal_of(message)
    calls = message.client_calls
    fields: dict[str, Any] = {"content": text, "refusal": refusal or None}
    for part in message.parts:
        if part.get("type") == "audio" and "data" in part:
            fields["audio"] = {key: value for key, value in part.items() if key != "type"}
        elif is_reasoning(part) and (text := reasoning_text(part)):
            fields["reasoning_content"] = fields.get("reasoning_content", "") + text
    if text is None and not calls and not refusal:
        fields["content"] = ""
    if calls:
        custom = _custom_tools(request)
        owner = replace(
            call, answer=replace(message, tool_calls=calls), span_id=f"{call.span_id}{'+' * choice}"
        )
        fields["tool_calls"] = [
            _written_call(tool_call, call_id(owner, index), tool_call.name in custom)
            for index, tool_call in enumerate(calls)
        ]
    return fields


def _custom_tools(request: RecordedRequest) -> set[str]:
    tools = (tool.get("custom") for tool in request.tools if tool.get("type") == "custom")
    return {str(tool.get("name")) for tool in tools if isinstance(tool, Mapping)}


def _written_call(tool_call: ToolCall, name: str, is_custom: bool) -> dict[str, Any]:
    text = (
        tool_call.arguments
        if isinstance(tool_call.arguments, str)
        else dumps_exact(tool_call.arguments)
    )
    if tool_call.arguments is None:
        text = "{}"
    if is_custom:
        return {"id": name, "type": "custom", "custom": {"name": tool_call.name, "input": text}}
    return {"id": name, "type": "function", "function": {"name": tool_call.name, "arguments": text}}


def _deltas(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The deltas of one choice's message: the role, its texts, its calls."""
    first = "" if fields["content"] is not None else None
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": first, "refusal": None}]
    for key in ("reasoning_content", "content", "refusal"):
        deltas += [{key: piece} for piece in pieces(fields.get(key) or "")]
    if "audio" in fields:
        deltas.append({"audio": fields["audio"]})
    for index, call in enumerate(fields.get("tool_calls") or ()):
        kind, key = call["type"], "input" if call["type"] == "custom" else "arguments"
        begun = {**call[kind], key: ""}
        deltas.append({"tool_calls": [{"index": index, **call, kind: begun}]})
        deltas += [
            {"tool_calls": [{"index": index, kind: {key: piece}}]}
            for piece in pieces(call[kind][key])
        ]
    return deltas


def _finish_reason(call: RecordedModelCall, message: Message) -> str:
    reason = call.finish_reason.lower()
    reason = reason if reason in _KNOWN_REASONS else _REASONS.get(reason, "")
    if message.client_calls and reason in ("", "stop"):
        return "tool_calls"
    return reason or "stop"


def _written_usage(call: RecordedModelCall) -> dict[str, Any]:
    return {
        "prompt_tokens": call.usage.input_tokens,
        "completion_tokens": call.usage.output_tokens,
        "total_tokens": call.usage.input_tokens + call.usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }
