"""Messages of any provider in the form of OpenTelemetry's GenAI conventions: roles and parts.

They are read and written by `oteval.messages`, as dicts or as objects of the providers' libraries.
A part of an unknown kind stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..messages import NO_SOURCE, MessageCollector, field_of, write_messages

__all__ = ["convention_messages", "is_message", "text_message"]

_USUAL = ("user", "system", "assistant", "developer")
_LANGCHAIN = frozenset({"human", "ai", "system", "tool"})
_ITEMS = frozenset(
    {
        *("custom_tool_call", "custom_tool_call_output", "function", "function_call"),
        *("function_call_output", "message", "reasoning", "tool_call", "tool_result", "tool_use"),
    }
)


def text_message(role: str, text: str) -> dict[str, Any]:
    """Return a message that is one text."""
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def is_message(value: Any) -> bool:
    """Return whether a value is a message, or an item of the Responses API."""
    if value is None or isinstance(value, (str, bytes, int, float, list, tuple, type)):
        return False
    role = field_of(value, "role")
    if isinstance(role, str) or _is_enum_of_text(role):
        return any(field_of(value, key) is not None for key in ("content", "parts", "tool_calls"))
    kind = field_of(value, "type")
    if not isinstance(kind, str):
        return False
    return kind in _ITEMS or (kind in _LANGCHAIN and field_of(value, "content") is not None)


def _is_enum_of_text(value: Any) -> bool:
    return isinstance(getattr(value, "value", None), str)


def convention_messages(value: Any, role: str = "user") -> list[dict[str, Any]]:
    """Return a message, a text, or a list of both, in the conventions' form.

    Args:
        value: The messages.
        role: The role of plain texts, and of messages that name none.
    """
    items = value if isinstance(value, (list, tuple)) else [value]
    written: list[dict[str, Any]] = []
    unwritten: list[Any] = []
    for index, item in enumerate(items):
        # Histories are mostly texts. Writing one directly is six times as fast as reading it first.
        if _is_text(item) and not _goes_on(items, index):
            if unwritten:
                written += _converted(unwritten, role)
                unwritten = []
            written.append(text_message(item["role"], item["content"]))
        else:
            unwritten.append(item)
    return written + _converted(unwritten, role)


def _converted(items: Sequence[Any], role: str) -> list[dict[str, Any]]:
    if not items:
        return []
    collector = MessageCollector(NO_SOURCE, role, is_recorded=False)
    for item in items:
        collector.add(item)
    return write_messages(collector.finish())


def _is_text(item: Any) -> bool:
    """Return whether a message is a text of a role that the conventions have."""
    if type(item) is not dict or len(item) != 2 or item.get("role") not in _USUAL:
        return False
    return type(item.get("content")) is str


def _goes_on(items: Sequence[Any], index: int) -> bool:
    """Return whether an answer may go on with the item after it, which names no role."""
    if items[index]["role"] != "assistant" or index + 1 == len(items):
        return False
    return field_of(items[index + 1], "role") is None
