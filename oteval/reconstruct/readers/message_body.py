"""The content of one emitted message, from its parts, calls and results to `Message` values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...jsontext import canonical
from ...model import Message, Span, ToolCall
from .parts import Part, Result, is_explicit, is_fragment, read_call, read_parts, read_result
from .python_reprs import object_of
from .usual_messages import may_spell_parts
from .values import parse, text_of

__all__ = ["MessageBody", "as_list", "distinct"]


class MessageBody:
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
        for item in as_list(calls):
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

    def copy(self) -> MessageBody:
        """Return a body with the same content, to which more can be added."""
        other = MessageBody(self.role, self.name, self.span)
        other.texts, other.calls = self.texts.copy(), self.calls.copy()
        other.results, other.parts = self.results.copy(), self.parts.copy()
        other._before, other._has_own_calls = self._before.copy(), self._has_own_calls
        return other

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
            tool_calls=distinct(self.calls),
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


def distinct(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    """Return calls without those that some emitters write again, with the same id."""
    calls = tuple(calls)
    if len(calls) < 2:
        return calls
    found: dict[tuple[str, ...], ToolCall] = {}
    for number, call in enumerate(calls):
        key = (call.id, call.name, canonical(call.arguments)) if call.id else (str(number),)
        found.setdefault(key, call)
    return tuple(found.values())


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, any other value as a list of one, and None as an empty one."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
