"""The content of one emitted message, from its parts, calls and results to `Message` values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from ..base.jsontext import canonical
from ..model import Message, SpanRef, ToolCall
from .kinds import is_fragment, transcript_of
from .parts import Part, Result, is_explicit, read_call, read_parts, read_result
from .python_objects import object_of, plain_data
from .values import parse, text_of

__all__ = [
    "BESIDE_TEXT",
    "NO_SOURCE",
    "MessageBody",
    "MessageSource",
    "as_list",
    "distinct",
    "may_spell_parts",
    "of_span",
    "result_message",
    "stamped",
]


class MessageSource(Protocol):
    """The ids that the messages of a list get: a span's ids, or the empty ids of `NO_SOURCE`."""

    @property
    def trace_id(self) -> str:
        """The id of the trace, or ""."""

    @property
    def span_id(self) -> str:
        """The id of the span, or ""."""


NO_SOURCE = SpanRef("", "")
"""The source of messages that were not read from a span."""


def stamped(messages: Sequence[Message], source: MessageSource) -> tuple[Message, ...]:
    """Return messages with the ids of their source; they may have the ids of an earlier source."""
    return tuple([of_span(message, source) for message in messages])


def of_span(message: Message, source: MessageSource) -> Message:
    """A message with the ids of its source."""
    if message.span_id == source.span_id and message.trace_id == source.trace_id:
        return message
    content, calls, parts = message.content, message.tool_calls, message.parts
    # `replace` takes four times as long, and each call of a model repeats the messages before it.
    return Message(
        *(message.role, content, calls, message.tool_call_id, message.name, message.is_error),
        *(parts, source.span_id, source.trace_id, message.is_outcome_recorded),
    )


_CLOSES = (")", "]")
_LIST_OF_PARTS = ("[{", "[ ", "[\n")
# Fields next to the content of a message, and the kinds of parts that they become.
_ASIDE = {
    "reasoning_content": "reasoning",
    "reasoning": "reasoning",
    "thinking": "reasoning",  # Ollama's
    "tool_plan": "reasoning",  # Cohere's
    "refusal": "refusal",
}
BESIDE_TEXT = frozenset({*_ASIDE, "audio"})
"""Fields of a message with content other than its text."""


def may_spell_parts(text: str, role: str) -> bool:
    """Whether a text may be the JSON of parts or, from an assistant, the repr of objects."""
    if role == "assistant" and (text[-1:] in _CLOSES or text.startswith("content=")):
        return True
    # Most texts begin with a letter.
    return not text[:1].isalpha() and text.lstrip()[:2] in _LIST_OF_PARTS


class MessageBody:
    """Collects the content of one message; a message of results becomes several.

    Args:
        role: The role of its author.
        name: The name of its author, or "".
        source: Where it was read.
        is_recorded: Whether an instrumentation wrote it. Instrumentations may write parts as text
            and repeat calls; a caller's text stays text.
    """

    __slots__ = (
        "_before",
        "_placed",
        "calls",
        "is_recorded",
        "listed_calls",
        "name",
        "parts",
        "results",
        "role",
        "source",
        "texts",
    )

    def __init__(
        self, role: str, name: str, source: MessageSource, *, is_recorded: bool = True
    ) -> None:
        self.is_recorded = is_recorded
        self.role = role
        self.name = name
        self.source = source
        self.texts: list[str] = []
        self.calls: list[ToolCall] = []
        self.parts: list[Mapping[str, Any]] = []
        # Few messages have any of these, and an empty tuple costs nothing.
        self.listed_calls: tuple[ToolCall, ...] = ()
        self.results: tuple[Message, ...] = ()
        self._before: tuple[Message, ...] = ()
        self._placed: tuple[ToolCall, ...] = ()

    @property
    def only_approves(self) -> bool:
        """Whether it contains only approvals of calls, which are not results."""
        kinds = [str(part.get("type")) for part in self.parts]
        return bool(kinds) and not self.texts and all("approval" in kind for kind in kinds)

    def add_calls(self, value: Any) -> None:
        """Add a message's list of calls; parts that repeat them are then left out.

        The list leaves out calls that the provider runs; these are only among the parts.
        """
        calls = value
        if isinstance(value, str):
            calls = parse(value).value
            calls = object_of(value) or value if isinstance(calls, str) else calls
        for item in as_list(calls):
            if isinstance(item, str):
                item = object_of(item) or parse(item).value
            call = read_call(item)
            if call is not None:
                self.listed_calls += (call,)
            elif isinstance(item, dict):
                self.parts.append({**item, "type": "tool_call"})
            else:
                self.parts.append({"type": "tool_call", "value": item})

    def add_content(self, content: Any) -> None:
        """Add a message's content: a text, a list of parts, or one part."""
        if content is None:
            return
        if not self.is_recorded and not isinstance(content, str):
            content = plain_data(content)
        if isinstance(content, list) and all(isinstance(part, (Mapping, str)) for part in content):
            for part in content:
                self.add(part)
        elif isinstance(content, str) or is_explicit(content):
            self.add(content)
        else:
            self.texts.append(text_of(content) or "")

    def add(self, item: Any) -> None:
        """Add a text, or a part in any form."""
        if type(item) is dict and "parts" in item and isinstance(item["parts"], list):
            for part in item["parts"]:
                self.add(part)
            return
        for part in read_parts(item):
            if type(part) is not str or (blocks := self._blocks_of(part)) is None:
                self._add_part(part)
            else:
                for fields in (inner for block in blocks for inner in read_parts(block)):
                    self._add_part(fields)

    def _blocks_of(self, text: str) -> list[Any] | None:
        """The parts that a text of JSON or of Python objects contains, or None."""
        if self.role == "tool" or not self.is_recorded or not may_spell_parts(text, self.role):
            return None
        decoded = object_of(text) if self.role == "assistant" else None
        if decoded is None and may_spell_parts(text, ""):
            parsed = parse(text)
            decoded = None if parsed.truncated else parsed.value
        blocks = decoded if isinstance(decoded, list) else [decoded]
        return blocks if blocks and all(map(is_explicit, blocks)) else None

    def _add_part(self, part: Part) -> None:
        if self.results and self.role == "assistant" and isinstance(part, (str, ToolCall)):
            self._before += (*self._rest(self.calls),)
            self.texts, self.calls, self.results, self.parts = [], [], (), []
        if isinstance(part, str):
            self.texts.append(part)
        elif isinstance(part, ToolCall):
            if self.listed_calls:
                self._add_listed(part)
            else:
                self.calls.append(part)
        elif isinstance(part, Result):
            self.results += (result_message(part, self.source),)
        elif not (self.listed_calls and is_fragment(part)):
            spoken = transcript_of(part)
            if spoken and spoken not in self.texts:
                self.texts.append(spoken)
            self.parts.append(part)

    def _add_listed(self, call: ToolCall) -> None:
        """Add a call of the parts, unless it repeats one of the message's list of calls.

        The list is the better source of a call; the parts show its position.
        """
        listed = self.listed_calls
        same = next((other for other in listed if call.id and call.id == other.id), None)
        if same is not None:
            if not any(same is other for other in self._placed):
                self._placed += (same,)
                self.calls.append(same)
            return
        has_ids = bool(call.id) and any(other.id for other in listed)
        is_further = call.executed_by != "" or has_ids
        if is_further and not any(_is_same(call, other) for other in listed):
            self.calls.append(call)

    def add_empty(self) -> None:
        """Mark a message without any content as empty: its content is not missing."""
        if not (self.texts or self.calls or self.listed_calls or self.results or self.parts):
            self.texts.append("")

    def add_aside(self, item: Mapping[str, Any]) -> None:
        """Add the reasoning, the refusal and the audio that a message has next to its content."""
        if BESIDE_TEXT.isdisjoint(item):
            return
        for key, kind in _ASIDE.items():
            text = item.get(key)
            part = {"type": kind, "content": text}
            if isinstance(text, str) and text and part not in self.parts:
                self.add(part)
        if isinstance(item.get("audio"), Mapping):
            self._add_part({"type": "audio", **item["audio"]})

    def take_as_result(self, item: Mapping[str, Any]) -> None:
        """Take the whole message as a tool's result; without content, the result is unknown."""
        is_known = bool(self.texts) or item.get("content") is not None
        result = read_result(item, "\n".join(self.texts) if is_known else None)
        if self.parts and not self.texts:
            result = result._replace(content=None)  # such as an image alone
        self.results += (result_message(result, self.source),)
        self.texts = []

    def copy(self) -> MessageBody:
        """A copy, to add more content to."""
        duplicate = MessageBody(self.role, self.name, self.source, is_recorded=self.is_recorded)
        duplicate.texts, duplicate.calls, duplicate.parts = (
            self.texts[:],
            self.calls[:],
            self.parts[:],
        )
        duplicate.results, duplicate.listed_calls = self.results, self.listed_calls
        duplicate._before, duplicate._placed = self._before, self._placed
        return duplicate

    def messages(self) -> list[Message]:
        """Its messages, in order."""
        listed, placed = self.listed_calls, self._placed
        if placed:
            listed = tuple([call for call in listed if not any(call is other for other in placed)])
        own_messages = self._rest((*self.calls, *listed) if listed else self.calls)
        return [*self._before, *own_messages] if self._before else own_messages

    def _rest(self, calls: Sequence[ToolCall]) -> list[Message]:
        """The messages of the content added since the last result.

        Args:
            calls: The calls that they request.
        """
        if self.results and not (self.texts or calls or self.parts):
            return [*self.results]
        if self.role == "tool":
            if self.only_approves and not self.results:
                return []
            self.parts = [part for part in self.parts if "approval" not in str(part.get("type"))]
            if self.results and not (self.texts or calls):
                # An image next to a tool's result, for example, belongs to the result.
                last = self.results[-1]
                return [*self.results[:-1], replace(last, parts=(*last.parts, *self.parts))]
        texts = self.texts
        if self.is_recorded and calls and texts:
            texts = [text for text in texts if not _repeats(text, calls)]
        content = "\n".join(texts) if texts else None
        if calls:
            content = content or None  # some clients add an empty text to calls
        own = Message(
            self.role,
            content,
            distinct(calls) if self.is_recorded else tuple(calls),
            name=self.name,
            parts=tuple(self.parts),
            span_id=self.source.span_id,
            trace_id=self.source.trace_id,
        )
        if self.role == "assistant":
            return [own, *self.results]  # of tools that the provider itself ran
        return [*self.results, own]


def _is_same(call: ToolCall, other: ToolCall) -> bool:
    return (call.name, call.arguments) == (other.name, other.arguments)


def result_message(result: Result, source: MessageSource) -> Message:
    """A result as the message of a tool."""
    call_id, content, name, is_error, parts = result
    span_id, trace_id, is_recorded = source.span_id, source.trace_id, is_error is not None
    # Names of arguments take a third of the time of the call.
    return Message(
        "tool", content, (), call_id, name, bool(is_error), parts, span_id, trace_id, is_recorded
    )


def _repeats(text: str, calls: Sequence[ToolCall]) -> bool:
    """Whether a text is the JSON of one of the message's calls, as OpenLLMetry writes."""
    if not text.lstrip().startswith("{"):
        return False
    value = parse(text).value
    call = read_call(value) if is_explicit(value) else None
    return call is not None and call.id != "" and any(call.id == other.id for other in calls)


def distinct(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    """Return calls without the repetitions with the same id that some emitters write."""
    calls = tuple(calls)
    if len(calls) < 2:
        return calls
    calls_by_key: dict[tuple[str, ...], ToolCall] = {}
    for number, call in enumerate(calls):
        key = (call.id, call.name, canonical(call.arguments)) if call.id else (str(number),)
        calls_by_key.setdefault(key, call)
    return tuple(calls_by_key.values())


def as_list(value: Any) -> list[Any]:
    """A list as it is, None as an empty list, and any other value as a list of one."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
