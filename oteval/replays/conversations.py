"""The conversation of an agent with its models: the messages of all requests, each once.

Most requests repeat the messages of an earlier one and its answer. `Conversation` keeps only the
messages that are new, in the order in which they were sent and answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..jsontext import canonical
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
        self._threads: list[list[_Key]] = []
        self._instructions: set[str | None] = set()
        self._calls: dict[str, ToolCall] = {}

    def add(self, request: Sequence[Message], answer: Message | None) -> list[Message]:
        """Add a request and its answer, and return the messages of the request that are new.

        Args:
            request: The messages of the request.
            answer: The answer; None if the call failed.
        """
        spoken = [message for message in request if message.role not in _INSTRUCTIONS]
        keys = [_key(message) for message in spoken]
        known = max((_shared(keys, thread) for thread in self._threads), default=0)
        new = [*self._new_instructions(request), *spoken[known:]]
        self.messages += new
        said = [] if answer is None else [answer]
        self.messages += said
        self._threads.append([*keys, *map(_key, said)])
        for message in (*new, *said):
            self._calls |= {call.id: call for call in message.tool_calls if call.id}
        return new

    def _new_instructions(self, request: Sequence[Message]) -> list[Message]:
        found = [
            message
            for message in request
            if message.role in _INSTRUCTIONS and message.content not in self._instructions
        ]
        self._instructions |= {message.content for message in found}
        return found

    def call_of(self, result: Message) -> ToolCall | None:
        """Return the call that a tool's message answers, if the messages so far have it."""
        return self._calls.get(result.tool_call_id)


def _key(message: Message) -> _Key:
    """Return the parts of a message that agents send again as they are; ids may change."""
    calls = tuple((call.name, canonical(call.arguments)) for call in message.tool_calls)
    return message.role, message.content or "", calls


def _shared(one: Sequence[_Key], other: Sequence[_Key]) -> int:
    """Return the number of equal messages at the beginning; 0 unless all of the shorter are."""
    count = min(len(one), len(other))
    return count if one[:count] == other[:count] else 0


def conversation_of(calls: Iterable[RecordedModelCall]) -> tuple[Message, ...]:
    """Return the messages that an agent and its models exchanged, without instructions.

    Args:
        calls: The model calls, in order.
    """
    conversation = Conversation()
    for call in calls:
        conversation.add(call.request.messages, call.answer)
    return tuple(one for one in conversation.messages if one.role not in _INSTRUCTIONS)


def last_answer(calls: Iterable[RecordedModelCall]) -> str:
    """Return the text of the last answer that asks for no tools; "" if there is none."""
    said = [call.answer for call in calls if call.answer and not call.answer.tool_calls]
    return (said[-1].content or "") if said else ""
