"""Message content in the encodings that several dialects share, turned into `Message` values.

A list may hold messages in any form (`message_forms`), parts of messages in any form (`parts`), or
both, as the Responses API mixes them. An item of an unknown form becomes a part of the message
before it, or of a new message; it never becomes a role.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...model import Message, Span, ToolCall
from .message_body import MessageBody, as_list, distinct
from .message_forms import forms_of
from .parts import (
    Result,
    is_reasoning,
    is_written_by_model,
    read_parts,
    unknown_kind,
)
from .read_cache import active
from .usual_messages import usual_message
from .values import parse

__all__ = [
    "EVENT_ROLES",
    "choices",
    "from_event",
    "from_messages",
    "join_neighbours",
    "repeated_message",
    "tool_definitions",
]

EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}


# Fewer items are read in less time than it takes to find them.
_LEAST_REPEATED = 6


def from_messages(value: Any, span: Span, role: str = "user") -> list[Message]:
    """Return the messages of a parsed list of messages, or of parts of messages.

    Args:
        value: The list; a single message, or its text alone, is taken as a list of one.
        span: The span that holds it.
        role: The role of messages that name none.

    Returns:
        The messages. A list without any known item gives none.
    """
    if isinstance(value, str):
        value = [value] if value.strip() else []
    items = value if isinstance(value, list) else [value]
    if len(items) < _LEAST_REPEATED and (few := _few_usual(items, span)):
        return few

    def extend(known: _MessageCollector | None, further: Sequence[Any]) -> _MessageCollector:
        collector = _MessageCollector(span, role) if known is None else known.copy(span)
        collector.add_all(further)
        return collector

    cache = active() if len(items) >= _LEAST_REPEATED else None
    if cache is None:
        return extend(None, items).finish()
    return cache.fold(("messages", role), items, extend, by_value=True).finish()


def _few_usual(items: Sequence[Any], span: Span) -> list[Message]:
    """Return messages that are all in a usual form and not joined; nothing for other items."""
    found: list[Message] = []
    before = ""
    for item in items:
        message = usual_message(item, span) if isinstance(item, dict) else None
        if message is None or message.role == before == "assistant":
            return []
        found.append(message)
        before = message.role
    return found


def repeated_message(message: Mapping[str, Any], span: Span) -> list[Message]:
    """Return the messages that a message gives which other spans hold as well: a system prompt."""

    def extend(_: list[Message] | None, items: Sequence[Any]) -> list[Message]:
        return from_messages(list(items), span)

    cache = active()
    if cache is None:
        return extend(None, [message])
    return cache.fold("repeated message", [message], extend, by_value=True)


class _MessageCollector:
    """Makes messages of the items of one list; neighbouring loose parts share a message.

    Attributes:
        span: The span that holds the items.
        role: The role of messages that name none.
        messages: The messages, all but the last.
        last: The last message, as several where neighbours are joined to one.
        loose: The parts after it that are not in a message.
        loose_messages: The messages that these give, if that is known.
        knows_any: Whether any item is of a known form.
        is_usual: Whether all items are messages in a usual form.
    """

    def __init__(self, span: Span, role: str) -> None:
        self.span = span
        self.role = role
        self.messages: list[Message] = []
        self.last: list[Message] = []
        self.loose: MessageBody | None = None
        self.loose_messages: list[Message] | None = None
        self.knows_any = False
        self.is_usual = True

    def copy(self, span: Span) -> _MessageCollector:
        """Return a collector that goes on after the same items, with those of another span."""
        other = _MessageCollector(span, self.role)
        other.messages = self.messages.copy()
        other.last = self.last.copy()
        other.loose = self.loose.copy() if self.loose else None
        other.loose_messages = self.loose_messages
        other.knows_any = self.knows_any
        other.is_usual = self.is_usual
        return other

    def add_all(self, items: Sequence[Any]) -> None:
        """Add items; the usual forms are read faster, up to the first message in another form."""
        place = 0
        while self.is_usual and place < len(items):
            item = items[place]
            message = usual_message(item, self.span) if isinstance(item, dict) else None
            if message is None:
                self.is_usual = False
                break
            self.knows_any = True
            self._append(message)
            place += 1
        for item in items[place:]:
            self.add(item)

    def _append(self, message: Message) -> None:
        """Add a message; see `join_neighbours`."""
        if message.role == "assistant" and _continues(self.last, message):
            self.last.append(message)
            return
        if self.last:
            self.messages.append(_joined(self.last))
        self.last = [message]

    def add(self, item: Any) -> None:
        if item is None or item == {} or item == []:
            return
        forms = forms_of(item, self.role)
        if forms:
            self._flush()
            self.knows_any = True
            for form in forms:
                message = usual_message(form, self.span)
                for made in [message] if message else _from_form(form, self.span):
                    self._append(made)
        elif isinstance(item, list):
            for inner in item:
                self.add(inner)
        elif isinstance(item, (str, Mapping)):
            self._add_part(item)
        else:
            self._add_unknown({"type": "unknown", "value": item})

    def _add_part(self, item: str | Mapping[str, Any]) -> None:
        role = self._role_of(item)
        if not role and isinstance(item, dict):
            self._add_unknown(item)
            return
        self.knows_any = True
        if self.loose is None or self.loose.role != role:
            self._flush()
            self.loose = MessageBody(role, "", self.span)
        self.loose.add(item)
        self.loose_messages = None

    def _role_of(self, item: str | Mapping[str, Any]) -> str:
        """Return who says a part that stands alone, or "" for one of an unknown kind."""
        part = next(iter(read_parts(item)), None)
        if isinstance(part, Result):
            return "tool"
        if isinstance(part, ToolCall) or (isinstance(item, dict) and is_written_by_model(item)):
            return "assistant"
        if isinstance(part, dict) and unknown_kind(part):
            return ""
        is_input = isinstance(item, dict) and item.get("type") == "input_text"
        return "user" if is_input else self.role

    def _add_unknown(self, part: Mapping[str, Any]) -> None:
        """Keep an item of an unknown form with the message before it."""
        self._flush()
        if self.last:
            last = self.last[-1]
            self.last[-1] = replace(last, parts=(*last.parts, part))
        else:
            self.loose = MessageBody(self.role, "", self.span)
            self.loose.parts.append(part)

    def _flush(self) -> None:
        if self.loose is not None:
            for message in self.loose_messages or self.loose.messages():
                self._append(message)
            self.loose = self.loose_messages = None

    def finish(self) -> list[Message]:
        """Return the messages. Further items may be added to a copy."""
        if not self.knows_any:
            return []
        if self.loose is not None:
            self.loose_messages = self.loose_messages or self.loose.messages()
            whole = self.copy(self.span)
            whole._flush()
            return whole.finish()
        return [*self.messages, _joined(self.last)] if self.last else []


def choices(value: Any) -> tuple[Any, list[Any]]:
    """Return a parsed list of answers as the first choice, and the others one by one.

    Messages of the assistant that each say why they end are choices; else all are one answer.
    Messages that all ask for tools are the parallel calls of one answer.
    """
    if not isinstance(value, list) or len(value) < 2 or not all(map(_is_choice, value)):
        return value, []
    if all(map(_ends_with_calls, value)):
        return value, []
    return value[:1], value[1:]


def _is_choice(item: Any) -> bool:
    if not isinstance(item, dict) or not item.get("finish_reason"):
        return False
    return str(item.get("role") or "assistant") in ("assistant", "model")


_CALLING = ("tool_call", "tool_calls", "function_call", "function_calls", "tool_use")


def _ends_with_calls(item: Mapping[str, Any]) -> bool:
    return item["finish_reason"] in _CALLING


def _from_form(item: Mapping[str, Any], span: Span) -> list[Message]:
    role, name, parts = str(item["role"]), item.get("name"), item.get("parts")
    body = MessageBody(role, name if isinstance(name, str) else "", span)
    if item.get("tool_calls"):
        body.add_calls(item["tool_calls"])
    if isinstance(parts, str):
        parts = parse(parts).value
    if isinstance(parts, list) and (parts or item.get("content") is None):
        for part in parts:
            body.add(part)
    else:
        body.add_content(item.get("content"))
    for invocation in as_list(item.get("toolInvocations")):
        body.add({"toolInvocation": invocation})
    body.add_aside(item)
    if role == "tool" and not body.results and not body.only_approves:
        body.take_as_result(item)
    return body.messages()


def from_event(name: str, body: Any, span: Span) -> list[Message]:
    """Return the messages of one ``gen_ai.*.message`` or ``gen_ai.choice`` event.

    Args:
        name: The event's name.
        body: Its body: a mapping, or JSON text of one.
        span: The span in whose context it was emitted.
    """
    fields = parse(body).value
    if not isinstance(fields, dict):
        fields = {"content": fields}
    inner = parse(fields.get("message")).value
    if name == "gen_ai.choice" and isinstance(inner, dict):
        fields = inner
    elif name == "gen_ai.choice" and isinstance(inner, str):
        fields = {**fields, "content": inner}
    calls = parse(fields.get("tool_calls")).value
    item = {**fields, "role": EVENT_ROLES[name], "tool_calls": calls}
    item.pop("parts", None)
    message = usual_message(item, span)
    return [message] if message else _from_form(item, span)


def join_neighbours(messages: list[Message]) -> list[Message]:
    """Return the messages with calls joined to the assistant message right before them.

    The Responses API, and clients built on it, write parallel calls as one message each, and the
    reasoning before an answer as a separate item.
    """
    pairs = itertools.pairwise(messages)
    if not any(one.role == other.role == "assistant" for one, other in pairs):
        return messages
    groups: list[list[Message]] = []
    for message in messages:
        if groups and message.role == "assistant" and _continues(groups[-1], message):
            groups[-1].append(message)
        else:
            groups.append([message])
    return [_joined(group) for group in groups]


def _continues(before: Sequence[Message], message: Message) -> bool:
    """Return whether an assistant's message belongs to those right before it."""
    if not before or before[0].role != "assistant":
        return False
    return bool(message.tool_calls) or all(map(_only_reasons, before))


def _only_reasons(message: Message) -> bool:
    """Return whether a message is nothing but reasoning."""
    is_bare = message.content is None and not message.tool_calls
    return is_bare and bool(message.parts) and all(map(is_reasoning, message.parts))


def _joined(group: list[Message]) -> Message:
    if len(group) == 1:
        return group[0]
    return replace(
        group[0],
        content="\n".join(message.content for message in group if message.content) or None,
        tool_calls=distinct(call for message in group for call in message.tool_calls),
        parts=tuple(part for message in group for part in message.parts),
    )


def tool_definitions(value: Any) -> tuple[Mapping[str, Any], ...]:
    """Return the tool definitions of a parsed list; other items are left out."""
    found = None if value is None else parse(value).value
    return tuple(item for item in as_list(found) if isinstance(item, dict))
