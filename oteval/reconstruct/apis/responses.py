"""OpenAI's Responses API: requests and answers as lists of items, and typed events in streams.

Facts from OpenAI's API reference and from the types of its Python client. Each event has a number;
the last one repeats the whole response.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...base.jsontext import dumps, dumps_exact
from ...messages import NO_SOURCE, from_messages, is_reasoning, reasoning_text
from ...model import Message, RecordedModelCall, RecordedRequest, ToolCall, read_tokens
from .model_api import (
    ApiAnswer,
    ModelApi,
    call_id,
    created,
    event,
    is_event_stream,
    joined_answer,
    json_object,
    made_up_id,
    pieces,
    read_events,
    refusal_of,
    response_id,
    without,
)
from .repeated_messages import repeated_messages

__all__ = ["Responses"]

_OWN_FIELDS = ("input", "instructions", "model", "stream", "text", "tools")
_LAST = ("response.completed", "response.failed", "response.incomplete")
_CUT_OFF = {"length": "max_output_tokens", "max_tokens": "max_output_tokens"}
_CUT_OFF |= {"max_output_tokens": "max_output_tokens", "content_filter": "content_filter"}
# Options that a response repeats, with their defaults.
_ECHOED = {
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "temperature": 1.0,
    "tool_choice": "auto",
    "top_p": 1.0,
    "truncation": "disabled",
}


class Responses(ModelApi):
    """The API ``POST .../responses``."""

    name = "responses"

    def has_path(self, path: str) -> bool:
        """Whether a path ends with ``/responses``."""
        return path.endswith("/responses")

    def parse_request(self, body: bytes, _url: str = "", /) -> RecordedRequest:
        """The request in a body."""
        fields = json_object(body)
        text = fields.get("text") or {}
        answer_format = text.get("format")
        is_plain = not answer_format or answer_format == {"type": "text"}
        settings = {**without(fields, *_OWN_FIELDS), **without(text, "format")}
        return RecordedRequest(
            api=self.name,
            model=str(fields.get("model") or ""),
            messages=tuple(_input_messages(fields)),
            tools=tuple(map(_nested_tool, fields.get("tools") or ())),
            response_format=None if is_plain else answer_format,
            settings=settings,
            is_stream=fields.get("stream") is True,
        )

    def _assembled(self, events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        response: Mapping[str, Any] = {}
        items: dict[int, dict[str, Any]] = {}
        for data in events:
            kind = data.get("type")
            if kind == "error":
                return {"error": data}
            if isinstance(data.get("response"), Mapping):
                response = data["response"]
            index = data.get("output_index", 0)
            if not isinstance(index, int):
                continue
            if isinstance(data.get("item"), Mapping):
                items[index] = dict(data["item"])
            elif kind == "response.output_text.delta":
                item = items.setdefault(index, {"type": "message", "role": "assistant"})
                _grow(item, str(data.get("delta") or ""))
            elif index in items and kind == "response.function_call_arguments.delta":
                arguments = items[index].get("arguments") or ""
                items[index]["arguments"] = arguments + str(data.get("delta") or "")
        if response.get("output") or not items:
            return response
        return {**response, "output": [items[index] for index in sorted(items)]}

    def _answer(self, response: Mapping[str, Any]) -> ApiAnswer:
        messages = from_messages(response.get("output") or [], NO_SOURCE, "assistant")
        message = joined_answer(messages)
        return ApiAnswer(
            message=message,
            output=tuple(messages),
            finish_reason=_finish_reason(response, message),
            usage=read_tokens(response.get("usage")).usage,
            model=str(response.get("model") or ""),
            response_id=str(response.get("id") or ""),
        )

    def is_finished(self, body: bytes) -> bool:
        """Whether a body has the whole answer, which a stream's last event repeats."""
        if is_event_stream(body):
            return any(event.get("type") in _LAST for event in read_events(body))
        return super().is_finished(body)

    def write_response(self, call: RecordedModelCall, request: RecordedRequest) -> bytes:
        """A complete ``response``."""
        return dumps(_written(call, request)).encode()

    def write_stream(self, call: RecordedModelCall, request: RecordedRequest) -> list[bytes]:
        """Return typed events, from ``response.created`` on."""
        response = _written(call, request)
        begun = {**response, "status": "in_progress", "output": [], "usage": None}
        begun |= {"incomplete_details": None, "completed_at": None}
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
        ]
        for index, item in enumerate(response["output"]):
            events += _item_events(item, index)
        events.append({"type": f"response.{response['status']}", "response": response})
        return [
            event({"type": fields["type"], "sequence_number": number, **fields}, fields["type"])
            for number, fields in enumerate(events)
        ]


def _input_messages(fields: Mapping[str, Any]) -> list[Message]:
    """The messages of a request, its instructions first."""
    items = fields.get("input") or []
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    messages = repeated_messages(items)
    instructions = fields.get("instructions")
    prompt = [instructions] if isinstance(instructions, str) else instructions or []
    return [*from_messages(prompt, NO_SOURCE, "system"), *messages]


def _nested_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """The definition of a tool in the form of chat completions."""
    kind = tool.get("type")
    if kind not in ("function", "custom") or kind in tool:
        return tool
    return {"type": kind, kind: {key: value for key, value in tool.items() if key != "type"}}


def _flat_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = str(tool.get("type"))
    inner = tool.get(kind)
    return {"type": kind, **inner} if isinstance(inner, Mapping) else tool


def _grow(item: dict[str, Any], delta: str) -> None:
    """Add a delta to the text of a message that the stream has not finished."""
    content = item.get("content") or [{"type": "output_text", "text": ""}]
    last = {**content[-1], "text": content[-1].get("text", "") + delta}
    item["content"] = [*content[:-1], last]


def _finish_reason(response: Mapping[str, Any], message: Message) -> str:
    details = response.get("incomplete_details") or {}
    reason = str(details.get("reason") or "")
    if reason:
        return "length" if reason == "max_output_tokens" else reason
    return "tool_calls" if message.client_calls else "stop"


def _written(call: RecordedModelCall, request: RecordedRequest) -> dict[str, Any]:
    """The whole response."""
    reason = _CUT_OFF.get(call.finish_reason.lower(), "")
    answer_format = request.response_format or {"type": "text"}
    return {
        "id": response_id(call, "resp_"),
        "object": "response",
        "created_at": float(created(call)),
        "status": "incomplete" if reason else "completed",
        "completed_at": None if reason else float(created(call)),
        "background": False,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": None,
        "model": call.model or call.request.model or request.model,
        "output": list(_items(call, request)),
        "service_tier": "default",
        "store": request.settings.get("store", True),
        "text": {"format": answer_format},
        "tools": [_flat_tool(tool) for tool in request.tools],
        **{key: request.settings.get(key, default) for key, default in _ECHOED.items()},
        "usage": {
            "input_tokens": call.usage.input_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": call.usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": call.usage.input_tokens + call.usage.output_tokens,
        },
    }


def _items(call: RecordedModelCall, request: RecordedRequest) -> Iterator[dict[str, Any]]:
    """Yield the items of an answer: reasoning, tools that the provider ran, text, calls."""
    message = call.answer or Message("assistant")
    content: list[dict[str, Any]] = []
    text, refusal = refusal_of(message)
    if text:
        text_part = {"type": "output_text", "text": text, "annotations": []}
        content.append({**text_part, "logprobs": []})
    if refusal:
        content.append({"type": "refusal", "refusal": refusal})
    for index, part in enumerate(message.parts):
        kind = str(part.get("type"))
        if is_reasoning(part):
            yield _reasoning(part, made_up_id(call, f"reasoning {index}", "rs_"))
        elif kind.startswith("mcp_"):
            yield dict(part)
    for index, tool_call in enumerate(message.tool_calls):
        if tool_call.executed_by:
            yield _provider_item(tool_call, call_id(call, index))
    if content or not message.tool_calls:
        head = {"id": made_up_id(call, "message", "msg_"), "type": "message"}
        yield {**head, "status": "completed", "role": "assistant", "content": content}
    custom = {
        str(tool["custom"].get("name"))
        for tool in request.tools
        if isinstance(tool.get("custom"), Mapping)
    }
    for index, tool_call in enumerate(message.tool_calls):
        if not tool_call.executed_by:
            yield _written_call(call, index, tool_call, tool_call.name in custom)


# OpenAI's tools, each with its own item type; all others are tools of an MCP server.
_PROVIDER_TOOLS = ("code_interpreter", "file_search", "image_generation", "web_search")


def _provider_item(tool_call: ToolCall, name: str) -> dict[str, Any]:
    """The item of a call that the provider ran, without the result."""
    head = {"id": name, "status": "completed"}
    arguments = tool_call.arguments if isinstance(tool_call.arguments, Mapping) else {}
    if tool_call.name == "web_search":
        return {**head, "type": "web_search_call", "action": {"type": "search", **arguments}}
    if tool_call.name in _PROVIDER_TOOLS:
        return {**head, "type": f"{tool_call.name}_call", **arguments}
    fields = {
        "name": tool_call.name,
        "arguments": dumps_exact(arguments),
        "server_label": "recorded",
    }
    return {**head, "type": "mcp_call", **fields}


def _reasoning(part: Mapping[str, Any], name: str) -> dict[str, Any]:
    summary = part.get("summary")
    if not isinstance(summary, list):
        text = reasoning_text(part)
        summary = [{"type": "summary_text", "text": text}] if text else []
    other_fields = without(
        {key: part.get(key) for key in ("content", "encrypted_content", "status")}
    )
    if not isinstance(other_fields.get("content"), list):
        other_fields.pop("content", None)
    return {"id": part.get("id") or name, "type": "reasoning", "summary": summary, **other_fields}


def _written_call(
    call: RecordedModelCall, index: int, tool_call: ToolCall, is_custom: bool
) -> dict[str, Any]:
    arguments = tool_call.arguments
    text = arguments if isinstance(arguments, str) else dumps_exact(arguments)
    if arguments is None:
        text = "{}"
    fields = {"call_id": call_id(call, index), "name": tool_call.name, "status": "completed"}
    if is_custom:
        name = made_up_id(call, f"call {index}", "ctc_")
        return {"id": name, "type": "custom_tool_call", **fields, "input": text}
    name = made_up_id(call, f"call {index}", "fc_")
    return {"id": name, "type": "function_call", **fields, "arguments": text}


# The field with the text of each kind of item or part, and the events that stream it.
_TEXTS = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
    "output_text": ("text", "response.output_text"),
    "refusal": ("refusal", "response.refusal"),
    "summary_text": ("text", "response.reasoning_summary_text"),
}


def _item_events(item: Mapping[str, Any], index: int) -> Iterator[dict[str, Any]]:
    """Yield the events that stream one item."""
    kind, position = item["type"], {"output_index": index}
    inside = {"item_id": item.get("id"), **position}
    begun = dict(item)
    if "status" in item:
        begun["status"] = "in_progress"
    field, name = _TEXTS.get(kind, ("", ""))
    for empty in ("content", "summary"):
        if kind in ("message", "reasoning") and empty in item:
            begun[empty] = []
    if field:
        begun[field] = ""
    yield {"type": "response.output_item.added", **position, "item": begun}
    if field:
        yield from _text_events(name, field, item[field], inside)
    if kind == "message":
        for number, part in enumerate(item["content"]):
            at = {**inside, "content_index": number}
            yield from _part_events("response.content_part", part, at)
    if kind == "reasoning":
        for number, part in enumerate(item["summary"]):
            at = {**inside, "summary_index": number}
            yield from _part_events("response.reasoning_summary_part", part, at)
    yield {"type": "response.output_item.done", **position, "item": item}


def _part_events(
    name: str, part: Mapping[str, Any], at: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    field, texts = _TEXTS[part["type"]]
    yield {"type": f"{name}.added", **at, "part": {**part, field: ""}}
    extra: dict[str, Any] = {"logprobs": []} if part["type"] == "output_text" else {}
    yield from _text_events(texts, field, part[field] or "", {**at, **extra})
    yield {"type": f"{name}.done", **at, "part": part}


def _text_events(
    name: str, field: str, text: str, at: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    for piece in pieces(text):
        yield {"type": f"{name}.delta", **at, "delta": piece}
    yield {"type": f"{name}.done", **at, field: text}
