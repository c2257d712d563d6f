"""Messages that a caller passes, in any form, read strictly.

Nothing is dropped: an item that is not a message, or a part of an unknown kind, raises an
`InputError` that names it. Our own messages stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.errors import InputError
from ..model import Message
from .body import NO_SOURCE
from .call_outcome import decided
from .forms import ROLES, fields_of, forms_of, role_of
from .kinds import unknown_kind
from .parts import is_explicit, read_call, read_parts
from .python_objects import plain_data
from .reader import MessageCollector

__all__ = ["read_direct"]

_KNOWN_ROLES = "assistant (ai), developer, system, tool (function), user (human)"
_CALL_LISTS = ("tool_calls", "invalid_tool_calls", "function_call")


def read_direct(items: Sequence[Any], argument: str) -> tuple[Message, ...]:
    """The messages of a caller's list.

    Args:
        items: Messages in any form, mixed freely, as plain data or as objects of any library.
        argument: The name of the list in error messages.

    Raises:
        InputError: An item is not a message, or contains an unknown part.
    """
    messages, is_known = _read(items)
    if not is_known:
        raise InputError(_problem(items, argument))
    return tuple(map(decided, messages))


def _read(items: Sequence[Any]) -> tuple[list[Message], bool]:
    """The messages of a list, and whether all of it is known."""
    collector = MessageCollector(NO_SOURCE, "", is_recorded=False)
    for item in items:
        collector.add(item)
    messages = collector.finish()
    is_known = not collector.misfits
    for message in messages:
        if role_of(message.role) not in ROLES or (message.parts and _has_unknown(message, items)):
            is_known = False
    return messages, is_known


def _has_unknown(message: Message, items: Sequence[Any]) -> bool:
    """Whether a message has a part of an unknown kind and is not the caller's own."""
    is_own = any(message is item for item in items)
    return not is_own and any(map(unknown_kind, message.parts))


def _problem(items: Sequence[Any], argument: str) -> str:
    """The first reason why a list cannot be read."""
    for index, item in enumerate(items):
        if not _read([item])[1]:
            return next(_problems(item, f"{argument}[{index}]"))
    return f"{argument} cannot be read as messages"


def _problems(item: Any, argument: str) -> Iterator[str]:
    """Yield the reasons why an item is not a message, the most particular one first."""
    if item is None:
        yield f"{argument} is None; a message was expected"
    data = plain_data(item)
    forms = forms_of(data, "") if isinstance(data, (dict, list)) else []
    for form in forms:
        if form["role"] in ROLES:
            yield from _problems_of_calls(fields_of(data) or form, argument)
            yield from _problems_of_blocks(form, argument)
    fields = data if isinstance(data, Mapping) else {}
    role = item.role if isinstance(item, Message) else fields.get("role", fields.get("type"))
    if role is None:
        kind = "a dict" if isinstance(item, Mapping) else f"a {type(item).__name__}"
        yield f"{argument}: {kind} without a role is not a message; known roles: {_KNOWN_ROLES}"
    elif not forms or forms[0]["role"] not in ROLES:
        yield f"{argument}: unknown role {role!r}; known roles: {_KNOWN_ROLES}"
    yield f"{argument} cannot be read as a message"


def _problems_of_calls(form: Mapping[str, Any], argument: str) -> Iterator[str]:
    for key in _CALL_LISTS:
        calls = form.get(key) or ()
        if key == "function_call":
            calls = [calls] if calls else []
        if not isinstance(calls, (list, tuple)):
            kind = type(calls).__name__
            yield f"{argument}.{key} is a {kind}; a list of calls was expected"
            return
        for index, call in enumerate(calls):
            if read_call(call) is None:
                yield f"{argument}.{key}[{index}]: {_NAMELESS}"


_NAMELESS = "a tool call needs a name, as in {'name': ..., 'args': ...}"


def _problems_of_blocks(form: Mapping[str, Any], argument: str) -> Iterator[str]:
    blocks = form.get("parts") or form.get("content")
    for index, block in enumerate(blocks if isinstance(blocks, list) else [blocks]):
        for part in read_parts(block):
            kind = unknown_kind(part) if isinstance(part, dict) else ""
            if kind and is_explicit(part):
                yield f"{argument} block {index}: {_NAMELESS}"
            elif kind:
                yield f"{argument} block {index}: no form of messages has a part of kind {kind!r}"
