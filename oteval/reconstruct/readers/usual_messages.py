"""Messages in the few forms that most emitters write, read in less than half the time.

`usual_message` gives the same message as `messages.from_messages`, or None for a form that needs
the general reader. A test compares the two. The forms are OpenTelemetry's parts (text,
tool calls, one tool result) and OpenAI's chat messages (text, ``tool_calls``, results with
``tool_call_id``), also with the fields that LangChain adds to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...jsontext import dumps
from ...model import Message, Span, ToolCall
from .values import parse_arguments

__all__ = ["may_spell_parts", "usual_message"]

_ROLES = ("user", "assistant", "system", "developer")
# Fields that no reader looks at in a message that names its role, and those that may hold calls.
_IGNORED = frozenset(
    {
        *("artifact", "event.name", "example", "finish_reason", "gen_ai.message.index"),
        *("gen_ai.system", "response_metadata", "usage_metadata"),
    }
)
_EMPTY = ("additional_kwargs", "invalid_tool_calls")
_FIELDS = _IGNORED | {*_EMPTY, "content", "name", "parts", "role", "tool_calls"}
_TEXT_FIELDS = _FIELDS | {"id", "type"}
_RESULT_FIELDS = _FIELDS | {"id", "status", "tool_call_id", "type"}
_CONSTRUCTORS = ("constructor", "not_implemented")
_TEXT_PARTS = ({"type", "content"}, {"type", "text"})
_RESULTS = ("tool_call_response", "tool_result")
_RESULT_PART = {"type", "id", "name", "response", "result", "is_error", "status"}
_CALL_PART = {"type", "id", "name", "arguments", "args"}
_CALL = {"type", "id", "function"}
_FUNCTION = {"name", "arguments"}
# Keys that hold the arguments of a call inside its arguments.
_ENVELOPES = frozenset({"args_dict", "args_json"})
_FAILED = ("error", "failed")
_LIST_OF_PARTS = ("[{", "[ ", "[\n")
_EXTRA_CALLS = frozenset({"function_call", "tool_calls"})


def may_spell_parts(text: str, role: str) -> bool:
    """Return whether a text may be the JSON of parts or, of an assistant, the repr of objects."""
    if role == "assistant" and (text.startswith("content=") or text.endswith((")", "]"))):
        return True
    return text.lstrip()[:2] in _LIST_OF_PARTS


def usual_message(item: Mapping[str, Any], span: Span) -> Message | None:
    """Return the message that an item is, or None if it has none of the usual forms.

    Args:
        item: An item of a list of messages.
        span: The span that holds it.
    """
    role, parts = item.get("role"), item.get("parts")
    if type(parts) is list and len(parts) == 1 and len(item) == 2 + ("finish_reason" in item):
        message = _text_of_one_part(role, parts[0], span)
        if message is not None:
            return message
    if role == "tool":
        return _result(item, span) if parts is None else _result_of_parts(item, parts, span)
    if role not in _ROLES or not item.keys() <= _TEXT_FIELDS or not _is_plain(item):
        return None
    content, asked, name = item.get("content"), item.get("tool_calls"), item.get("name")
    texts: list[Any] = []
    calls: list[Any] = []
    if parts is None:
        if content is not None:
            texts.append(content)
        if asked:
            calls = [_call(call) for call in asked] if isinstance(asked, list) else [None]
    elif content is not None or asked or not isinstance(parts, list):
        return None
    else:
        for part in parts:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind == "text" and part.keys() in _TEXT_PARTS:
                texts.append(part["content"] if "content" in part else part["text"])
            elif kind == "tool_call":
                calls.append(_call(part))
            else:
                return _result_of_parts(item, parts, span)
    if not _are_plain(texts, role, calls) or not _are_distinct(calls, role):
        return None
    content = "\n".join(texts)
    return Message(
        role,
        (content or None) if calls else content,
        tuple(calls),
        name=name if isinstance(name, str) else "",
        span_id=span.span_id,
        trace_id=span.trace_id,
    )


def _text_of_one_part(role: Any, part: Any, span: Span) -> Message | None:
    """Return the message of a text, which most are, or None for any other part."""
    if type(part) is not dict or len(part) != 2 or part.get("type") != "text":
        return None
    text = part.get("content")
    if type(text) is not str or role not in _ROLES or may_spell_parts(text, role):
        return None
    return Message(role, text, span_id=span.span_id, trace_id=span.trace_id)


def _is_plain(item: Mapping[str, Any]) -> bool:
    """Return whether a message's calls are all in its usual fields."""
    extra = item.get("additional_kwargs")
    if extra and not item.get("tool_calls") and not _EXTRA_CALLS.isdisjoint(extra):
        return False
    return not item.get("invalid_tool_calls") and item.get("type") not in _CONSTRUCTORS


def _are_plain(texts: Sequence[Any], role: str, calls: Sequence[Any]) -> bool:
    """Return whether texts are only text; beside calls, one may be the JSON of a call."""
    for text in texts:
        if not isinstance(text, str) or may_spell_parts(text, role) or (calls and "{" in text):
            return False
    return bool(texts or calls)


def _are_distinct(calls: Sequence[ToolCall | None], role: str) -> bool:
    """Return whether calls were all read and are not repeated."""
    if not calls:
        return True
    if role != "assistant" or None in calls:
        return False
    ids = [call.id for call in calls if call and call.id] if len(calls) > 1 else ()
    return len(set(ids)) == len(ids)


def _call(call: Any) -> ToolCall | None:
    """Return a call in OpenTelemetry's, OpenAI's or LangChain's form, or None for any other."""
    if not isinstance(call, dict):
        return None
    fields = call.get("function", call)
    if fields is call:
        if call.get("type", "tool_call") != "tool_call" or not call.keys() <= _CALL_PART:
            return None
    elif not isinstance(fields, dict) or not (fields.keys() <= _FUNCTION and call.keys() <= _CALL):
        return None
    name, arguments, call_id = fields.get("name"), fields.get("arguments"), call.get("id") or ""
    if arguments is None:
        arguments = fields.get("args")
    if not (name and isinstance(name, str) and isinstance(call_id, str)):
        return None
    if isinstance(arguments, dict) and len(arguments) == 1 and not _ENVELOPES.isdisjoint(arguments):
        return None
    return ToolCall(name, parse_arguments(arguments), call_id)


def _result(item: Mapping[str, Any], span: Span) -> Message | None:
    """Return a result that is a message, or None for one in another form."""
    content, call_id, name = item.get("content"), item.get("tool_call_id"), item.get("name") or ""
    if call_id is None:
        call_id = item.get("id") or ""
    if item.get("tool_calls") or not item.keys() <= _RESULT_FIELDS or not _is_plain(item):
        return None
    if not (isinstance(content, str) and isinstance(call_id, str) and isinstance(name, str)):
        return None
    return Message(
        "tool",
        content,
        tool_call_id=call_id,
        name=name,
        is_error=item.get("status") in _FAILED,
        span_id=span.span_id,
        trace_id=span.trace_id,
    )


def _result_of_parts(item: Mapping[str, Any], parts: Any, span: Span) -> Message | None:
    """Return a result that is the one part of a message, or None for one in another form."""
    part = parts[0] if isinstance(parts, list) and len(parts) == 1 else None
    if not isinstance(part, dict) or part.get("type") not in _RESULTS:
        return None
    if not (part.keys() <= _RESULT_PART and item.keys() <= _FIELDS and _is_plain(item)):
        return None
    content, call_id, name = part.get("response"), part.get("id") or "", part.get("name") or ""
    if item.get("tool_calls") or not (isinstance(call_id, str) and isinstance(name, str)):
        return None
    failed = part.get("is_error") is True or part.get("status") in _FAILED
    if isinstance(content, dict):
        failed = failed or (content.keys() == {"error"} and bool(content["error"]))
        content = dumps(content)
    elif content is None:
        content = part.get("result")
    if not isinstance(content, str):
        return None
    return Message(
        "tool",
        content,
        tool_call_id=call_id,
        name=name,
        is_error=failed,
        span_id=span.span_id,
        trace_id=span.trace_id,
    )
