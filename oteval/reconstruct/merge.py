"""One conversation out of model calls that each repeat its history.

A `Thread` is the conversation as known so far. Each call's input is laid over it: what it repeats
is recognised by role, text, tool names and canonical arguments (ids and finish reasons differ
between a call and its echo), what is new is appended. Input that shares nothing is new too (a
provider that keeps the history itself is sent only what is new). Input that parts from the thread
in the middle shows that the history was rewritten; then the old part is kept as a `Rewrite`.

System prompts are shown but not compared: frameworks put dates and names into them.

Work is linear in the messages given: a call is compared with as many messages as it holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..jsontext import canonical, dumps
from ..model import Message
from .values import parse

__all__ = ["SYSTEM_ROLES", "Entry", "Overlap", "Thread", "chain_to_last_answer", "key_of"]

SYSTEM_ROLES = ("system", "developer")
# How many places a window may begin at; only histories of equal messages have more.
_MAX_OFFSETS = 64


def key_of(message: Message) -> str:
    """Return what two messages share when they are the same one."""
    calls = [(call.name, canonical(call.arguments)) for call in message.tool_calls]
    content = message.content or ""
    if message.role == "tool":
        content = canonical(parse(content).value)
    parts = [dumps(part) for part in message.parts if part.get("type") != "reasoning"]
    text = f"{message.role}\0{content.strip()}\0{calls}\0{parts}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _link(chain: str, key: str) -> str:
    return hashlib.blake2b(f"{chain}{key}".encode(), digest_size=8).hexdigest()


def chain_to_last_answer(messages: Sequence[Message]) -> str:
    """Return a hash over the messages up to the last of the assistant, or "" without one.

    The run that gave that answer has the same, so that a later run finds it by its input.
    """
    last = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
    chain = ""
    for message in messages[: last + 1]:
        if message.role not in SYSTEM_ROLES:
            chain = _link(chain, key_of(message))
    return chain


@dataclass(slots=True)
class Entry:
    """One message of a thread.

    Attributes:
        message: The message.
        key: What it is recognised by; "" where only its role is known.
        time_ns: When it was sent or received.
        is_open: Whether the answer was not wholly captured, and may have asked for more calls.
    """

    message: Message
    key: str
    time_ns: int
    is_open: bool = False

    def is_same(self, message: Message, key: str) -> bool:
        """Return whether a message is this one."""
        return self.key == key if self.key else self.message.role == message.role


class Overlap(NamedTuple):
    """How an input lies over a thread; system prompts are not counted.

    Attributes:
        at: The thread's message that the input's first one is.
        known: How many of the input's messages the thread has.
        kept: How many of the thread's messages stay.
    """

    at: int
    known: int
    kept: int


@dataclass(slots=True)
class Thread:
    """A conversation, growing.

    Attributes:
        entries: Its messages.
        spoken: The indices of those that are no system prompts.
    """

    entries: list[Entry] = field(default_factory=list)
    spoken: list[int] = field(default_factory=list)

    def fork(self, length: int) -> Thread:
        """Return a thread of its own with the first `length` entries."""
        return Thread(self.entries[:length], [i for i in self.spoken if i < length])

    def chain(self) -> str:
        """Return the hash over the messages up to the last of the assistant."""
        return chain_to_last_answer([entry.message for entry in self.entries])

    def overlap(self, messages: Sequence[Message]) -> Overlap:
        """Return how an input lies over the thread.

        The thread stays whole when the input begins with all of it, or with its last messages
        (a window), or shares nothing with it (only what is new was sent).

        Args:
            messages: The input, without system prompts.
        """
        size = len(self.spoken)
        keys = [key_of(message) for message in messages]
        common = self._common(messages, keys, 0)
        if common == size or (common and common == len(keys)):
            return Overlap(0, common, common)
        candidates = 0
        for at in range(max(1, size - len(keys)), size):
            if not self._entry(at).is_same(messages[0], keys[0]):
                continue
            candidates += 1
            if self._common(messages, keys, at) == size - at:
                return Overlap(at, size - at, size)
            if candidates == _MAX_OFFSETS:
                break
        return Overlap(0, common, common) if common else Overlap(size, 0, size)

    def _entry(self, at: int) -> Entry:
        return self.entries[self.spoken[at]]

    def _common(self, messages: Sequence[Message], keys: Sequence[str], at: int) -> int:
        """Return how many messages of the input equal the thread's from a place on."""
        count = 0
        limit = min(len(keys), len(self.spoken) - at)
        while count < limit and self._entry(at + count).is_same(messages[count], keys[count]):
            count += 1
        return count

    def entries_kept(self, found: Overlap) -> int:
        """Return how many entries, system prompts included, stay under an overlap."""
        if found.kept >= len(self.spoken):
            return len(self.entries)
        return self.spoken[found.kept]

    def cut(self, length: int) -> list[Message]:
        """Take the entries from `length` on out of the thread, and return their messages."""
        taken = [entry.message for entry in self.entries[length:]]
        del self.entries[length:]
        self.spoken = [index for index in self.spoken if index < length]
        return taken

    def lay_over(
        self, messages: Sequence[Message], found: Overlap, time_ns: int, floor: int
    ) -> None:
        """Append what an input has beyond the thread, and fill in what was not known of it.

        Args:
            messages: The input, without system prompts.
            found: How it lies over the thread, of which nothing more is to be replaced.
            time_ns: When it was sent.
            floor: The first entry that may be filled in.
        """
        for offset in range(found.known):
            index = self.spoken[found.at + offset]
            if not self.entries[index].key and index >= floor:
                message = messages[offset]
                self.entries[index] = Entry(message, key_of(message), time_ns)
        for message in messages[found.known :]:
            self.add(message, time_ns)

    def add(self, message: Message, time_ns: int, *, is_open: bool = False) -> None:
        """Append a message."""
        if message.role not in SYSTEM_ROLES:
            self.spoken.append(len(self.entries))
        self.entries.append(Entry(message, key_of(message), time_ns, is_open))

    def add_unknown(self, message: Message, time_ns: int) -> None:
        """Append a message of which only the role is known."""
        self.spoken.append(len(self.entries))
        self.entries.append(Entry(message, "", time_ns, is_open=True))

    def put(self, start: int, entries: Sequence[Entry]) -> None:
        """Replace the entries from `start` on."""
        self.entries[start:] = entries
        self.spoken = [
            i for i, entry in enumerate(self.entries) if entry.message.role not in SYSTEM_ROLES
        ]
