"""Haystack's serialised messages and tools.

A message's content is a list of parts, each a mapping of one key that says what it is. Before
version 2.12 the fields begin with "_", and before 2.9 the content is a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...model import Message, Span
from ..content import from_messages

__all__ = ["definitions", "messages_of"]


def messages_of(items: Sequence[Any], span: Span, role: str = "user") -> list[Message]:
    """Return the messages of a parsed list.

    Args:
        items: Serialised messages, or texts.
        span: The span that holds them.
        role: Who says what names no role.
    """
    found = [
        {"role": role, "content": item} if isinstance(item, str) else _message(item)
        for item in items
        if isinstance(item, (str, Mapping))
    ]
    return from_messages(found, span, role)


def _message(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a serialised message; from version 2.9 to 2.11 its fields begin with "_"."""
    if not {"content", "_content"} & set(item):
        return {}
    content = item.get("content", item.get("_content"))
    fields = {"role": item.get("role", item.get("_role")), "name": item.get("name")}
    if not isinstance(content, list):
        return {**fields, "content": content}
    return {**fields, "parts": [_part(part) for part in content if isinstance(part, Mapping)]}


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part, known by its one key, in a form that all dialects share."""
    if "text" in part:
        return {"type": "text", "text": part["text"]}
    call, result = part.get("tool_call"), part.get("tool_call_result")
    if isinstance(call, Mapping):
        return {**call, "type": "tool_call", "name": call.get("tool_name")}
    if isinstance(result, Mapping):
        origin = result.get("origin")
        origin = origin if isinstance(origin, Mapping) else {}
        return {
            "type": "tool_result",
            "id": origin.get("id"),
            "name": origin.get("tool_name"),
            "result": result.get("result"),
            "is_error": result.get("error"),
        }
    return {"type": next(iter(part), ""), **part}


def definitions(items: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return the definitions of tools, and of the tools of tool sets."""
    found: list[Mapping[str, Any]] = []
    for item in items:
        fields = item.get("data") if isinstance(item, Mapping) else None
        if not isinstance(fields, Mapping):
            continue
        if isinstance(fields.get("tools"), list):
            found += definitions(fields["tools"])
        elif fields.get("name"):
            known = {key: fields[key] for key in _DEFINITION if key in fields}
            found.append({"type": "function", **known})
    return found


_DEFINITION = ("name", "description", "parameters")
