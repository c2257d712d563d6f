"""Message content in the encodings that several dialects share, turned into `Message` values.

A list may hold messages in any form (`message_forms`), parts of messages in any form (`parts`), or
both, as the Responses API mixes them. An item of an unknown form becomes a part of the message
before it, or of a new message; it never becomes a role.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...jsontext import canonical
from ...model import Message, Span, ToolCall
from .message_forms import forms_of
from .parts import (
    Part,
    Result,
    is_explicit,
    is_fragment,
    is_reasoning,
    is_written_by_model,
    read_call,
    read_parts,
    read_result,
    unknown_kind,
)
from .python_reprs import object_of
from .usual_messages import may_spell_parts, usual_message
from .values import parse, text_of

__all__ = [
    "EVENT_ROLES",
    "choices",
    "from_event",
    "from_messages",
    "join_neighbours",
    "tool_definitions",
]

EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}


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
    usual = _usual_messages(items, span)
    if len(usual) == len(items):
        return join_neighbours(usual)
    collector = _MessageCollector(span, role, usual)
    for item in items[len(usual) :]:
        collector.add(item)
    return collector.finish()


def _usual_messages(items: Sequence[Any], span: Span) -> list[Message]:
    """Return the first messages of a list, up to one that is not in a usual form."""
    found: list[Message] = []
    for item in items:
        message = usual_message(item, span) if isinstance(item, dict) else None
        if message is None:
            break
        found.append(message)
    return found


class _MessageCollector:
    """Makes messages of the items of one list; neighbouring loose parts share a message."""

    def __init__(self, span: Span, role: str, messages: list[Message]) -> None:
        self.span = span
        self.role = role
        self.messages = messages
        self.loose: _MessageBody | None = None
        self.knows_any = bool(messages)

    def add(self, item: Any) -> None:
        if item is None or item == {} or item == []:
            return
        forms = forms_of(item, self.role)
        if forms:
            self._flush()
            self.knows_any = True
            for form in forms:
                message = usual_message(form, self.span)
                self.messages += [message] if message else _from_form(form, self.span)
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
            self.loose = _MessageBody(role, "", self.span)
        self.loose.add(item)

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
        if self.messages:
            last = self.messages[-1]
            self.messages[-1] = replace(last, parts=(*last.parts, part))
        else:
            self.loose = _MessageBody(self.role, "", self.span)
            self.loose.parts.append(part)

    def _flush(self) -> None:
        if self.loose is not None:
            self.messages += self.loose.messages()
            self.loose = None

    def finish(self) -> list[Message]:
        self._flush()
        return join_neighbours(self.messages) if self.knows_any else []


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
    body = _MessageBody(role, name if isinstance(name, str) else "", span)
    if item.get("tool_calls"):
        body.add_calls(item["tool_calls"])
    if isinstance(parts, str):
        parts = parse(parts).value
    if isinstance(parts, list) and (parts or item.get("content") is None):
        for part in parts:
            body.add(part)
    else:
        body.add_content(item.get("content"))
    for invocation in _as_list(item.get("toolInvocations")):
        body.add({"toolInvocation": invocation})
    body.add_aside(item)
    if role == "tool" and not body.results and not body.only_approves:
        body.take_as_result(item)
    return body.messages()


class _MessageBody:
    """Collects the content of one emitted message; a message of results becomes several."""

    __slots__ = (
        "_before",
        "_has_own_calls",
        "calls",
        "name",
        "parts",
        "results",
        "role",
        "span",
        "texts",
    )

    def __init__(self, role: str, name: str, span: Span) -> None:
        self.role = role
        self.name = name
        self.span = span
        self.texts: list[str] = []
        self.calls: list[ToolCall] = []
        self.results: list[Message] = []
        self.parts: list[Mapping[str, Any]] = []
        self._before: list[Message] = []
        self._has_own_calls = False

    @property
    def only_approves(self) -> bool:
        """Whether it holds only approvals of calls, which are not results."""
        kinds = [str(part.get("type")) for part in self.parts]
        return bool(kinds) and not self.texts and all("approval" in kind for kind in kinds)

    def add_calls(self, value: Any) -> None:
        """Add a message's list of calls; parts that repeat them are then left out."""
        calls = value
        if isinstance(value, str):
            calls = parse(value).value
            calls = object_of(value) if isinstance(calls, str) else calls
        for item in _as_list(calls):
            item = (object_of(item) or parse(item).value) if isinstance(item, str) else item
            call = read_call(item)
            if call is not None:
                self._add_part(call)
            elif isinstance(item, dict):
                self.parts.append({"type": "tool_call", **item})
        self._has_own_calls = bool(self.calls)

    def add_content(self, content: Any) -> None:
        """Add a message's content: a text, a list of parts, or one part."""
        if isinstance(content, list) and all(isinstance(part, (Mapping, str)) for part in content):
            for part in content:
                self.add(part)
        elif isinstance(content, str) or is_explicit(content):
            self.add(content)
        elif content is not None:
            self.texts.append(text_of(content) or "")

    def add(self, item: Any) -> None:
        """Add a text, or a part in any form."""
        inner = item.get("parts") if isinstance(item, dict) else None
        if isinstance(inner, list):
            for part in inner:
                self.add(part)
            return
        for part in read_parts(item):
            blocks = self._blocks_of(part) if isinstance(part, str) else None
            if blocks is None:
                self._add_part(part)
            else:
                for fields in (inner for block in blocks for inner in read_parts(block)):
                    self._add_part(fields)

    def _blocks_of(self, text: str) -> list[Any] | None:
        """Return the parts that a text of JSON or of Python objects spells out, or None."""
        if self.role == "tool" or not may_spell_parts(text, self.role):
            return None
        found = object_of(text) if self.role == "assistant" else None
        if found is None and may_spell_parts(text, ""):
            parsed = parse(text)
            found = None if parsed.truncated else parsed.value
        blocks = found if isinstance(found, list) else [found]
        return blocks if blocks and all(map(is_explicit, blocks)) else None

    def _add_part(self, part: Part) -> None:
        if self.results and self.role == "assistant" and isinstance(part, (str, ToolCall)):
            self._before += self._rest()
            self.texts, self.calls, self.results, self.parts = [], [], [], []
        if isinstance(part, str):
            self.texts.append(part)
        elif isinstance(part, ToolCall):
            if not self._has_own_calls:
                self.calls.append(part)
        elif isinstance(part, Result):
            self._add_result(part)
        elif not (self._has_own_calls and is_fragment(part)):
            self.parts.append(part)

    def _add_result(self, result: Result) -> None:
        self.results.append(
            Message(
                "tool",
                result.content,
                tool_call_id=result.call_id,
                name=result.name,
                is_error=result.is_error,
                parts=result.parts,
                span_id=self.span.span_id,
                trace_id=self.span.trace_id,
            )
        )

    def add_aside(self, item: Mapping[str, Any]) -> None:
        """Add the reasoning and the refusal that a message holds beside its content."""
        for key, kind in (("reasoning_content", "reasoning"), ("refusal", "refusal")):
            if key in item and isinstance(item[key], str) and item[key]:
                self.parts.append({"type": kind, "content": item[key]})

    def take_as_result(self, item: Mapping[str, Any]) -> None:
        """Take the whole message as the result of a tool."""
        fields = {key: value for key, value in item.items() if key not in ("response", "output")}
        result = read_result({**fields, "result": "\n".join(self.texts)})
        self.texts = []
        self._add_result(result)

    def messages(self) -> list[Message]:
        """Return the messages that it holds, in their order."""
        return [*self._before, *self._rest()]

    def _rest(self) -> list[Message]:
        if self.role == "tool" and self.only_approves and not self.results:
            return []
        if self.results and not (self.texts or self.calls or self.parts):
            return self.results
        if self.role == "tool":
            self.parts = [part for part in self.parts if "approval" not in str(part.get("type"))]
        if self.role == "tool" and self.results and not (self.texts or self.calls):
            # Such as an image beside a tool's result: it belongs to it.
            last = self.results[-1]
            return [*self.results[:-1], replace(last, parts=(*last.parts, *self.parts))]
        texts = [text for text in self.texts if not _repeats(text, self.calls)]
        content = "\n".join(texts) if texts else None
        if self.calls:
            content = content or None  # some clients write an empty text beside calls
        own = Message(
            self.role,
            content,
            tool_calls=_distinct(self.calls),
            name=self.name,
            parts=tuple(self.parts),
            span_id=self.span.span_id,
            trace_id=self.span.trace_id,
        )
        if self.role == "assistant":
            return [own, *self.results]  # of tools that the provider itself ran
        return [*self.results, own]


def _repeats(text: str, calls: Sequence[ToolCall]) -> bool:
    """Return whether a text is the JSON of one of the calls beside it, as OpenLLMetry writes."""
    if not calls or not text.lstrip().startswith("{"):
        return False
    found = parse(text).value
    call = read_call(found) if is_explicit(found) else None
    return call is not None and call.id != "" and any(call.id == other.id for other in calls)


def _distinct(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    """Return calls without those that some emitters write again, with the same id."""
    calls = tuple(calls)
    if len(calls) < 2:
        return calls
    found: dict[tuple[str, ...], ToolCall] = {}
    for number, call in enumerate(calls):
        key = (call.id, call.name, canonical(call.arguments)) if call.id else (str(number),)
        found.setdefault(key, call)
    return tuple(found.values())


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
        before = groups[-1] if groups else []
        is_said = message.role == "assistant" and bool(before) and before[0].role == "assistant"
        if is_said and (message.tool_calls or all(map(_only_reasons, before))):
            before.append(message)
        else:
            groups.append([message])
    return [_joined(group) for group in groups]


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
        tool_calls=_distinct(call for message in group for call in message.tool_calls),
        parts=tuple(part for message in group for part in message.parts),
    )


def tool_definitions(value: Any) -> tuple[Mapping[str, Any], ...]:
    """Return the tool definitions of a parsed list; other items are left out."""
    found = parse(value).value
    return tuple(item for item in _as_list(found) if isinstance(item, dict))


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
