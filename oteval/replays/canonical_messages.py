"""The canonical form of the messages of a request to a model.

Ids of tool calls become numbers, in the order of the calls. Results of the calls of one message are
sorted by these numbers; their original order is kept separately. Arguments, and tool results that
are JSON, become canonical JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_
from typing import NamedTuple

from ..base.jsontext import canonical
from ..base.patterns import Pattern
from ..messages import is_reasoning, parse
from ..model import Message, ToolCall
from .text_comparison import without_variable_parts

__all__ = [
    "CanonicalCall",
    "CanonicalMessage",
    "CanonicalMessages",
    "CanonicalReader",
    "ResultOrder",
]

# The number of message threads that are continued, such as threads of concurrent sub-agents.
_THREADS = 8


class CanonicalCall(NamedTuple):
    """A tool call in a request.

    Attributes:
        number: Its number among the calls of the request, from 1.
        name: The tool's name.
        arguments: The canonical JSON of the arguments; None if they are unknown.
    """

    number: int
    name: str
    arguments: str | None


class CanonicalMessage(NamedTuple):
    """A message of a request.

    Attributes:
        role: The role; ``system`` for ``developer``.
        text: The text; canonical JSON for a tool result that is JSON.
        calls: The tool calls.
        answers: The number of the call that a tool message answers, or 0.
        name: The name of a participant, or "".
        parts: The canonical JSON of other content, without reasoning.
    """

    role: str
    text: str
    calls: tuple[CanonicalCall, ...] = ()
    answers: int = 0
    name: str = ""
    parts: tuple[str, ...] = ()

    @property
    def is_unknown(self) -> bool:
        """Whether only the role is known."""
        return not (self.text or self.calls or self.parts)


class ResultOrder(NamedTuple):
    """The order of the results of one message's calls in a request.

    Attributes:
        numbers: The numbers of the calls.
        call_ids: The ids of the calls.
        names: The names of the tools.
    """

    numbers: tuple[int, ...]
    call_ids: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CanonicalMessages:
    """The messages of a request in canonical form.

    Attributes:
        messages: The messages.
        indexes: The index of each message in the request.
        result_orders: The order of the results of each message with several calls.
    """

    messages: tuple[CanonicalMessage, ...]
    indexes: tuple[int, ...]
    result_orders: tuple[ResultOrder, ...]


class CanonicalReader:
    """Makes the messages of many requests canonical; most begin like an earlier request.

    Messages that are the same objects as in an earlier request are not read again.

    Args:
        normalize: Patterns of texts that do not count.
    """

    def __init__(self, normalize: Sequence[Pattern] = ()) -> None:
        self._normalize = normalize
        self._read: list[tuple[Sequence[Message], _MessageBuilder]] = []
        self._known: dict[CanonicalMessage, CanonicalMessage] = {}

    def read(self, messages: Sequence[Message]) -> CanonicalMessages:
        """Read the messages of a request into canonical form."""
        builder, start = self._begun(messages)
        for index in range(start, len(messages)):
            builder.add(index, messages[index])
        self._read = [(messages, builder), *self._read][:_THREADS]
        return builder.copy().finished()

    def _begun(self, messages: Sequence[Message]) -> tuple[_MessageBuilder, int]:
        """A builder that has read the first messages of a request, and their number."""
        for index, (before, builder) in enumerate(self._read):
            count = len(before)
            if 0 < count <= len(messages) and all(map(is_, before, messages)):
                if count < len(messages):  # The thread continues.
                    del self._read[index]
                return builder.copy(), count
        return _MessageBuilder(self._normalize, self._known), 0


class _Result(NamedTuple):
    """A tool's result, with the call that it answers.

    Attributes:
        number: The number of the call.
        call_id: The id of the call.
        tool: The name of the tool.
        position: The index of the message.
        message: The message.
    """

    number: int
    call_id: str
    tool: str
    position: int
    message: CanonicalMessage


class _OpenCall(NamedTuple):
    """A call without a result yet."""

    call_id: str
    tool: str
    number: int


class _MessageBuilder:
    """Makes canonical messages one by one; knows the numbers of the calls.

    Args:
        normalize: Patterns of texts that do not count.
        known: Equal messages become the same object, so that comparisons are fast.
    """

    def __init__(
        self, normalize: Sequence[Pattern], interned: dict[CanonicalMessage, CanonicalMessage]
    ) -> None:
        self._normalize = normalize
        self._known = interned
        self._messages: list[CanonicalMessage] = []
        self._indexes: list[int] = []
        self._orders: list[ResultOrder] = []
        self._count = 0
        self._open: list[_OpenCall] = []
        self._results: list[_Result] = []

    def copy(self) -> _MessageBuilder:
        """Another builder with the same messages."""
        builder = _MessageBuilder(self._normalize, self._known)
        builder._messages, builder._indexes = self._messages[:], self._indexes[:]
        builder._orders, builder._open = self._orders[:], self._open[:]
        builder._count, builder._results = self._count, self._results[:]
        return builder

    def add(self, index: int, message: Message) -> None:
        """Add the message that has an index in the request."""
        if message.role == "tool":
            self._results.append(self._result(index, message))
            return
        self._end_results()
        if message.role == "assistant":
            self._open = []
        role = "system" if message.role == "developer" else message.role
        self._indexes.append(index)
        canonical_message = CanonicalMessage(
            role,
            self._text(message.content or ""),
            calls=tuple(map(self._call, message.tool_calls)),
            name=message.name if role == "user" else "",
            parts=self._parts(message),
        )
        self._messages.append(self._known.setdefault(canonical_message, canonical_message))

    def finished(self) -> CanonicalMessages:
        """End the request, and return its messages."""
        self._end_results()
        return CanonicalMessages(tuple(self._messages), tuple(self._indexes), tuple(self._orders))

    def _text(self, text: str) -> str:
        return without_variable_parts(text, self._normalize) if self._normalize else text

    def _parts(self, message: Message) -> tuple[str, ...]:
        if not message.parts:
            return ()
        counted_parts = (part for part in message.parts if not is_reasoning(part))
        return tuple(self._text(canonical(part)) for part in counted_parts)

    def _call(self, call: ToolCall) -> CanonicalCall:
        self._count += 1
        self._open.append(_OpenCall(call.id, call.name, self._count))
        arguments = None if call.arguments is None else self._text(canonical(call.arguments))
        return CanonicalCall(self._count, call.name, arguments)

    def _result(self, index: int, message: Message) -> _Result:
        call = self._answered(message)
        value = parse(message.content).value if message.content is not None else ""
        text = value if isinstance(value, str) else canonical(value)
        parts = self._parts(message)
        answer = CanonicalMessage("tool", self._text(text), answers=call.number, parts=parts)
        result = self._known.setdefault(answer, answer)
        return _Result(call.number, message.tool_call_id or call.call_id, call.tool, index, result)

    def _answered(self, message: Message) -> _OpenCall:
        """The call that a result answers: by its id, else by its tool, else by its place."""
        call_id = message.tool_call_id
        open_call = next((call for call in self._open if call_id and call.call_id == call_id), None)
        if open_call is None:
            open_calls = [call for call in self._open if not (call_id and call.call_id)]
            same_tool = (call for call in open_calls if call.tool == message.name)
            open_call = next(same_tool, open_calls[0] if open_calls else None)
        if open_call is None:  # The provider keeps the message with the call.
            self._count += 1
            return _OpenCall(call_id, message.name, self._count)
        self._open.remove(open_call)
        return open_call

    def _end_results(self) -> None:
        results = self._results
        if len(results) > 1:
            numbers, ids, tools, _, _ = zip(*results, strict=True)
            self._orders.append(ResultOrder(numbers, ids, tools))
            results.sort(key=lambda result: result.number)
        self._messages += [result.message for result in results]
        self._indexes += [result.position for result in results]
        self._results = []
