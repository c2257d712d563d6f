"""One conversation out of model calls that each repeat their history.

A `Thread` is the conversation as known so far. Each call's input is laid over it: messages that it
repeats are recognised by their keys (`entries`); new messages are appended. An input that shares
nothing with the thread is new as well: a provider that keeps the history itself receives only new
messages. An input that departs from the thread in the middle shows that the history was rewritten;
the old part is then kept as a `Rewrite`.

System prompts are shown but not compared: frameworks put dates and names into them.

Some memories drop calls (`with_dropped_calls`). smolagents sends the error of a failed step back
without the calls that failed. OpenLIT writes LangChain's history without calls, and results without
their ids. The thread still has the calls, so they are put back into the input before it is
compared.

Work is linear in the number of messages: a call is compared with as many messages as it contains,
and nothing reads the whole thread again. The exception is a window that begins with many equal
messages.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, count, takewhile
from operator import ne
from typing import NamedTuple

from ..messages import SYSTEM_ROLES
from ..model import Message
from .entries import Entry, Sent, key_of

__all__ = [
    "Overlap",
    "Thread",
    "answered",
    "chain_of",
    "keys_before",
    "with_dropped_calls",
]

# The most positions where a window may begin; only histories of equal messages have more.
_MAX_OFFSETS = 64


def _with_ids(entry: Entry, echo: Entry) -> Entry:
    """An answer whose calls' ids and arguments are completed from its echo."""
    calls = entry.message.tool_calls
    if not entry.is_incomplete or len(calls) != len(echo.message.tool_calls):
        return entry
    pairs = zip(calls, echo.message.tool_calls, strict=True)
    completed = tuple(
        replace(call, id=call.id or other.id, arguments=call.arguments or other.arguments)
        for call, other in pairs
    )
    if completed == calls:
        return entry
    return replace(entry, message=replace(entry.message, tool_calls=completed))


def _link(chain: str, key: str) -> str:
    return hashlib.blake2b(f"{chain}{key}".encode(), digest_size=8).hexdigest()


def answered(sent: Sequence[Entry]) -> int:
    """The number of messages in an input up to the last message of the assistant."""
    if isinstance(sent, Sent):
        return sent.answered
    return next((i + 1 for i in reversed(range(len(sent))) if _is_answer(sent[i])), 0)


def _is_answer(entry: Entry) -> bool:
    return entry.message.role == "assistant"


def chain_of(sent: Sequence[Entry]) -> str:
    """A hash over an input up to the last message of the assistant; "" without such a message.

    The run with that answer has the same hash, so that a later run finds it by its input.
    """
    chain = ""
    for key in keys_before(sent, answered(sent)):
        chain = _link(chain, key)
    return chain


def keys_before(sent: Sequence[Entry], end: int) -> tuple[str, ...]:
    """The keys of the first entries of an input."""
    if isinstance(sent, Sent):
        return sent.keys[:end]  # its entries are made on demand
    return tuple([entry.key for entry in sent[:end]])


class Overlap(NamedTuple):
    """How an input lies over a thread; system prompts are not counted.

    Attributes:
        at: The message of the thread that equals the input's first message.
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
        spoken: The indices of all entries except for the system prompts.
        keys: The keys of the spoken entries.
        incomplete: The positions in `spoken` of entries that an input may complete.
        links: The chain up to each spoken entry, as far as it has been computed.
        answers: The positions in `spoken` of the assistant's entries.
        changed: The index of the first entry that was replaced since this was last set.
        has_inner: Whether any entry was recorded inside of a model call's span.
    """

    entries: list[Entry] = field(default_factory=list)
    spoken: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    incomplete: list[int] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    changed: int = 0
    has_inner: bool = False

    def fork(self, length: int) -> Thread:
        """A new thread with the first `length` entries."""
        count = bisect_left(self.spoken, length)
        return Thread(
            self.entries[:length],
            self.spoken[:count],
            self.keys[:count],
            self.incomplete[: bisect_left(self.incomplete, count)],
            self.links[:count],
            self.answers[: bisect_left(self.answers, count)],
            has_inner=self.has_inner,
        )

    def chain(self) -> str:
        """The hash over the messages up to the last message of the assistant, or ""."""
        last = self.answers[-1] if self.answers else -1
        for at in range(len(self.links), last + 1):
            before = self.links[-1] if self.links else ""
            entry = self._entry(at)
            self.links.append(_link(before, entry.key or key_of(entry.message)))
        return self.links[last] if last >= 0 else ""

    def with_inner(self, sent: Sequence[Entry]) -> Sequence[Entry]:
        """An input with the messages that were recorded inside of a model call's span.

        A model client that calls tools itself may leave these out of the history.

        Args:
            sent: The input, which begins with the thread's first messages or is returned as it is.
        """
        if not self.has_inner:
            return sent
        completed: list[Entry] = []
        for entry in sent:
            while len(completed) < len(self.spoken):
                entry_after = self._entry(len(completed))
                if entry_after.is_same(entry):
                    break
                if not entry_after.is_inner:
                    return sent
                completed.append(entry_after)
            completed.append(entry)
        return completed

    def overlap(self, sent: Sequence[Entry]) -> Overlap:
        """How an input lies over the thread.

        The thread stays whole when the input begins with all of it, or with its last messages
        (a window), or shares nothing with it (only new messages were sent).
        """
        size = len(self.spoken)
        common = self._common(sent, 0)
        if common == size or (common and common == len(sent)):
            return Overlap(0, common, common)
        candidates = 0
        for at in range(max(1, size - len(sent)), size):
            if not self._entry(at).is_same(sent[0]):
                continue
            candidates += 1
            if self._common(sent, at) == size - at:
                return Overlap(at, size - at, size)
            if candidates == _MAX_OFFSETS:
                break
        return Overlap(0, common, common) if common else Overlap(size, 0, size)

    def overlap_of_new(self, sent: Sequence[Entry]) -> Overlap:
        """How an input that contains only new messages lies over the thread.

        It is new unless the thread ends with it: then the call before was not answered.
        """
        size = len(self.spoken)
        at = max(0, size - len(sent))
        shared = len(sent) if self._common(sent, at) == len(sent) else 0
        return Overlap(at if shared else size, shared, size)

    def _entry(self, at: int) -> Entry:
        return self.entries[self.spoken[at]]

    def _common(self, sent: Sequence[Entry], at: int) -> int:
        """How many messages of the input equal the thread's from a position on."""
        limit = min(len(sent), len(self.spoken) - at)
        if not limit:
            return 0
        ours, theirs = tuple(self.keys[at : at + limit]), keys_before(sent, limit)
        if ours == theirs:
            return limit
        for number in compress(count(), map(ne, ours, theirs)):
            if not self._entry(at + number).is_same(sent[number]):
                return number
        return limit

    def place_of(self, at: int) -> int:
        """The index of the entry at a position in `spoken`, or the end of the entries."""
        return self.spoken[at] if at < len(self.spoken) else len(self.entries)

    def cut(self, length: int) -> list[Message]:
        """Take the entries from `length` on out of the thread, and return their messages."""
        cut_messages = [entry.message for entry in self.entries[length:]]
        self.put(length, ())
        return cut_messages

    def lay_over(self, sent: Sequence[Entry], overlap: Overlap, floor: int) -> None:
        """Append the new messages of an input, and complete known messages from it.

        Args:
            sent: The input.
            overlap: How it lies over the thread, after `cut` has removed a rewritten part.
            floor: The index of the first entry that may be completed.
        """
        first = bisect_left(self.incomplete, overlap.at)
        for at in self.incomplete[first : bisect_left(self.incomplete, overlap.at + overlap.known)]:
            index, echo = self.spoken[at], sent[at - overlap.at]
            if index < floor:
                continue
            old = self.entries[index]
            if not old.key:
                self.entries[index] = echo
                self.keys[at] = echo.key
                del self.links[at:]
            else:
                self.entries[index] = _with_ids(old, echo)
            if self.entries[index] is not old:
                self.changed = min(self.changed, index)
            if not self.entries[index].is_incomplete:
                self.incomplete.remove(at)
        self.extend(sent[overlap.known :])

    def extend(self, entries: Iterable[Entry]) -> None:
        """Append entries."""
        for entry in entries:
            role = entry.message.role
            if role not in SYSTEM_ROLES:
                number = len(self.spoken)
                if role == "assistant":
                    self.answers.append(number)
                if (not entry.key or entry.message.tool_calls) and entry.is_incomplete:
                    self.incomplete.append(number)
                self.spoken.append(len(self.entries))
                self.keys.append(entry.key)
            self.entries.append(entry)

    def put(self, start: int, entries: Iterable[Entry]) -> None:
        """Replace the entries from `start` on."""
        count = bisect_left(self.spoken, start)
        for numbers in (self.answers, self.incomplete):
            del numbers[bisect_left(numbers, count) :]
        del self.entries[start:], self.spoken[count:], self.keys[count:], self.links[count:]
        self.changed = min(self.changed, start)
        self.extend(entries)


def with_dropped_calls(thread: Thread, sent: Sequence[Entry]) -> Sequence[Entry]:
    """An input with the calls that it dropped, as the thread has them.

    Args:
        thread: The conversation so far.
        sent: The input, without system prompts.

    Returns:
        The input itself if it contains no result without its call.
    """
    if isinstance(sent, Sent) and not sent.has_loose_result:
        return sent
    if not any(_is_orphan(sent, at) for at in range(len(sent))):
        return sent
    return list(_restored(thread, sent))


def _is_loose(message: Message) -> bool:
    """Whether a message is a result that names no call."""
    return message.role == "tool" and not message.tool_call_id


def _is_orphan(sent: Sequence[Entry], at: int) -> bool:
    """Whether a result has neither an id nor a call or other result before it."""
    if not _is_loose(sent[at].message):
        return False
    before = sent[at - 1].message if at else None
    return before is None or (before.role != "tool" and not before.tool_calls)


def _restored(thread: Thread, sent: Sequence[Entry]) -> Iterator[Entry]:
    position = 0  # in the thread
    at = 0
    end = -1  # of the results whose calls were put back last
    while at < len(sent):
        entry, thread_entry = sent[at], _known(thread, position)
        sent_results = sent[at : at + 1]
        is_next = at == end and _is_loose(entry.message)
        if (
            (is_next or _is_orphan(sent, at))
            and thread_entry is not None
            and thread_entry.message.tool_calls
        ):
            sent_results = _results_from(sent, at)[: _results_before_next(thread, position)]
            yield thread_entry
            yield from (results := _results(thread_entry.message, sent_results))
            position += 1 + len(results)
            end = at + len(sent_results)
        elif not _lost_its_calls(sent, at, thread_entry):
            yield entry
            position += 1
        at += len(sent_results)


def _results_from(sent: Sequence[Entry], at: int) -> Sequence[Entry]:
    """The consecutive results without ids from an index on."""
    end = at
    while end < len(sent) and _is_loose(sent[end].message):
        end += 1
    return sent[at:end]


def _results_before_next(thread: Thread, position: int) -> int | None:
    """How many results an answer got before the next answer; None if it is the last.

    The results of a step with one error for all of its calls have no text, and count as one.
    """
    result_entries = list(
        takewhile(lambda entry: entry.message.role == "tool", _after(thread, position))
    )
    if not result_entries or _known(thread, position + 1 + len(result_entries)) is None:
        return None
    is_shared = len(result_entries) > 1 and all(
        entry.message.content is None for entry in result_entries
    )
    return 1 if is_shared else len(result_entries)


def _after(thread: Thread, position: int) -> Iterator[Entry]:
    numbers = range(position + 1, len(thread.spoken))
    return (thread.entries[thread.spoken[number]] for number in numbers)


def _known(thread: Thread, position: int) -> Entry | None:
    return thread.entries[thread.spoken[position]] if position < len(thread.spoken) else None


def _lost_its_calls(sent: Sequence[Entry], at: int, thread_entry: Entry | None) -> bool:
    """Whether an answer's text was kept without its calls; they come with the result."""
    if thread_entry is None or at + 1 == len(sent) or not _is_orphan(sent, at + 1):
        return False
    message = sent[at].message
    is_same = message.role == "assistant" and (message.content or "") == (
        thread_entry.message.content or ""
    )
    return is_same and bool(thread_entry.message.tool_calls)


def _results(request: Message, sent_results: Sequence[Entry]) -> list[Entry]:
    """Return results with the ids of their calls, which are in the same order.

    A single result for several calls is the error of their step: then each call has a result
    without content.
    """
    calls = request.tool_calls
    if len(sent_results) > 1 and len(sent_results) != len(calls):
        return list(sent_results)
    is_shared = len(sent_results) < len(calls)
    results = []
    for call, entry in zip(
        calls, [*sent_results] * len(calls) if is_shared else sent_results, strict=True
    ):
        message = replace(entry.message, tool_call_id=call.id)
        if is_shared:
            message = replace(message, content=None, is_error=False, is_outcome_recorded=False)
        results.append(Entry(message, key_of(message), entry.time_ns))
    return results
