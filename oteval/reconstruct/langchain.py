"""LangChain's messages as its callbacks dump them, which several instrumentations pass on.

A message comes in one of three forms: the constructor (``{"lc": 1, "kwargs": {...}}``), the older
``{"type": "human", "data": {...}}``, and its fields alone (``{"type": "human", "content": ...}``).
Lists of them may be lists of lists, one a prompt. A tool may return a message too, or a command to
the graph that holds one. Facts from langchain-core's ``load`` and ``messages``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model import Message, Span
from .content import from_messages
from .values import parse

__all__ = ["generations", "messages", "model_of", "tool_message"]

_CONSTRUCTORS = ("constructor", "not_implemented")
_CALL_PARTS = frozenset({"tool_use", "tool_call", "function_call", "input_json_delta"})


def messages(value: Any, span: Span, role: str = "user") -> list[Message]:
    """Return the messages of a parsed list, in any of LangChain's forms or in OpenAI's.

    Args:
        value: The list; a list of prompts counts by its first, a single message as a list of one.
        span: The span that holds it.
        role: Who says what names no role.
    """
    if isinstance(value, list) and value and isinstance(value[0], list) and not _is_pair(value[0]):
        value = value[0]
    items = value if isinstance(value, list) else [value]
    return from_messages([found for item in items if (found := _plain(item, role))], span, role)


def _is_pair(item: list[Any]) -> bool:
    """Return whether a list is LangChain's short form of a message: a role and its text."""
    return len(item) == 2 and all(isinstance(text, str) for text in item)


def _plain(item: Any, role: str) -> dict[str, Any] | None:
    """Return a message in OpenAI's form, or None for what is no message."""
    if isinstance(item, str):
        return {"role": role, "content": item}
    if isinstance(item, list) and _is_pair(item):
        return {"role": item[0], "content": item[1]}
    fields = _fields(item)
    if fields is None:
        return None
    extra = fields.get("additional_kwargs")
    extra = extra if isinstance(extra, Mapping) else {}
    calls = _calls(fields, extra)
    return {
        **fields,
        "role": _role(fields, item),
        "content": _content(fields.get("content"), has_calls=bool(calls)),
        "tool_calls": calls,
    }


def _fields(item: Any) -> Mapping[str, Any] | None:
    """Return the fields of a message in any of its forms."""
    if not isinstance(item, Mapping):
        return None
    inner = item.get("kwargs" if item.get("type") in _CONSTRUCTORS else "data")
    if isinstance(inner, Mapping):
        return inner
    return None if item.get("type") in _CONSTRUCTORS else item


def _role(fields: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    """Return who says a message, by its role, its type, or its class."""
    kind = fields.get("role") or fields.get("type")
    if not kind and "lc" in item:
        path = item.get("id")
        kind = path[-1] if isinstance(path, list) and path else ""
    elif not kind and item is not fields:
        kind = item.get("type")
    name = str(kind or "").removesuffix("Chunk")
    return name.removesuffix("Message").lower() if name.endswith("Message") else name


def _calls(fields: Mapping[str, Any], extra: Mapping[str, Any]) -> list[Any]:
    """Return a message's calls, those with broken arguments too."""
    found = [*_list(fields.get("tool_calls")), *_list(fields.get("invalid_tool_calls"))]
    return found or _list(extra.get("tool_calls")) or _list(extra.get("function_call"))


def _list(value: Any) -> list[Any]:
    found = [value] if isinstance(value, Mapping) else value
    return found if isinstance(found, list) else []


def _content(content: Any, *, has_calls: bool) -> Any:
    """Return a message's content without what says its calls a second time."""
    if has_calls and isinstance(content, list):
        return [part for part in content if not _is_call(part)] or None
    return None if has_calls and content == "" else content


def _is_call(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _CALL_PARTS


def generations(value: Any, span: Span) -> list[list[Message]]:
    """Return the answers of a model's result, each as messages; empty where it is no result.

    Args:
        value: The parsed result, with ``generations`` as a list of answers or of such lists.
        span: The span that holds it.
    """
    found = value.get("generations") if isinstance(value, Mapping) else None
    found = found[0] if isinstance(found, list) and found and isinstance(found[0], list) else found
    answers = []
    for item in found if isinstance(found, list) else []:
        if isinstance(item, Mapping):
            said = item.get("message")
            answers.append(messages(item.get("text") if said is None else said, span, "assistant"))
    return [answer for answer in answers if answer]


def model_of(value: Any) -> str:
    """Return the model that the first answer of a model's result names, or ""."""
    found = value.get("generations") if isinstance(value, Mapping) else None
    while isinstance(found, list) and found:
        found = found[0]
    fields = _fields(found.get("message")) if isinstance(found, Mapping) else None
    told = fields.get("response_metadata") if fields is not None else None
    model = told.get("model_name") if isinstance(told, Mapping) else None
    return model if isinstance(model, str) else ""


def tool_message(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of a tool's message, or None where a parsed result is none.

    Args:
        value: What the tool returned: the message in any of its forms, alone, under ``output``, or
            in a command to the graph.
    """
    if not isinstance(value, Mapping):
        return None
    if value.get("type") in ("tool", "constructor"):
        fields = value.get("data", value.get("kwargs", value))
        return fields if isinstance(fields, Mapping) and _is_answer(fields, value) else None
    inner = parse(value.get("output")).value
    if isinstance(inner, Mapping) and inner is not value:
        return tool_message(inner)
    return _of_command(value)


def _is_answer(fields: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    """Return whether fields are a message's; a tool may return a dict of its own called so."""
    return "content" in fields and (fields is not value or "tool_call_id" in fields)


def _of_command(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    update = value.get("update")
    found = update.get("messages") if isinstance(update, Mapping) and "graph" in value else None
    for item in found if isinstance(found, list) else []:
        fields = tool_message(item)
        if fields is not None:
            return fields
    return None
