"""LangChain's messages as its callbacks dump them, which several instrumentations pass on.

A message has one of three forms: the constructor (``{"lc": 1, "kwargs": {...}}``), the older
``{"type": "human", "data": {...}}``, and its fields alone (``{"type": "human", "content": ...}``).
Messages may be in lists of lists, one list per prompt. A tool may also return a message, or a
command to the graph that contains a message. Facts from langchain-core's ``load`` and ``messages``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model import Message
from .body import MessageSource
from .forms import fields_of, is_pair
from .python_objects import object_of
from .reader import from_messages
from .values import parse

__all__ = ["first_answer", "generations", "messages", "model_of", "tool_message"]


def messages(value: Any, source: MessageSource, role: str = "user") -> list[Message]:
    """The messages of a parsed list, which may be a list of prompts.

    Args:
        value: The list. Of a list of prompts the first is read; a single message is read as a list
            of one.
        source: Where it was read.
        role: The role of messages that name none.
    """
    if isinstance(value, list) and value and isinstance(value[0], list) and not is_pair(value[0]):
        value = value[0]
    return from_messages(value, source, role)


def generations(value: Any, source: MessageSource) -> list[list[Message]]:
    """The answers of a model's result, each as messages; empty for any other value.

    Args:
        value: The parsed result, with ``generations`` as a list of answers or of such lists.
        source: Where it was read.
    """
    answer_items = value.get("generations") if isinstance(value, Mapping) else None
    answer_items = (
        answer_items[0]
        if isinstance(answer_items, list) and answer_items and isinstance(answer_items[0], list)
        else answer_items
    )
    answers = []
    for item in answer_items if isinstance(answer_items, list) else []:
        if isinstance(item, Mapping):
            message = item.get("message")
            answers.append(
                messages(item.get("text") if message is None else message, source, "assistant")
            )
    return [answer for answer in answers if answer]


def first_answer(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of the first answer of a model's result; none for any other value."""
    answer = value.get("generations")
    while isinstance(answer, list) and answer:
        answer = answer[0]
    fields = (fields_of(answer.get("message")) if isinstance(answer, Mapping) else None) or {}
    inner = fields.get("kwargs", fields)
    return inner if isinstance(inner, Mapping) else {}


def model_of(value: Mapping[str, Any]) -> str:
    """The model that the first answer of a model's result names, or ""."""
    metadata = first_answer(value).get("response_metadata")
    model = metadata.get("model_name") if isinstance(metadata, Mapping) else None
    return model if isinstance(model, str) else ""


def tool_message(value: Any) -> Mapping[str, Any] | None:
    """The fields of a tool's message, or None if a parsed result is not a tool's message.

    Args:
        value: The return value of the tool: the message in any of its forms, alone, under
            ``output``, or in a command to the graph.
    """
    if isinstance(value, str):
        value = object_of(value) if "tool_call_id=" in value else None
    if not isinstance(value, Mapping):
        return None
    if value.get("type") in ("Message", "ToolMessage") and "tool_call_id" in value:
        return value
    if value.get("type") in ("tool", "constructor"):
        fields = value.get("data", value.get("kwargs", value))
        return fields if isinstance(fields, Mapping) and _is_answer(fields, value) else None
    inner = parse(value.get("output")).value
    if isinstance(inner, Mapping) and inner is not value:
        return tool_message(inner)
    return _of_command(value)


def _is_answer(fields: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    """Whether fields belong to a message, not to similar data of the tool."""
    return "content" in fields and (fields is not value or "tool_call_id" in fields)


def _of_command(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    update = value.get("update")
    update_messages = (
        update.get("messages") if isinstance(update, Mapping) and "graph" in value else None
    )
    for item in update_messages if isinstance(update_messages, list) else []:
        fields = tool_message(item)
        if fields is not None:
            return fields
    return None
