"""OpenInference's flat messages: ``llm.input_messages.0.message.role`` and their like.

Emitters differ in how they spell a message. Content is one text or indexed parts. A call stands
among ``tool_calls``, among the parts as well, or in the older ``function_call_name``. AutoGen
writes all results of a step into one message of role ``function``. Processors that translate a
framework's own spans put the results of parallel calls into one message, under the last call's id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...model import Gap, Message, Span
from ..gaps import gap
from .messages import from_messages
from .values import nested, parse

__all__ = ["RECEIVED", "SENT", "cut_arguments", "flat_messages", "tool_schemas"]

SENT, RECEIVED = "llm.input_messages.", "llm.output_messages."
_CALL_PARTS = ("tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "function_call")
# Google's client libraries report a tool that raised as the one field of its response.
_GOOGLE = ("google", "vertexai", "gemini")
# Stands for a result of which only its being there is known; no attribute's text is like it.
_UNKNOWN = "\0"


def flat_messages(span: Span, prefix: str, role: str) -> list[Message]:
    """Return the messages that a span's flat attributes spell out.

    Args:
        span: The span.
        prefix: `SENT` or `RECEIVED`.
        role: The role of messages that name none.
    """
    items: list[Mapping[str, Any]] = []
    for item in nested(span.attributes, prefix):
        fields = item.get("message") if isinstance(item, dict) else None
        if not isinstance(fields, dict):
            continue
        # The oldest attributes are dropped first: a message that lost its role is not whole.
        if "role" in fields or not span.dropped_attributes:
            results = _functions(item["function"]) if "function" in item else []
            items += results or [_message(fields)]
    items = _with_each_result(items)
    if any(word in _origin(span) for word in _GOOGLE):
        items = [_with_error(item) for item in items]
    found = from_messages(items, span, role)
    return [replace(m, content=None) if m.content == _UNKNOWN else m for m in found]


def _origin(span: Span) -> str:
    attributes = span.attributes
    named = (attributes.get("llm.provider"), attributes.get("llm.system"), span.scope)
    return " ".join(str(name or "") for name in named).lower()


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _functions(results: Any) -> list[Mapping[str, Any]]:
    """Return the results that AutoGen's message of role ``function`` holds, each as JSON."""
    texts = results if isinstance(results, list) else []
    return [
        {
            "role": "tool",
            "content": result.get("content"),
            "tool_call_id": result.get("call_id"),
            "name": result.get("name"),
            "is_error": result.get("is_error"),
        }
        for result in _mappings([parse(text).value for text in texts])
    ]


def _message(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flat message in OpenAI's form."""
    content = fields.get("content")
    parts = _mappings(fields.get("contents"))
    calls = _calls(fields, parts)
    if content is None and parts:
        content = [found for part in parts if (found := _part(part)) is not None] or None
    return {**fields, "content": content, "tool_calls": calls}


def _calls(fields: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return a message's calls, from the first of the places that hold any."""
    calls = [call.get("tool_call", call) for call in _mappings(fields.get("tool_calls"))]
    if not calls:
        calls = [part["tool_call"] for part in parts if isinstance(part.get("tool_call"), Mapping)]
    if not calls and fields.get("function_call_name"):
        arguments = fields.get("function_call_arguments_json")
        calls = [{"name": fields["function_call_name"], "arguments": arguments}]
    call_id = fields.get("tool_call_id")
    if len(calls) == 1 and call_id and fields.get("role") == "assistant":
        # A call of the Responses API, whose own id is its item's.
        return [{**calls[0], "id": call_id}]
    return calls


def _part(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a part in a form that all dialects share; None for a call, which stands elsewhere."""
    found = part.get("message_content", part)
    if not isinstance(found, Mapping):
        return {"type": "text", "text": found}
    kind = found.get("type")
    if kind in _CALL_PARTS or ("tool_call" in part and kind is None):
        return None
    if kind is None and "text" in found:
        return {**found, "type": "text"}
    if kind == "reasoning" and "text" in found:
        return {**found, "content": found["text"]}
    return found


def _with_each_result(items: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the messages with one result for each of several calls that were answered as one."""
    done: list[Mapping[str, Any]] = []
    for place, item in enumerate(items):
        calls = items[place - 1].get("tool_calls") if place else None
        is_last = place + 1 == len(items) or items[place + 1].get("role") != "tool"
        merged = item.get("role") == "tool" and is_last and calls and _is_merged(item, calls)
        done += _results(item.get("content"), calls) if merged and calls else [item]
    return done


def _is_merged(item: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the only result of several calls has the last one's id.

    Such a message was written over with each result.
    """
    ids = [call.get("id") for call in calls]
    return len(ids) > 1 and all(ids) and item.get("tool_call_id") == ids[-1]


def _results(content: Any, calls: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return a result for each call.

    Parts as many as the calls are their results, in order. A text that joins them cannot be taken
    apart: then only the tools' spans hold each result.
    """
    parts = content if isinstance(content, list) and len(content) == len(calls) else None
    contents: Sequence[Any] = [[part] for part in parts] if parts else [_UNKNOWN] * len(calls)
    return [
        {"role": "tool", "tool_call_id": call.get("id"), "name": _name(call), "content": result}
        for call, result in zip(calls, contents, strict=True)
    ]


def _name(call: Mapping[str, Any]) -> Any:
    function = call.get("function")
    return function.get("name") if isinstance(function, Mapping) else call.get("name")


def _with_error(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a function's response, flagged where all it holds is an error."""
    content = item.get("content")
    if item.get("role") != "tool" or not isinstance(content, str):
        return item
    found = parse(content).value
    failed = isinstance(found, Mapping) and set(found) == {"error"} and bool(found["error"])
    return {**item, "is_error": True} if failed else item


def tool_schemas(span: Span) -> list[Any]:
    """Return the definitions of the tools that a model was offered."""
    found = []
    for item in nested(span.attributes, "llm.tools."):
        tool = item.get("tool") if isinstance(item, Mapping) else None
        if not isinstance(tool, Mapping):
            continue
        schema = parse(tool.get("json_schema")).value
        if (
            isinstance(schema, Mapping)
            and tool.get("name")
            and not {"name", "function"} & set(schema)
        ):
            # Only the parameters: the name is in another attribute.
            named = {key: tool[key] for key in ("name", "description") if key in tool}
            schema = {"type": "function", **named, "parameters": schema}
        if schema is not None:
            found.append(schema)
    return found


def cut_arguments(span: Span, messages: Sequence[Message]) -> list[Gap]:
    """Return the gaps of calls whose arguments are JSON that was cut."""
    cut = [
        call.name
        for message in messages
        for call in message.tool_calls
        if isinstance(call.arguments, str) and parse(call.arguments).truncated
    ]
    keys = (f"the arguments of {name}" for name in dict.fromkeys(cut))
    return [gap("content_truncated", span.span_id, key=key) for key in keys]
