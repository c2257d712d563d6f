"""Messages that callers pass to evaluators, in any form, read into `oteval.model.Message`.

For messages in spans, see `oteval.reconstruct.readers`.

A **form** is recognised by an object's fields, never by its class, so that no framework is
imported: OpenAI dicts and objects, LangChain messages and chunks (and their dumped and
serialised dicts), Anthropic content blocks, GenAI ``parts`` messages and our own `Message`.
They may be mixed freely. The caller's objects are only read.

Anthropic and GenAI put tool results into a user's message; they become tool messages, one for
each result, before the user's text in the same message. **Absent** arguments (None, blank
text) are an empty object; only our own `ToolCall` can say that arguments were not captured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import InputError
from ..jsontext import dumps, loads_exact
from ..model import Message, ToolCall

__all__ = ["ROLES", "convert", "entries", "field", "parse_arguments", "to_messages"]

_KINDS = {
    "System": "system",
    "Human": "user",
    "AI": "assistant",
    "Tool": "tool",
    "Function": "tool",
}

ROLES: dict[str, str] = {
    **{role: role for role in ("system", "developer", "user", "assistant", "tool")},
    "ai": "assistant",
    "human": "user",
    "function": "tool",
    **{f"{kind}Message{end}": role for kind, role in _KINDS.items() for end in ("", "Chunk")},
}
"""Every known name of a role, and the role."""

_KNOWN = "assistant (ai), developer, system, tool (function), user (human)"
_CALLS = frozenset({"tool_use", "tool_call", "function_call"})
_RESULTS = frozenset({"tool_result", "tool_call_response"})


def to_messages(value: Any, place: str = "messages") -> tuple[Message, ...]:
    """Return the messages of a trajectory in whatever form.

    Args:
        value: A list of messages, one message, a dict with ``messages``, or an object with
            ``messages`` such as a `Trajectory`.
        place: The name of the value in error messages.

    Returns:
        The messages, in order.

    Raises:
        InputError: The value, or a message in it, cannot be read.
    """
    items, place = entries(value, place)
    return tuple(
        message for i, item in enumerate(items) for message in convert(item, f"{place}[{i}]")
    )


def entries(value: Any, place: str) -> tuple[Sequence[Any], str]:
    """Return the list of messages that a value holds, still in their own form.

    Args:
        value: As for `to_messages`.
        place: The name of the value in error messages.

    Returns:
        The messages, and the name of their list in error messages.

    Raises:
        InputError: The value holds no list of messages.
    """
    if isinstance(value, (list, tuple)):
        return value, place
    if value is None:
        raise InputError(
            f"{place} is None; pass a list of messages (an empty list is a legal trajectory)"
        )
    if isinstance(value, Mapping):
        return _entries_of_mapping(value, place)
    if isinstance(getattr(value, "messages", None), (list, tuple)):
        return value.messages, f"{place}.messages"
    if isinstance(_role_name(value), str):
        return [value], place
    raise InputError(
        f"{place} is a {type(value).__name__}; pass a list of messages, one message, "
        "a dict with 'messages', or a Trajectory"
    )


def _entries_of_mapping(value: Mapping[str, Any], place: str) -> tuple[Sequence[Any], str]:
    if "role" in value:
        return [value], place
    if "messages" in value:
        inner = value["messages"]
        if isinstance(inner, Mapping) and "role" not in inner and "messages" in inner:
            raise InputError(f"{place}.messages holds 'messages' again; pass the inner one")
        return entries(inner, f"{place}.messages")
    if _role_name(_unwrapped(value)) in ROLES:
        return [value], place
    if set(value) == {"output"}:  # LangSmith's form of a value that is not a dict
        return entries(value["output"], f"{place}.output")
    keys = ", ".join(sorted(map(repr, value))) or "none"
    raise InputError(
        f"{place}: a dict needs 'messages' (a trajectory) or 'role' (one message); its keys: {keys}"
    )


def convert(item: Any, place: str) -> list[Message]:
    """Return the messages that one item stands for: one, or more where it holds tool results.

    Args:
        item: A message in any form.
        place: Its name in error messages.

    Returns:
        At least one message.

    Raises:
        InputError: The item cannot be read as a message; the text names the place.
    """
    if item is None:
        raise InputError(f"{place} is None; a message was expected")
    if type(item) is Message and item.role in ROLES:
        return [item]
    role = _role(item, place)
    if isinstance(item, Message):
        return [item]
    data = _unwrapped(item)
    blocks = field(data, "parts")
    content = field(data, "content")
    if not isinstance(blocks, (list, tuple)) or not blocks:
        blocks = content if isinstance(content, (list, tuple)) else ()
        text = None if blocks else _text(content)
    else:
        text = _text(content) if isinstance(content, str) else None
    return _assemble(data, role, text, blocks, place)


def _assemble(
    data: Any, role: str, text: str | None, blocks: Sequence[Any], place: str
) -> list[Message]:
    texts: list[str] = [] if not text else [text]
    rest: list[Mapping[str, Any]] = []
    results: list[Message] = []
    calls = list(_explicit_calls(data, place))
    explicit, known = bool(calls), {call.id for call in calls if call.id}
    for i, block in enumerate(blocks):
        kind = field(block, "type")
        if isinstance(block, str) or kind == "text":
            texts.append(block if isinstance(block, str) else _block_text(block))
        elif kind in _CALLS:
            call = _call(block, f"{place} block {i}")
            # Frameworks repeat the content blocks' calls in `tool_calls`.
            if not explicit or (known and call.id and call.id not in known):
                calls.append(call)
        elif kind in _RESULTS:
            results.append(_result(block))
        elif isinstance(block, Mapping):
            rest.append(block)
    message = Message(
        role=role,
        content="".join(texts) if texts else text,
        tool_calls=tuple(calls),
        tool_call_id=str(field(data, "tool_call_id") or "") if role == "tool" else "",
        name=str(field(data, "name") or ""),
        is_error=role == "tool" and _failed(data),
        parts=tuple(rest),
    )
    return _ordered(message, results)


def _ordered(message: Message, results: list[Message]) -> list[Message]:
    """Put results before a user's text, and after the calls of an assistant."""
    if not results:
        return [message]
    if message.role == "assistant":
        return [message, *results]
    empty = not (message.content or message.tool_calls or message.parts)
    return results if empty or message.role == "tool" else [*results, message]


def _explicit_calls(data: Any, place: str) -> Iterable[ToolCall]:
    calls = field(data, "tool_calls")
    if calls:
        if not isinstance(calls, (list, tuple)):
            raise InputError(
                f"{place}.tool_calls is a {type(calls).__name__}; a list of calls was expected"
            )
        for i, call in enumerate(calls):
            yield _call(call, f"{place}.tool_calls[{i}]")
    # LangChain keeps calls whose arguments are not valid JSON apart.
    invalid = field(data, "invalid_tool_calls")
    if isinstance(invalid, (list, tuple)):
        for i, call in enumerate(invalid):
            if field(call, "name"):
                yield _call(call, f"{place}.invalid_tool_calls[{i}]")
    legacy = field(data, "function_call")
    if legacy and not calls:
        yield _call(legacy, f"{place}.function_call")


def _call(call: Any, place: str) -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    inner = field(call, "function") or field(call, "custom") or call
    name = field(inner, "name")
    if not isinstance(name, str):
        raise InputError(f"{place}: a tool call needs a name, as in {{'name': ..., 'args': ...}}")
    values = (field(inner, key) for key in ("args", "arguments", "input"))
    arguments = next((value for value in values if value is not None), None)
    call_id = field(call, "id") or field(call, "call_id") or ""
    return ToolCall(name=name, arguments=parse_arguments(arguments), id=str(call_id))


def parse_arguments(value: Any) -> Any:
    """Return a call's arguments as a value.

    Args:
        value: JSON text, a mapping, a model object, or None.

    Returns:
        The parsed value; ``{}`` for an absent, blank or null value; text that is not valid JSON
        as it is.
    """
    if isinstance(value, (str, bytes)):
        try:
            value = loads_exact(value)
        except (ValueError, RecursionError):
            text = value if isinstance(value, str) else value.decode(errors="replace")
            return text if text.strip() else {}
    if value is None:
        return {}
    if isinstance(value, Mapping) and not isinstance(value, dict):
        return dict(value)
    return value.model_dump() if hasattr(value, "model_dump") else value


def _result(block: Any) -> Message:
    keys = ("tool_use_id", "tool_call_id", "id", "call_id")
    call_id = next((value for key in keys if (value := field(block, key))), "")
    keys = ("response", "result", "content", "output")
    body = next((value for key in keys if (value := field(block, key)) is not None), None)
    return Message(
        role="tool",
        content=_text(body),
        tool_call_id=str(call_id),
        name=str(field(block, "name") or ""),
        is_error=_failed(block),
    )


def _failed(data: Any) -> bool:
    return bool(field(data, "is_error") or field(data, "error") or field(data, "status") == "error")


def _text(content: Any) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        texts = [block if isinstance(block, str) else _block_text(block) for block in content]
        return "".join(texts)
    return dumps(content)


def _block_text(block: Any) -> str:
    text = field(block, "text")
    if text is None:
        text = field(block, "content")
    return text if isinstance(text, str) else dumps(block) if text is None else dumps(text)


def _role(item: Any, place: str) -> str:
    name = _role_name(_unwrapped(item))
    role = ROLES.get(name) if isinstance(name, str) else None
    if role is not None:
        return role
    if name is None:
        what = "a dict" if isinstance(item, Mapping) else f"a {type(item).__name__}"
        raise InputError(f"{place}: {what} without a role is not a message; known roles: {_KNOWN}")
    raise InputError(f"{place}: unknown role {name!r}; known roles: {_KNOWN}")


def _role_name(item: Any) -> Any:
    name = field(item, "role")
    return field(item, "type") if name is None else name


def _unwrapped(item: Any) -> Any:
    """Return a message out of LangChain's serialised form; anything else as it is."""
    if isinstance(item, Mapping) and item.get("type") == "constructor":
        inner, path = item.get("kwargs"), item.get("id")
        if isinstance(inner, Mapping) and isinstance(path, (list, tuple)) and path:
            return {"type": path[-1], **inner}
    return item


def field(item: Any, name: str) -> Any:
    """Return a key of a mapping or an attribute of an object; None where there is none."""
    if isinstance(item, (dict, Mapping)):
        return item.get(name)
    return getattr(item, name, None)
