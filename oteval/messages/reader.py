"""Message content in the encodings that several dialects share, turned into `Message` values.

A list may contain messages in any form (`forms`), parts of messages in any form (`parts`), or both,
as the Responses API mixes them. An item of an unknown form becomes a part of the message before it,
or of a new message; it never becomes a role.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..model import Message, ToolCall
from .body import (
    BESIDE_TEXT,
    MessageBody,
    MessageSource,
    as_list,
    distinct,
    may_spell_parts,
    result_message,
)
from .forms import forms_of, is_usual
from .kinds import is_reasoning, is_written_by_model, unknown_kind
from .parts import Result, read_parts, read_result
from .python_objects import plain_data
from .read_cache import active
from .values import hidden, parse

__all__ = [
    "EVENT_ROLES",
    "MessageCollector",
    "choices",
    "from_event",
    "from_form",
    "from_messages",
    "join_neighbours",
    "repeated_message",
    "text_message",
    "tool_definitions",
]

EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}


# Reading fewer items takes less time than looking them up.
_LEAST_REPEATED = 6
_PLAIN = frozenset({str, list, dict, type(None), bool, int, float})
# Fields with content other than the text of a message.
_BESIDE_TEXT = BESIDE_TEXT | {"toolInvocations", "tool_calls"}


def from_messages(value: Any, source: MessageSource, role: str = "user") -> list[Message]:
    """The messages of a parsed list of messages, or of parts of messages.

    Args:
        value: The list; a single message, or its text, is read as a list of one.
        source: Where it was read.
        role: The role of messages that name none.

    Returns:
        The messages; none for a list without any known item.
    """
    if isinstance(value, str):
        value = [value] if value.strip() else []
    items = value if isinstance(value, list) else [value]
    if len(items) == 1 and is_usual(items[0]):
        return from_form(items[0], source)  # there is nothing to join
    cache = active() if len(items) >= _LEAST_REPEATED else None
    if cache is None and all(map(is_usual, items)):
        return join_neighbours([m for item in items for m in from_form(item, source)])
    if cache is None:
        collector = MessageCollector(source, role)
        for item in items:
            collector.add(item)
        return collector.finish()

    def extend(earlier: MessageCollector | None, further: Sequence[Any]) -> MessageCollector:
        collector = MessageCollector(source, role) if earlier is None else earlier.copy(source)
        for item in further:
            collector.add(item)
        return collector

    return cache.fold(("messages", role), items, extend, by_value=True).finish()


def text_message(value: Any, source: MessageSource, role: str) -> tuple[Message, ...]:
    """A text as the only message of a role; none for a placeholder, or any other value."""
    if not isinstance(value, str) or not value or hidden(value):
        return ()
    return (Message(role, value, span_id=source.span_id, trace_id=source.trace_id),)


def repeated_message(message: Mapping[str, Any], source: MessageSource) -> list[Message]:
    """The messages of a message that other spans repeat, such as a system prompt."""

    def extend(_: list[Message] | None, items: Sequence[Any]) -> list[Message]:
        return from_messages(list(items), source)

    cache = active()
    if cache is None:
        return extend(None, [message])
    return cache.fold("repeated message", [message], extend, by_value=True)


class MessageCollector:
    """Makes messages of the items of one list; neighbouring loose parts share a message.

    Args:
        source: Where the items were read.
        role: The role of messages that name none; "" if these are not messages.
        is_recorded: Whether an instrumentation wrote the list. If so, neighbours that are one
            answer are joined, and texts may contain parts. A caller's messages stay as they are.

    Attributes:
        misfits: Whether any item is neither a message nor a part outside a message.
    """

    __slots__ = (
        *("_is_last_loose", "_is_recorded", "_knows_any", "_last", "_loose", "_loose_messages"),
        *("_messages", "_role", "_source", "misfits"),
    )

    def __init__(self, source: MessageSource, role: str, *, is_recorded: bool = True) -> None:
        self._source = source
        self._role = role
        self._is_recorded = is_recorded
        # All messages but the last, and the last: several messages if neighbours are joined.
        self._messages: list[Message] = []
        self._last: list[Message] = []
        self._is_last_loose = False
        # The later parts that are outside a message, and the messages made of them.
        self._loose: MessageBody | None = None
        self._loose_messages: list[Message] | None = None
        self._knows_any = False
        self.misfits = False

    def copy(self, source: MessageSource) -> MessageCollector:
        """A copy that continues with items of another source."""
        duplicate = MessageCollector(source, self._role, is_recorded=self._is_recorded)
        duplicate._messages = self._messages.copy()
        duplicate._last = self._last.copy()
        duplicate._is_last_loose = self._is_last_loose
        duplicate._loose = self._loose.copy() if self._loose else None
        duplicate._loose_messages = self._loose_messages
        duplicate._knows_any = self._knows_any
        duplicate.misfits = self.misfits
        return duplicate

    def _append(self, message: Message, *, is_loose: bool = False) -> None:
        """Add a message; see `join_neighbours`."""
        last = self._last
        may_join = self._is_recorded or is_loose or self._is_last_loose
        if message.role == "assistant" and may_join and _continues(last, message):
            last.append(message)
            return
        if last:
            self._messages.append(last[0] if len(last) == 1 else _joined(last))
        self._last = [message]
        self._is_last_loose = is_loose

    def add(self, item: Any) -> None:
        """Add an item: a message or several, or a part outside of a message."""
        if not self._is_recorded:
            if type(item) is Message:
                self._flush()
                self._append(item)
                self._knows_any = True
                return
            if type(item) is not dict or not _PLAIN.issuperset(map(type, item.values())):
                item = plain_data(item)
        elif type(item) is str and item[:1] == "{":
            # Attributes of some SDKs are lists of texts.
            written = parse(item).value
            item = written if is_usual(written) else item
        if is_usual(item):
            forms: Sequence[Mapping[str, Any]] = (item,)
        elif not item and (item is None or item == {} or item == []):
            self.misfits = True
            return
        else:
            forms = forms_of(item, self._role)
        if forms:
            if self._loose is not None:
                self._flush()
            self._knows_any = True
            for form in forms:
                for message in from_form(form, self._source, is_recorded=self._is_recorded):
                    self._append(message)
        elif isinstance(item, list):
            for inner in item:
                self.add(inner)
        elif isinstance(item, (str, Mapping)):
            self._add_part(item)
        else:
            self._add_unknown({"type": "unknown", "value": item})

    def _add_part(self, item: str | Mapping[str, Any]) -> None:
        role = self._role_of(item)
        if not role:
            self._add_unknown(item if isinstance(item, Mapping) else {"type": "text", "text": item})
            return
        self._knows_any = True
        if self._loose is None or self._loose.role != role:
            self._flush()
            self._loose = MessageBody(role, "", self._source, is_recorded=self._is_recorded)
        self._loose.add(item)
        self._loose_messages = None

    def _role_of(self, item: str | Mapping[str, Any]) -> str:
        """The role of a part outside of a message, or "" for a part of an unknown kind."""
        part = next(iter(read_parts(item)), None)
        if isinstance(part, Result):
            return "tool"
        if isinstance(part, ToolCall) or (isinstance(item, dict) and is_written_by_model(item)):
            return "assistant"
        if isinstance(part, dict) and unknown_kind(part):
            return ""
        is_input = isinstance(item, dict) and item.get("type") == "input_text"
        return "user" if is_input else self._role

    def _add_unknown(self, part: Mapping[str, Any]) -> None:
        """Keep an item of an unknown form with the message before it."""
        self.misfits = True
        self._flush()
        if self._last:
            last = self._last[-1]
            self._last[-1] = replace(last, parts=(*last.parts, part))
        else:
            self._loose = MessageBody(self._role, "", self._source)
            self._loose.parts.append(part)

    def _flush(self) -> None:
        if self._loose is not None:
            for message in self._loose_messages or self._loose.messages():
                self._append(message, is_loose=True)
            self._loose = self._loose_messages = None

    def finish(self) -> list[Message]:
        """The messages. Further items may be added to a copy."""
        if not self._knows_any:
            return []
        if self._loose is None:
            return [*self._messages, _joined(self._last)] if self._last else []
        self._loose_messages = self._loose_messages or self._loose.messages()
        flushed = self.copy(self._source)
        flushed._flush()
        return flushed.finish()


def choices(value: Any, count: int = 0) -> tuple[Any, list[Any]]:
    """The first choice in a parsed list of answers, and the other choices one by one.

    Messages of the assistant are choices if each has a finish reason and is an answer by itself:
    all are texts, or their indices differ. Reasoning, a tool that the provider ran, a text and
    calls are the items of one answer. Messages that all request tools are one answer as well.

    Args:
        value: The list.
        count: The number of requested choices; 0 if unknown.
    """
    if not isinstance(value, list) or len(value) < 2 or not all(map(_is_choice, value)):
        return value, []
    if count > 1 or _have_indices(value):
        return value[:1], value[1:]
    if count == 1 or all(map(_ends_with_calls, value)) or not all(map(_is_answer, value)):
        return value, []
    return value[:1], value[1:]


def _have_indices(value: Sequence[Mapping[str, Any]]) -> bool:
    """Whether messages have different indices of choices."""
    return len({item["index"] for item in value if isinstance(item.get("index"), int)}) > 1


def _is_answer(item: Mapping[str, Any]) -> bool:
    """Whether a message may be a whole answer: it has a text, or only media."""
    parts = item.get("parts")
    if not isinstance(parts, list):
        return True
    read = [message for part in parts for message in read_parts(part)]
    if any(isinstance(part, str) for part in read):
        return True
    return all(isinstance(part, Mapping) and not is_reasoning(part) for part in read)


def _is_choice(item: Any) -> bool:
    if not isinstance(item, dict) or not item.get("finish_reason"):
        return False
    return str(item.get("role") or "assistant") in ("assistant", "model")


_CALLING = ("tool_call", "tool_calls", "function_call", "function_calls", "tool_use")


def _ends_with_calls(item: Mapping[str, Any]) -> bool:
    return item["finish_reason"] in _CALLING


def from_form(
    item: Mapping[str, Any], source: MessageSource, *, is_recorded: bool = True
) -> list[Message]:
    """The messages of one message that names its role; see `forms.forms_of`."""
    role, content, parts = item["role"], item.get("content"), item.get("parts")
    name, has_more = "", False
    if len(item) > 2 or parts is None is content:
        if role == "user" and item.get("tool_call_id"):
            role = "tool"  # Anthropic's results are in the user's messages
        author, has_more = item.get("name"), not _BESIDE_TEXT.isdisjoint(item)
        name = author if isinstance(author, str) else ""
    plain = None if has_more else _plain_parts(content, parts)
    if plain is not None:
        # Most messages, which need no body.
        texts, calls, result = plain
        if result is not None:
            return [result_message(result, source)]
        if role == "tool":
            if len(texts) == 1 and not calls:
                return [result_message(read_result(item, texts[0]), source)]
        elif not is_recorded or not [t for t in texts if _is_more_than_text(t, role, calls)]:
            text = "\n".join(texts) if texts else None
            text = (text or None) if calls else text
            calls = distinct(calls) if is_recorded else tuple(calls)
            # Names of arguments take a third of the time of the call.
            ids = (source.span_id, source.trace_id)
            return [Message(role, text, calls, "", name, False, (), *ids)]
    body = MessageBody(role, name, source, is_recorded=is_recorded)
    if has_more and item.get("tool_calls"):
        body.add_calls(item["tool_calls"])
    if isinstance(parts, str):
        parts = parse(parts).value
    if isinstance(parts, list) and (parts or content is None):
        for part in parts:
            body.add(part)
    else:
        body.add_content(content)
    if has_more:
        if "toolInvocations" in item:
            for invocation in as_list(item["toolInvocations"]):
                body.add({"toolInvocation": invocation})
        body.add_aside(item)
    if role == "assistant" and [] in (content, parts):
        body.add_empty()
    if role == "tool" and not body.results and not body.only_approves:
        body.take_as_result(item)
    return body.messages()


def _plain_parts(
    content: Any, parts: Any
) -> tuple[list[str], Sequence[ToolCall], Result | None] | None:
    """The texts and calls, or the single result, of a message with no other content.

    Returns:
        The texts, the calls, and the result; None for any other message.
    """
    if parts is None or content is not None:
        return ([content], (), None) if parts is None and type(content) is str else None
    if type(parts) is not list or not parts:
        return None
    texts: list[str] = []
    calls: list[ToolCall] = []
    for part in parts:
        if type(part) is not dict or "parts" in part:
            return None
        is_text = len(part) == 2 and part.get("type") == "text" and "content" in part
        read: Sequence[Any] = (part["content"],) if is_text else read_parts(part)
        kind = type(read[0]) if len(read) == 1 else None
        if kind is str:
            texts.append(read[0])
        elif kind is ToolCall:
            calls.append(read[0])
        elif kind is Result and len(parts) == 1:
            return texts, calls, read[0]
        else:
            return None
    return texts, calls, None


def _is_more_than_text(text: str, role: str, calls: Sequence[ToolCall]) -> bool:
    """Whether a text may contain parts, or repeat one of the message's calls."""
    return may_spell_parts(text, role) or (bool(calls) and text.lstrip()[:1] == "{")


def from_event(name: str, body: Any, source: MessageSource) -> list[Message]:
    """The messages of one ``gen_ai.*.message`` or ``gen_ai.choice`` event.

    Args:
        name: The event's name.
        body: Its body: a mapping, or JSON text of one.
        source: The span in whose context it was emitted.
    """
    fields = parse(body).value
    if not isinstance(fields, dict):
        fields = {"content": fields}
    inner = parse(fields.get("message")).value
    if name == "gen_ai.choice" and isinstance(inner, dict):
        fields = inner
    elif name == "gen_ai.choice" and isinstance(inner, str):
        fields = {**fields, "content": inner}
    content = fields.get("content")
    if isinstance(content, dict) and isinstance(content.get("parts"), list):
        fields = {**fields, "content": content["parts"]}  # Gemini's
    calls = parse(fields.get("tool_calls")).value
    item = {**fields, "role": EVENT_ROLES[name], "tool_calls": calls}
    item.pop("parts", None)
    return from_form(item, source)


def join_neighbours(messages: list[Message]) -> list[Message]:
    """The messages; calls are joined to the assistant message right before them.

    The Responses API, and clients built on it, write each parallel call as a separate message, and
    the reasoning before an answer as a separate item.
    """
    before = ""
    for message in messages:
        if message.role == "assistant" == before:
            break
        before = message.role
    else:
        return messages
    groups: list[list[Message]] = []
    for message in messages:
        if groups and message.role == "assistant" and _continues(groups[-1], message):
            groups[-1].append(message)
        else:
            groups.append([message])
    return [_joined(group) for group in groups]


def _continues(before: Sequence[Message], message: Message) -> bool:
    """Whether an assistant's message belongs to the messages right before it."""
    if not before or before[0].role != "assistant":
        return False
    if message.name and before[0].name and message.name != before[0].name:
        return False  # another agent's
    return bool(message.tool_calls) or all(map(_only_reasons, before))


def _only_reasons(message: Message) -> bool:
    """Whether a message contains only reasoning."""
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
    """The tool definitions of a parsed list; other items are left out."""
    if value is None:
        return ()
    definitions = parse(value).value
    return tuple(item for item in as_list(definitions) if isinstance(item, dict))
