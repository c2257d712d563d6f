"""Messages of any provider in the form of OpenTelemetry's GenAI conventions: roles and parts.

Read are OpenAI's chat messages and items of its Responses API, Anthropic's messages and blocks,
LangChain's messages, and messages that are in the conventions' form already; as dicts or as objects
of the providers' libraries. A part of an unknown kind is kept as plain JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..jsontext import dumps, loads_exact
from .content import plain

__all__ = [
    "arguments_of",
    "convention_messages",
    "field_of",
    "is_message",
    "name_and_arguments",
    "text_message",
]

_ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "function": "tool"}
_USUAL = ("user", "system", "assistant", "developer")
_TEXTS = frozenset({"text", "input_text", "output_text"})
_CALLS = frozenset({"tool_call", "function_call", "custom_tool_call", "tool_use", "function"})
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_result"})
_LANGCHAIN = frozenset({"human", "ai", "system", "tool"})
_ITEMS = _CALLS | _RESULTS | {"message", "reasoning"}


def field_of(value: Any, name: str, default: Any = None) -> Any:
    """Return a field of a dict or of an object; the default if it has none or it is None."""
    if type(value) is dict or isinstance(value, Mapping):
        found = value.get(name)
    else:
        found = getattr(value, name, None)
    return default if found is None else found


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
    found: list[dict[str, Any]] = []
    for item in items:
        if item is None:
            continue
        if type(item) is dict and len(item) == 2 and _is_usual(item):
            found.append(text_message(item["role"], item["content"]))
            continue
        message = text_message(role, item) if isinstance(item, str) else _message(item, role)
        if _continues(found, item, message):
            found[-1]["parts"] += message["parts"]
        else:
            found.append(message)
    return found


def _is_usual(item: Mapping[str, Any]) -> bool:
    """Return whether a message is a text of a role that the conventions have."""
    role, content = item.get("role"), item.get("content")
    return role in _USUAL and type(content) is str


def _continues(found: Sequence[Mapping[str, Any]], item: Any, message: Mapping[str, Any]) -> bool:
    """Return whether an item of the Responses API belongs to the assistant's message before it."""
    is_loose = not isinstance(item, str) and field_of(item, "type") in _ITEMS
    is_said = message["role"] == "assistant"
    return is_loose and is_said and bool(found) and found[-1]["role"] == "assistant"


def _message(item: Any, default_role: str) -> dict[str, Any]:
    kind = field_of(item, "type", "")
    role = field_of(item, "role")
    if role is None and kind in _CALLS:
        return {"role": "assistant", "parts": [_call(item)]}
    if role is None and kind in _RESULTS:
        return {"role": "tool", "parts": [_result(item)]}
    if role is None and kind == "reasoning":
        return {"role": "assistant", "parts": [_reasoning(item)]}
    name = str(getattr(role, "value", role) or (kind if kind in _LANGCHAIN else default_role))
    name = _ROLES.get(name, name)
    parts = list(_parts(item, name))
    if parts and all(part.get("type") == "tool_call_response" for part in parts):
        name = "tool"
    message: dict[str, Any] = {"role": name, "parts": parts}
    author = field_of(item, "name")
    if isinstance(author, str):
        message["name"] = author
    return message


def _parts(item: Any, role: str) -> Iterator[dict[str, Any]]:
    own = field_of(item, "parts")
    if isinstance(own, (list, tuple)):
        for part in own:
            yield _part(part)
        return
    content = field_of(item, "content")
    if role == "tool":
        call_id = field_of(item, "tool_call_id")
        failed = field_of(item, "status") == "error" or field_of(item, "is_error") is True
        yield _response(call_id, content, failed=failed)
        return
    reasoning = field_of(item, "reasoning_content")
    if isinstance(reasoning, str) and reasoning:
        yield {"type": "reasoning", "content": reasoning}
    if isinstance(content, str):
        if content or not field_of(item, "tool_calls"):
            yield {"type": "text", "content": content}
    elif isinstance(content, (list, tuple)):
        for part in content:
            yield _part(part)
    elif content is not None:
        yield {"type": "text", "content": dumps(plain(content))}
    refusal = field_of(item, "refusal")
    if isinstance(refusal, str):
        yield {"type": "refusal", "content": refusal}
    is_listed = isinstance(content, (list, tuple)) and any(
        field_of(part, "type") in _CALLS for part in content if not isinstance(part, str)
    )
    for call in () if is_listed else field_of(item, "tool_calls", ()):
        yield _call(call)


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "content": part}
    kind = field_of(part, "type")
    text = field_of(part, "text")
    if isinstance(text, str) and (kind is None or kind in _TEXTS):
        return {"type": "text", "content": text}
    if kind in _CALLS:
        return _call(part)
    if kind in _RESULTS:
        return _result(part)
    if kind == "thinking":
        return {"type": "reasoning", "content": field_of(part, "thinking", "")}
    found = plain(part)
    return found if isinstance(found, dict) else {"type": "unknown", "value": found}


def _call(call: Any) -> dict[str, Any]:
    call_id = field_of(call, "call_id") or field_of(call, "id")
    name, arguments = name_and_arguments(call)
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def name_and_arguments(call: Any) -> tuple[str, Any]:
    """Return the name and the parsed arguments of a tool call of any provider."""
    function = field_of(call, "function")
    source = call if function is None or isinstance(function, str) else function
    name = field_of(source, "name", function)
    arguments = next(
        (
            found
            for key in ("arguments", "args", "input")
            if (found := field_of(source, key)) is not None
        ),
        None,
    )
    return str(name or ""), arguments_of(arguments)


def arguments_of(value: Any) -> Any:
    """Return arguments parsed from their JSON text; text that is not JSON stays text."""
    if not isinstance(value, str):
        return {} if value is None else plain(value)
    try:
        return loads_exact(value) if value.strip() else {}
    except ValueError:
        return value


def _result(item: Any) -> dict[str, Any]:
    call_id = next(
        (found for key in ("call_id", "tool_use_id", "id") if (found := field_of(item, key))), None
    )
    content = next(
        (found for key in ("output", "content") if (found := field_of(item, key)) is not None), None
    )
    return _response(call_id, content, failed=field_of(item, "is_error") is True)


def _response(call_id: Any, content: Any, *, failed: bool) -> dict[str, Any]:
    if isinstance(content, (list, tuple)):
        parts = [_part(part) for part in content]
        if all(part.get("type") == "text" for part in parts):
            content = "\n".join(part["content"] for part in parts)
    found = {"type": "tool_call_response", "id": call_id, "response": plain(content)}
    return {**found, "is_error": True} if failed else found


def _reasoning(item: Any) -> dict[str, Any]:
    summary = field_of(item, "summary", ())
    texts = [field_of(part, "text", "") for part in summary if not isinstance(part, str)]
    return {"type": "reasoning", "content": "\n".join(map(str, texts))}
