"""One message in the form of any library, as a mapping with ``role`` and ``content`` or ``parts``.

It reads LangChain's dumps (the constructor ``{"lc": 1, "kwargs": {...}}``, the older ``{"type":
"human", "data": {...}}``, and the fields alone), Pydantic AI's requests and responses, and the
envelopes that providers put around a message (OpenAI's choice, Gemini's candidate), with any
spelling of a role. Facts from langchain-core's ``load`` and ``messages``, and from
``pydantic_ai.messages``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from .python_objects import object_of
from .values import parse

__all__ = ["ROLES", "ROLE_NAMES", "SYSTEM_ROLES", "fields_of", "forms_of", "is_pair", "role_of"]

_CONSTRUCTORS = ("constructor", "not_implemented")
# Fields that only a message has, but none of its parts.
_MESSAGE_FIELDS = frozenset(
    {"parts", "tool_calls", "toolCalls", "function_call", "toolInvocations"}
)
_EXTRAS = frozenset(
    {
        *("additional_kwargs", "blocks", "function_call", "invalid_tool_calls", "tool_calls"),
        "toolCalls",
    }
)
# How libraries print a message: LlamaIndex, Semantic Kernel and others.
_MESSAGE_REPRS = ("ChatMessage(", "Message(")
_UNUSUAL = _EXTRAS - {"tool_calls"} | {"kind", "type"}
_PROMPTS = {"system-prompt": "system", "user-prompt": "user"}


def is_pair(item: list[Any]) -> bool:
    """Whether a list is LangChain's short form of a message: a role and its text."""
    return len(item) == 2 and all(isinstance(text, str) for text in item)


def forms_of(item: Any, role: str) -> list[Mapping[str, Any]]:
    """The messages in one item, each with its ``role``.

    Args:
        item: The item of a list of messages.
        role: The role of messages that name none.

    Returns:
        The messages; none if the item is a part of a message, or unknown.
    """
    if isinstance(item, str) and item.startswith(_MESSAGE_REPRS):
        item = object_of(item)
    if is_usual(item):
        return [item]
    if isinstance(item, list) and is_pair(item):
        return [{"role": role_of(item[0]), "content": item[1]}]
    fields = fields_of(item)
    if fields is None:
        return []
    if "_role" in fields:  # Haystack's, before version 2.12
        fields = {key.removeprefix("_"): value for key, value in fields.items()}
    if fields.get("kind") in ("request", "response") and isinstance(fields.get("parts"), list):
        return _of_pydantic_ai(fields)
    inner = _enveloped(fields)
    if inner is not None:
        return forms_of(inner, role) or [{"role": role, "content": inner.get("content")}]
    said_by = _role(fields, item) or _default_role(fields, role)
    if said_by == "thinking":  # OpenLLMetry's, of Anthropic
        thought = {"type": "reasoning", "content": fields.get("content")}
        return [{"role": "assistant", "parts": [thought]}]
    return [_with_extras({**fields, "role": said_by})] if said_by else []


def is_usual(item: Any) -> bool:
    """Whether an item is a message that names one of `ROLES`, in no library's own form."""
    if type(item) is not dict or not _UNUSUAL.isdisjoint(item):
        return False
    role = item.get("role")
    return type(role) is str and role in ROLES


def fields_of(item: Any) -> Mapping[str, Any] | None:
    """The fields of a message in any of LangChain's forms, or None."""
    if not isinstance(item, dict):
        return None
    inner = item.get("kwargs" if item.get("type") in _CONSTRUCTORS else "data")
    if isinstance(inner, dict) and (item.get("type") in _CONSTRUCTORS or "role" not in item):
        return inner
    return None if item.get("type") in _CONSTRUCTORS else item


def _enveloped(fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The message inside of a choice or a candidate, or None."""
    if "role" in fields:
        return None
    for key in ("message", "content"):
        inner = fields.get(key)
        if isinstance(inner, dict) and not {"role", "parts"}.isdisjoint(inner):
            return inner
    return None


def _role(fields: Mapping[str, Any], item: Any) -> str:
    """The role of a message: its own, or the role that its type or class names."""
    if fields.get("role"):
        return role_of(fields["role"])
    kinds = [fields.get("type")]
    if item is not fields and isinstance(item, dict):
        path = item.get("id") if "lc" in item else None
        kinds.append(path[-1] if isinstance(path, list) and path else item.get("type"))
    for kind in kinds:
        role = role_of(kind)
        if role in ROLES and not isinstance(fields.get("function"), dict):
            return role
    return ""


def _default_role(fields: Mapping[str, Any], role: str) -> str:
    """The role of a message that names none; "" for a part of a message."""
    if fields.get("tool_calls") or fields.get("toolInvocations"):
        return "assistant"
    kind = fields.get("type")
    if kind not in (None, "", "message"):
        return ""
    if fields.get("tool_call_id"):
        return "tool"
    is_message = "content" in fields or not _MESSAGE_FIELDS.isdisjoint(fields)
    return role if is_message else ""


def _with_extras(fields: dict[str, Any]) -> dict[str, Any]:
    """A message with the content and the calls of its less usual fields."""
    if _EXTRAS.isdisjoint(fields):
        return fields
    if fields.get("content") is None and isinstance(fields.get("blocks"), list):
        fields = {**fields, "content": fields["blocks"]}  # LlamaIndex's
    listed = fields.get("tool_calls")
    if listed and isinstance(listed, list) and not fields.get("invalid_tool_calls"):
        return fields
    extra = fields.get("additional_kwargs")
    extra = extra if isinstance(extra, dict) else {}
    calls = [*_calls_in(fields.get("tool_calls")), *_calls_in(fields.get("invalid_tool_calls"))]
    calls = calls or _calls_in(fields.get("toolCalls")) or _calls_in(fields.get("function_call"))
    calls = calls or _calls_in(extra.get("tool_calls")) or _calls_in(extra.get("function_call"))
    call_id = fields.get("tool_call_id") or extra.get("tool_call_id")
    return {**fields, "tool_calls": calls, "tool_call_id": call_id}


def _calls_in(value: Any) -> list[Any]:
    """A message's calls: a list of them, one, or the text of either."""
    calls = parse(value).value if isinstance(value, str) else value
    return calls if isinstance(calls, list) else [calls] if calls else []


def _of_pydantic_ai(fields: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The messages of a Pydantic AI request or response, one per prompt."""
    if fields["kind"] == "response":
        return [{"role": "assistant", "parts": fields["parts"]}]
    messages: list[Mapping[str, Any]] = []
    for part in fields["parts"]:
        kind = part.get("part_kind") if isinstance(part, dict) else None
        is_retry = kind == "retry-prompt" and not part.get("tool_name")
        part = {**part, "part_kind": "user-prompt"} if is_retry else part
        messages.append({"role": _PROMPTS.get(str(kind), "user"), "parts": [part]})
    return messages


SYSTEM_ROLES = ("system", "developer")
ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_SPELLINGS = {
    "agent": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "chatbot": "assistant",
    "function": "tool",
    "functionresponse": "tool",
    "gpt": "assistant",
    "human": "user",
    "ipython": "tool",
    "llm": "assistant",
    "model": "assistant",
    "observation": "tool",
    "toolresult": "tool",
}
ROLE_NAMES = {**{role: role for role in ROLES}, **_SPELLINGS}
"""The role of each of its plain names; `role_of` knows further spellings."""
# Serialised enumerations: ``{"Label": "user"}`` of Semantic Kernel, ``{"value": ...}`` of others.
_ENUM_KEYS = ("value", "Value", "label", "Label", "name")


def role_of(value: Any) -> str:
    """Return one of `ROLES` for any of its spellings; an unknown role stays as it is.

    Args:
        value: The role, such as ``user``, ``Human``, ``MessageRole.USER`` or ``HumanMessage``.

    Returns:
        The role, or "" if the value names none.
    """
    if isinstance(value, dict):
        value = next((value[key] for key in _ENUM_KEYS if key in value), "")
    return _role_of_text(value) if isinstance(value, str) else ""


@lru_cache(maxsize=1024)
def _role_of_text(text: str) -> str:
    text = text.strip()
    name = text.rpartition(".")[2].lower().removeprefix("role_")
    name = name.removesuffix("chunk").removesuffix("message").strip("_-")
    role = _SPELLINGS.get(name, name)
    return role if role in ROLES else text
