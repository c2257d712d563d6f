"""Messages in the few forms that most emitters write, read in less than half the time.

`usual_message` gives what `messages.from_messages` gives for the same message, or None for a form
that needs the general reader. A test holds the two together. The forms are OpenTelemetry's parts
(text, tool calls, one tool result) and OpenAI's chat messages (text, ``tool_calls``, results with
``tool_call_id``), also with the fields that LangChain adds to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model import Message, Span, ToolCall
from .values import parse_arguments

__all__ = ["may_spell_parts", "usual_message"]

_ROLES = ("user", "assistant", "system", "developer")
# No reader looks at these fields of a message that names its role.
_IGNORED = frozenset({"finish_reason", "response_metadata", "usage_metadata"})
_FIELDS = _IGNORED | {"content", "name", "parts", "role", "tool_calls"}
_RESULT_FIELDS = _IGNORED | {"content", "name", "parts", "role", "tool_call_id", "tool_calls"}
_TEXT = {"type", "content"}
_RESULT = {"type", "id", "response"}
_CALL = {"type", "id", "name", "arguments"}
_CALL_OF_FUNCTION = {"type", "id", "function"}
_FUNCTION = {"name", "arguments"}


def may_spell_parts(text: str) -> bool:
    """Return whether a text may be the JSON of parts or the repr of Python objects."""
    return text.startswith("content=") or text.endswith((")", "]")) or text.lstrip()[:1] == "["


def usual_message(item: Mapping[str, Any], span: Span) -> Message | None:
    """Return the message that an item is, or None if it has none of the usual forms.

    Args:
        item: An item of a list of messages.
        span: The span that holds it.
    """
    role, parts = item.get("role"), item.get("parts")
    if role == "tool":
        return _result(item, span) if parts is None else _result_of_parts(item, parts, span)
    if role not in _ROLES or not item.keys() <= _FIELDS:
        return None
    texts: list[Any] = []
    calls: list[ToolCall | None] = []
    content, asked, name = item.get("content"), item.get("tool_calls"), item.get("name")
    if parts is None:
        if content is not None:
            texts.append(content)
        if asked:
            calls = [_call(call) for call in asked] if isinstance(asked, list) else [None]
    elif content is None and not asked and isinstance(parts, list):
        for part in parts:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind == "text" and part.keys() == _TEXT:
                texts.append(part["content"])
            elif kind == "tool_call":
                calls.append(_call(part))
            elif kind == "tool_call_response":
                return _result_of_parts(item, parts, span)
            else:
                return None
    for text in texts:
        if not isinstance(text, str) or may_spell_parts(text) or (calls and "{" in text):
            return None
    if not (texts or calls):
        return None
    content = "\n".join(texts)
    if calls:
        if (
            role != "assistant"
            or None in calls
            or len({call and call.id for call in calls}) < len(calls)
        ):
            return None
        content = content or None
    return Message(
        role,
        content,
        tuple(calls),  # type: ignore[arg-type]
        name=name if isinstance(name, str) else "",
        span_id=span.span_id,
        trace_id=span.trace_id,
    )


def _call(call: Any) -> ToolCall | None:
    """Return a call in OpenTelemetry's or OpenAI's form, or None for any other."""
    if not isinstance(call, dict):
        return None
    fields = call
    if "function" in call:
        fields = call["function"]
        if not isinstance(fields, dict) or not fields.keys() <= _FUNCTION:
            return None
        if not call.keys() <= _CALL_OF_FUNCTION:
            return None
    elif not call.keys() <= _CALL:
        return None
    name, arguments, call_id = fields.get("name"), fields.get("arguments"), call.get("id")
    if not isinstance(name, str) or not name or not isinstance(call_id, str) or not call_id:
        return None
    if isinstance(arguments, dict) and len(arguments) == 1 and not _ENVELOPES.isdisjoint(arguments):
        return None
    return ToolCall(name, parse_arguments(arguments), call_id)


# Keys of arguments that hold the arguments, in ADK's and Haystack's form.
_ENVELOPES = frozenset({"args_dict", "args_json"})


def _result(item: Mapping[str, Any], span: Span) -> Message | None:
    content, call_id, name = item.get("content"), item.get("tool_call_id"), item.get("name", "")
    if item.get("tool_calls") or not item.keys() <= _RESULT_FIELDS:
        return None
    if not (isinstance(content, str) and isinstance(call_id, str) and isinstance(name, str)):
        return None
    return _result_message(content, call_id, name, span)


def _result_of_parts(item: Mapping[str, Any], parts: Any, span: Span) -> Message | None:
    part = parts[0] if isinstance(parts, list) and len(parts) == 1 else None
    if not isinstance(part, dict) or part.get("type") != "tool_call_response":
        return None
    if part.keys() != _RESULT or not item.keys() <= _FIELDS or item.get("tool_calls"):
        return None
    content, call_id = part["response"], part["id"]
    if not (isinstance(content, str) and isinstance(call_id, str)):
        return None
    return _result_message(content, call_id, "", span)


def _result_message(content: str, call_id: str, name: str, span: Span) -> Message:
    return Message(
        "tool",
        content,
        tool_call_id=call_id,
        name=name,
        span_id=span.span_id,
        trace_id=span.trace_id,
    )
