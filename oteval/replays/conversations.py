"""The conversation of an agent with its models: the messages of all requests, each once.

Most requests repeat the messages of an earlier one and its answer. `Conversation` keeps only the
messages that are new, in the order in which they were sent and answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..base.jsontext import canonical
from ..model import Message, RecordedModelCall, ToolCall

__all__ = ["Conversation", "conversation_of", "last_answer"]

_INSTRUCTIONS = ("system", "developer")
_Key = tuple[str, str, tuple[tuple[str, str], ...]]


class Conversation:
    """Collects the new messages of requests and answers.

    Attributes:
        messages: The messages so far. System instructions are among them once.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._threads = _Threads()
        self._instructions: set[str | None] = set()
        self._calls: dict[str, ToolCall] = {}

    def add(self, request: Sequence[Message], answer: Message | None) -> list[Message]:
        """Add a request and its answer, and return the messages of the request that are new.

        Args:
            request: The messages of the request.
            answer: The answer; None if the call failed.
        """
        spoken = [message for message in request if message.role not in _INSTRUCTIONS]
        repeated_count = self._threads.shared(spoken)
        new = [*self._new_instructions(request), *spoken[repeated_count:]]
        self.messages += new
        answers = [] if answer is None else [answer]
        self.messages += answers
        self._threads.add([*spoken, *answers])
        for message in (*new, *answers):
            self._calls |= {call.id: call for call in message.tool_calls if call.id}
        return new

    def _new_instructions(self, request: Sequence[Message]) -> list[Message]:
        new_instructions = [
            message
            for message in request
            if message.role in _INSTRUCTIONS and message.content not in self._instructions
        ]
        self._instructions |= {message.content for message in new_instructions}
        return new_instructions

    def call_of(self, result: Message) -> ToolCall | None:
        """The call that a tool's message answers, if the messages so far have it."""
        return self._calls.get(result.tool_call_id)


def _key(message: Message) -> _Key:
    """Key a message by the parts that agents send again unchanged; ids may change."""
    calls = tuple((call.name, canonical(call.arguments)) for call in message.tool_calls)
    return message.role, message.content or "", calls


class _Threads:
    """Lists of messages as a tree, in which lists with the same beginning share its nodes."""

    def __init__(self) -> None:
        self._next: dict[tuple[int, int], int] = {}
        self._ends: set[int] = set()
        self._numbers: dict[_Key, int] = {}
        # Requests have the same objects; they are kept so that their ids stay theirs.
        self._seen: dict[int, tuple[Message, int]] = {}

    def add(self, messages: Sequence[Message]) -> None:
        """Add a list."""
        node = 0
        for message in messages:
            node = self._next.setdefault((node, self._number(message)), len(self._next) + 1)
        self._ends.add(node)

    def shared(self, messages: Sequence[Message]) -> int:
        """The length of the beginning that a list shares with another one.

        One of the two must be the whole beginning.
        """
        node = longest = 0
        for length, message in enumerate(messages):
            if node in self._ends:
                longest = length
            next_node = self._next.get((node, self._number(message)))
            if next_node is None:
                return longest
            node = next_node
        return len(messages)

    def _number(self, message: Message) -> int:
        numbered = self._seen.get(id(message))
        if numbered is not None:
            return numbered[1]
        number = self._numbers.setdefault(_key(message), len(self._numbers))
        self._seen[id(message)] = (message, number)
        return number


def conversation_of(calls: Iterable[RecordedModelCall]) -> tuple[Message, ...]:
    """The messages that an agent and its models exchanged, without instructions.

    Args:
        calls: The model calls, in order.
    """
    conversation = Conversation()
    for call in calls:
        conversation.add(call.request.messages, call.answer)
    return tuple(message for message in conversation.messages if message.role not in _INSTRUCTIONS)


def last_answer(calls: Iterable[RecordedModelCall]) -> str:
    """The text of the last answer that asks for no tools; "" if there is none."""
    answers = [call.answer for call in calls if call.answer and not call.answer.client_calls]
    return (answers[-1].content or "") if answers else ""
