"""Message content in the encodings that several dialects share, turned into `Message` values.

Three encodings cover most of them: OpenTelemetry's ``parts``, OpenAI's chat messages, and the
one-event-per-message bodies of the GenAI conventions until 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..model import Message, Span, ToolCall
from .values import parse, parse_arguments, text_of

__all__ = [
    "EVENT_ROLES",
    "choices",
    "from_event",
    "from_messages",
    "join_neighbours",
    "tool_definitions",
]

_ROLES = {"ai": "assistant", "model": "assistant", "human": "user", "function": "tool"}
EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}
# A mapping without any of these is no message.
_FIELDS = frozenset({"role", "type", "content", "parts", "tool_calls", "tool_call_id"})
_CALL_PARTS = ("tool_call", "tool_use", "tool-call", "function_call")
_RESULT_PARTS = ("tool_call_response", "tool_result", "tool-result", "function_call_output")


def from_messages(value: Any, span: Span, role: str = "user") -> list[Message]:
    """Return the messages of a parsed list, each in the form of parts or of OpenAI's chat API.

    Args:
        value: The list; a single message, or its text alone, is taken as a list of one.
        span: The span that holds it.
        role: Who says what names no role.

    Returns:
        The messages. What is no message at all is left out.
    """
    if isinstance(value, str) and value.strip():
        return [Message(role, value, span_id=span.span_id, trace_id=span.trace_id)]
    if isinstance(value, Mapping):
        value = [value]
    messages: list[Message] = []
    for item in value if isinstance(value, list) else []:
        if isinstance(item, Mapping) and not _FIELDS.isdisjoint(item):
            messages.extend(_from_message(item, span, role))
    return join_neighbours(messages)


def choices(value: Any) -> tuple[Any, list[Any]]:
    """Return a parsed list of answers as the first choice, and the others one by one.

    Messages of the assistant that each say why they end are choices; else all are one answer.
    """
    if not isinstance(value, list) or len(value) < 2 or not all(map(_is_choice, value)):
        return value, []
    return value[:1], value[1:]


def _is_choice(item: Any) -> bool:
    if not isinstance(item, Mapping) or not item.get("finish_reason"):
        return False
    return str(item.get("role") or "assistant") in ("assistant", "model")


def _from_message(item: Mapping[str, Any], span: Span, role: str = "") -> list[Message]:
    role = _role(item, role)
    name = item.get("name")
    body = _Body(role, str(name) if name else "", span)
    parts = item.get("parts")
    if isinstance(parts, list):
        body.add_parts(parts)
    else:
        body.add_content(item.get("content"))
    for call in _as_list(item.get("tool_calls")):
        body.add_call(call)
    if role == "tool" and not body.results:
        body.add_result(item.get("tool_call_id") or item.get("id"), body.take_content(), item)
    return body.messages()


def _role(item: Mapping[str, Any], default: str) -> str:
    """Return a message's role; without one, what its fields say it is."""
    role = str(item.get("role") or item.get("type") or "")
    if not role:
        role = "assistant" if item.get("tool_calls") else default
        role = "tool" if item.get("tool_call_id") else role
    return _ROLES.get(role, role)


class _Body:
    """Collects what one emitted message holds; a message of results becomes several."""

    def __init__(self, role: str, name: str, span: Span) -> None:
        self.role = role
        self.name = name
        self.span = span
        self.texts: list[str] = []
        self.calls: list[ToolCall] = []
        self.results: list[Message] = []
        self.parts: list[Mapping[str, Any]] = []

    def add_parts(self, parts: Iterable[Any]) -> None:
        for part in parts:
            if isinstance(part, Mapping):
                self._add_part(part)
            elif isinstance(part, str):
                self.texts.append(part)

    def _add_part(self, part: Mapping[str, Any]) -> None:
        kind = part.get("type")
        if kind in ("text", "input_text", "output_text"):
            self.texts.append(text_of(part.get("content", part.get("text"))) or "")
        elif kind in _CALL_PARTS:
            self.add_call(part)
        elif kind in _RESULT_PARTS:
            call_id = part.get("id") or part.get("tool_use_id") or part.get("call_id")
            result = part.get("response", part.get("result", part.get("content")))
            self.add_result(call_id, result, part)
        else:
            self.parts.append(part)

    def add_content(self, content: Any) -> None:
        if isinstance(content, list) and all(isinstance(part, (Mapping, str)) for part in content):
            self.add_parts(content)
        elif content is not None:
            self.texts.append(text_of(content) or "")

    def add_call(self, call: Any) -> None:
        if not isinstance(call, Mapping):
            return
        function = call.get("function")
        source = function if isinstance(function, Mapping) else call
        name = source.get("name")
        if not name:
            return
        arguments = source.get("arguments", source.get("args", source.get("input")))
        call_id = str(call.get("id") or call.get("call_id") or "")
        self.calls.append(ToolCall(str(name), parse_arguments(arguments), call_id))

    def add_result(self, call_id: Any, result: Any, part: Mapping[str, Any]) -> None:
        failed = part.get("is_error") is True or part.get("status") == "error"
        self.results.append(
            Message(
                "tool",
                text_of(result),
                tool_call_id=str(call_id or ""),
                name=str(part.get("name") or ""),
                is_error=failed,
                span_id=self.span.span_id,
                trace_id=self.span.trace_id,
            )
        )

    def take_content(self) -> str | None:
        text, self.texts = "\n".join(self.texts), []
        return text

    def messages(self) -> list[Message]:
        if self.results and not (self.texts or self.calls or self.parts):
            return self.results
        if self.role == "tool" and self.results and not (self.texts or self.calls):
            # Such as an image beside a tool's result: it belongs to it.
            last = self.results[-1]
            return [*self.results[:-1], replace(last, parts=(*last.parts, *self.parts))]
        content = "\n".join(self.texts) if self.texts else None
        if self.calls:
            content = content or None  # some clients write an empty text beside calls
        own = Message(
            self.role,
            content,
            tool_calls=tuple(self.calls),
            name=self.name,
            parts=tuple(self.parts),
            span_id=self.span.span_id,
            trace_id=self.span.trace_id,
        )
        if self.role == "assistant" and self.calls:
            return [own, *self.results]  # of tools that the provider itself ran
        return [*self.results, own]


def from_event(name: str, body: Any, span: Span) -> list[Message]:
    """Return the messages of one ``gen_ai.*.message`` or ``gen_ai.choice`` event.

    Args:
        name: The event's name.
        body: Its body: a mapping, or JSON text of one.
        span: The span in whose context it was emitted.
    """
    fields = parse(body).value
    if not isinstance(fields, Mapping):
        fields = {"content": fields}
    inner = parse(fields.get("message")).value
    if name == "gen_ai.choice" and isinstance(inner, Mapping):
        fields = inner
    elif name == "gen_ai.choice" and isinstance(inner, str):
        fields = {**fields, "content": inner}
    calls = parse(fields.get("tool_calls")).value
    item = {**fields, "role": EVENT_ROLES[name], "tool_calls": calls}
    item.pop("parts", None)
    return _from_message(item, span)


def join_neighbours(messages: list[Message]) -> list[Message]:
    """Return the messages with calls joined to the assistant message right before them.

    The Responses API, and what is built on it, writes parallel calls as one message each.
    """
    groups: list[list[Message]] = []
    for message in messages:
        is_said = message.role == "assistant" and bool(groups) and groups[-1][0].role == "assistant"
        if is_said and message.tool_calls:
            groups[-1].append(message)
        else:
            groups.append([message])
    return [_joined(group) for group in groups]


def _joined(group: list[Message]) -> Message:
    if len(group) == 1:
        return group[0]
    return replace(
        group[0],
        content="\n".join(message.content for message in group if message.content) or None,
        tool_calls=tuple(call for message in group for call in message.tool_calls),
        parts=tuple(part for message in group for part in message.parts),
    )


def tool_definitions(value: Any) -> tuple[Mapping[str, Any], ...]:
    """Return the tool definitions of a parsed list; what is no definition is left out."""
    found = parse(value).value
    return tuple(item for item in _as_list(found) if isinstance(item, Mapping))


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
