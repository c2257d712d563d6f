"""Anthropic's messages: requests and answers as blocks of content, and typed events in streams.

Facts from Anthropic's API reference. Thinking blocks keep their signatures where they were
recorded; without one, a block cannot be sent back to the real API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...base.jsontext import dumps, dumps_exact, loads
from ...messages import NO_SOURCE, from_messages, is_reasoning, reasoning_text, system_messages
from ...model import Message, RecordedModelCall, RecordedRequest, read_tokens
from .model_api import (
    ApiAnswer,
    ModelApi,
    call_id,
    event,
    joined_answer,
    json_object,
    pieces,
    response_id,
    without,
)
from .repeated_messages import repeated_messages

__all__ = ["AnthropicMessages"]

_OWN_FIELDS = ("messages", "model", "stream", "system", "tools")
# Other providers' names for the same reasons.
_REASONS = {
    "completed": "end_turn",
    "content_filter": "refusal",
    "length": "max_tokens",
    "max_output_tokens": "max_tokens",
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "tool_call": "tool_use",
}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_DELTAS = {"text": "text", "thinking": "thinking", "signature": "signature"}


class AnthropicMessages(ModelApi):
    """The API ``POST .../v1/messages``."""

    name = "anthropic_messages"

    def has_path(self, path: str) -> bool:
        """Whether a path ends with ``/v1/messages``; threads have other ``/messages``."""
        return path.endswith("/v1/messages")

    def parse_request(self, body: bytes, _url: str = "", /) -> RecordedRequest:
        """The request in a body."""
        fields = json_object(body)
        return RecordedRequest(
            api=self.name,
            model=str(fields.get("model") or ""),
            messages=(
                *system_messages(fields, NO_SOURCE),
                *repeated_messages(_uncached(fields.get("messages") or [])),
            ),
            tools=tuple(map(_nested_tool, fields.get("tools") or ())),
            settings=without(fields, *_OWN_FIELDS),
            is_stream=fields.get("stream") is True,
        )

    def _assembled(self, events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        message: dict[str, Any] = {}
        blocks: dict[int, dict[str, Any]] = {}
        for data in events:
            kind = data.get("type")
            if kind == "error":
                return data
            if kind == "message_start":
                message = dict(data.get("message") or {})
            elif kind == "content_block_start":
                blocks[data.get("index", 0)] = dict(data.get("content_block") or {})
            elif kind == "content_block_delta":
                _grow(blocks.setdefault(data.get("index", 0), {}), data.get("delta") or {})
            elif kind == "message_delta":
                message.update(data.get("delta") or {})
                message["usage"] = {**(message.get("usage") or {}), **(data.get("usage") or {})}
        return {**message, "content": [_finished(blocks[index]) for index in sorted(blocks)]}

    def _answer(self, response: Mapping[str, Any]) -> ApiAnswer:
        raw_messages = [{"role": "assistant", "content": response.get("content") or []}]
        messages = from_messages(raw_messages, NO_SOURCE)
        return ApiAnswer(
            message=joined_answer(messages) if messages else Message("assistant", ""),
            output=tuple(messages),
            finish_reason=str(response.get("stop_reason") or ""),
            usage=read_tokens(response.get("usage")).usage,
            model=str(response.get("model") or ""),
            response_id=str(response.get("id") or ""),
        )

    def write_response(self, call: RecordedModelCall, request: RecordedRequest) -> bytes:
        """A ``message``."""
        return dumps(_written(call, request)).encode()

    def write_stream(self, call: RecordedModelCall, request: RecordedRequest) -> list[bytes]:
        """The events from ``message_start`` to ``message_stop``."""
        message = _written(call, request)
        usage = message["usage"]
        begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
        begun["usage"] = {**usage, "output_tokens": 1}
        end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        events = [
            {"type": "message_start", "message": begun},
            *(
                fields
                for index, block in enumerate(message["content"])
                for fields in _events(block, index)
            ),
            {
                "type": "message_delta",
                "delta": end,
                "usage": {"output_tokens": usage["output_tokens"]},
            },
            {"type": "message_stop"},
        ]
        return [event(fields, str(fields["type"])) for fields in events]

    def _error_body(self, error: str, status: int) -> bytes:
        fields = {"type": _ERRORS.get(status, "api_error"), "message": error}
        return dumps({"type": "error", "error": fields}).encode()


def _uncached(messages: Sequence[Any]) -> list[Any]:
    """Return messages without the marks of prompt caching, which the model does not see."""
    return [
        {**message, "content": [_without_mark(block) for block in message["content"]]}
        if isinstance(message, Mapping) and isinstance(message.get("content"), list)
        else message
        for message in messages
    ]


def _without_mark(block: Any) -> Any:
    if not isinstance(block, Mapping) or "cache_control" not in block:
        return block
    return {key: value for key, value in block.items() if key != "cache_control"}


def _nested_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """A definition with an ``input_schema`` in the form of chat completions."""
    if "input_schema" not in tool:
        return tool  # The provider runs it.
    fields = {key: tool[key] for key in ("name", "description") if key in tool}
    return {"type": "function", "function": {**fields, "parameters": tool["input_schema"]}}


def _grow(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a delta to a block; the input of a tool grows as JSON text."""
    for key in _DELTAS:
        if isinstance(delta.get(key), str):
            block[key] = str(block.get(key) or "") + delta[key]
    if isinstance(delta.get("partial_json"), str):
        block["json"] = block.get("json", "") + delta["partial_json"]


def _finished(block: dict[str, Any]) -> dict[str, Any]:
    text = block.pop("json", "")
    if text:
        try:
            block["input"] = loads(text)
        except ValueError:
            block["input"] = text
    return block


def _written(call: RecordedModelCall, request: RecordedRequest) -> dict[str, Any]:
    message = call.answer or Message("assistant")
    reason = call.finish_reason.lower()
    reason = _REASONS.get(reason, reason)
    if message.client_calls and reason in ("", "end_turn"):
        reason = "tool_use"
    return {
        "id": response_id(call, "msg_"),
        "type": "message",
        "role": "assistant",
        "model": call.model or call.request.model or request.model,
        "content": list(_blocks(call, message)),
        "stop_reason": reason or "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": call.usage.input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": call.usage.output_tokens,
        },
    }


def _blocks(call: RecordedModelCall, message: Message) -> Iterator[dict[str, Any]]:
    """Yield the blocks of an answer: thinking, text, calls."""
    for part in message.parts:
        if part.get("type") == "redacted_thinking":
            yield dict(part)
        elif is_reasoning(part):
            signature = part.get("signature")
            thinking = {"type": "thinking", "thinking": reasoning_text(part)}
            yield {**thinking, "signature": signature if isinstance(signature, str) else ""}
    if message.content:
        yield {"type": "text", "text": message.content, "citations": None}
    for index, tool_call in enumerate(message.tool_calls):
        arguments = tool_call.arguments
        if not isinstance(arguments, Mapping):
            arguments = {} if arguments is None else {"input": arguments}
        name = call_id(call, index, "toolu_")
        kind = "server_tool_use" if tool_call.executed_by else "tool_use"
        yield {"type": kind, "id": name, "name": tool_call.name, "input": arguments}


def _events(block: Mapping[str, Any], index: int) -> Iterator[dict[str, Any]]:
    """Yield the events that stream one block."""
    begun, deltas = dict(block), []
    if block["type"] == "text":
        begun["text"] = ""
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
    elif block["type"] == "thinking":
        begun |= {"thinking": "", "signature": ""}
        texts = pieces(block["thinking"])
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in texts]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif block["type"] in ("tool_use", "server_tool_use"):
        begun["input"] = {}
        texts = pieces(dumps_exact(block["input"]))
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in texts]
    yield {"type": "content_block_start", "index": index, "content_block": begun}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}
