"""One conversation out of model calls that each repeat their history.

A `Thread` is the conversation as known so far. Each call's input is laid over it: messages that it
repeats are recognised by role, text, tool names and canonical arguments (ids and finish reasons
differ between a call and its echo); new messages are appended. An input that shares nothing with
the thread is new as well: a provider that keeps the history itself is sent only new messages. An
input that departs from the thread in the middle shows that the history was rewritten; the old part
is then kept as a `Rewrite`.

System prompts are shown but not compared: frameworks put dates and names into them.

Some memories drop calls (`with_dropped_calls`): smolagents sends the error of a failed step back
without the calls that failed; OpenLIT writes LangChain's history without calls, and results without
their ids. The thread still has the calls, so they are put back into the input before it is
compared.

Work is linear in the messages given: a call is compared with as many messages as it holds (a window
that begins with many equal messages aside), and nothing reads the whole thread again.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..jsontext import canonical, dumps
from ..model import Message
from .readers.message_forms import SYSTEM_ROLES
from .readers.values import parse

__all__ = [
    "Entry",
    "Overlap",
    "Thread",
    "answered",
    "chain_of",
    "key_of",
    "spoken",
    "with_dropped_calls",
]

# How many places a window may begin at; only histories of equal messages have more.
_MAX_OFFSETS = 64


def key_of(message: Message, *, by_ids: bool = False) -> str:
    """Return the key by which a message is recognised when it is repeated.

    Args:
        message: The message.
        by_ids: Whether calls are known by their ids alone: the emitter leaves the rest out of the
            history.
    """
    ids = [call.id for call in message.tool_calls if call.id] if by_ids else []
    if ids and len(ids) == len(message.tool_calls):
        return hashlib.blake2b(f"ids\0{sorted(ids)}".encode(), digest_size=12).hexdigest()
    content, calls, parts = message.content or "", message.tool_calls, message.parts
    if message.role == "tool":
        content = canonical(parse(content).value)
    asked = [(call.name, canonical(call.arguments)) for call in calls] if calls else []
    shown = [dumps(part) for part in parts if part.get("type") != "reasoning"] if parts else []
    text = f"{message.role}\0{content.strip()}\0{asked}\0{shown}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


@dataclass(slots=True)
class Entry:
    """One message of a thread, or of the input of a model call.

    Attributes:
        message: The message.
        key: The key that `key_of` gives; "" where only its role is known.
        time_ns: When it was sent or received.
        is_open: Whether the answer was not wholly captured, and may have asked for more calls.
        is_guess: Whether only a call without its answer says that there was this message.
        is_inner: Whether it was said inside of a model call's span, so that later inputs may lack
            it.
    """

    message: Message
    key: str
    time_ns: int
    is_open: bool = False
    is_guess: bool = False
    is_inner: bool = False

    @property
    def is_spoken(self) -> bool:
        """Whether it is anything but a system prompt."""
        return self.message.role not in SYSTEM_ROLES

    def is_same(self, other: Entry) -> bool:
        """Return whether another message, wholly known, is this one."""
        if not self.key:
            return self.message.role == other.message.role
        return self.key == other.key or _asks_the_same(self.message, other.message)


def spoken(messages: Iterable[Message], time_ns: int, *, by_ids: bool = False) -> list[Entry]:
    """Return the entries of messages said at a time, system prompts left out.

    Args:
        messages: The messages.
        time_ns: The time.
        by_ids: Whether calls are known by their ids alone.
    """
    return [
        Entry(message, key_of(message, by_ids=by_ids), time_ns)
        for message in messages
        if message.role not in SYSTEM_ROLES
    ]


def _asks_the_same(one: Message, other: Message) -> bool:
    """Return whether two messages ask for the same, but that one has not got the arguments.

    Streamed calls may be recorded before their arguments are there.
    """
    if not one.tool_calls or len(one.tool_calls) != len(other.tool_calls):
        return False
    if (one.role, one.content or "") != (other.role, other.content or ""):
        return False
    pairs = list(zip(one.tool_calls, other.tool_calls, strict=True))
    return all(a.name == b.name and _may_be_equal(a.arguments, b.arguments) for a, b in pairs)


def _may_be_equal(one: Any, other: Any) -> bool:
    return one in ({}, None) or other in ({}, None) or canonical(one) == canonical(other)


def _with_ids(entry: Entry, echo: Entry) -> Entry:
    """Return an answer, the ids and arguments of its calls completed from its echo."""
    calls = entry.message.tool_calls
    if all(call.id and call.arguments not in ({}, None) for call in calls):
        return entry
    pairs = zip(calls, echo.message.tool_calls, strict=True)
    completed = tuple(
        replace(call, id=call.id or other.id, arguments=call.arguments or other.arguments)
        for call, other in pairs
    )
    if completed == calls:
        return entry
    return replace(entry, message=replace(entry.message, tool_calls=completed))


def _link(chain: str, entry: Entry) -> str:
    key = entry.key or key_of(entry.message)
    return hashlib.blake2b(f"{chain}{key}".encode(), digest_size=8).hexdigest()


def answered(sent: Sequence[Entry]) -> int:
    """Return how many messages an input holds up to the last of the assistant."""
    return next((i + 1 for i in reversed(range(len(sent))) if _is_answer(sent[i])), 0)


def _is_answer(entry: Entry) -> bool:
    return entry.message.role == "assistant"


def chain_of(sent: Sequence[Entry]) -> str:
    """Return a hash over an input up to the last message of the assistant, or "" without one.

    The run that gave that answer has the same, so that a later run finds it by its input.
    """
    chain = ""
    for entry in sent[: answered(sent)]:
        chain = _link(chain, entry)
    return chain


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
        spoken: The indices of all but the system prompts.
        links: The chain up to each of those, as far as it has been asked for.
        answers: The numbers of those that are the assistant's.
        changed: The first entry that was put in another's place since this was last set.
        has_inner: Whether any entry was said inside of a model call's span.
    """

    entries: list[Entry] = field(default_factory=list)
    spoken: list[int] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    changed: int = 0
    has_inner: bool = False

    def fork(self, length: int) -> Thread:
        """Return a new thread with the first `length` entries."""
        count = bisect_left(self.spoken, length)
        answers = self.answers[: bisect_left(self.answers, count)]
        entries, links = self.entries[:length], self.links[:count]
        return Thread(entries, self.spoken[:count], links, answers, has_inner=self.has_inner)

    def chain(self) -> str:
        """Return the hash over the messages up to the last of the assistant, or ""."""
        last = self.answers[-1] if self.answers else -1
        for at in range(len(self.links), last + 1):
            before = self.links[-1] if self.links else ""
            self.links.append(_link(before, self._entry(at)))
        return self.links[last] if last >= 0 else ""

    def with_inner(self, sent: Sequence[Entry]) -> Sequence[Entry]:
        """Return an input with the messages that were said inside of a model call's span.

        A model client that calls tools itself may leave these out of the history.

        Args:
            sent: The input, which begins with the thread's first messages or is returned as it is.
        """
        if not self.has_inner:
            return sent
        completed: list[Entry] = []
        for entry in sent:
            while len(completed) < len(self.spoken):
                known = self._entry(len(completed))
                if known.is_same(entry):
                    break
                if not known.is_inner:
                    return sent
                completed.append(known)
            completed.append(entry)
        return completed

    def overlap(self, sent: Sequence[Entry]) -> Overlap:
        """Return how an input lies over the thread.

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
        """Return how an input that holds only new messages lies over the thread.

        It is new unless the thread ends with it: then the call before was not answered.
        """
        size = len(self.spoken)
        at = max(0, size - len(sent))
        known = len(sent) if self._common(sent, at) == len(sent) else 0
        return Overlap(at if known else size, known, size)

    def _entry(self, at: int) -> Entry:
        return self.entries[self.spoken[at]]

    def _common(self, sent: Sequence[Entry], at: int) -> int:
        """Return how many messages of the input equal the thread's from a place on."""
        count = 0
        limit = min(len(sent), len(self.spoken) - at)
        while count < limit and self._entry(at + count).is_same(sent[count]):
            count += 1
        return count

    def place_of(self, at: int) -> int:
        """Return the entry that is the spoken message of a number, or where it would be."""
        return self.spoken[at] if at < len(self.spoken) else len(self.entries)

    def cut(self, length: int) -> list[Message]:
        """Take the entries from `length` on out of the thread, and return their messages."""
        taken = [entry.message for entry in self.entries[length:]]
        self.put(length, ())
        return taken

    def lay_over(self, sent: Sequence[Entry], found: Overlap, floor: int) -> None:
        """Append the new messages of an input, and complete known ones from it.

        Args:
            sent: The input.
            found: How it lies over the thread, of which nothing more is to be replaced.
            floor: The first entry that may be filled in.
        """
        for offset in range(found.known):
            at = found.at + offset
            index = self.spoken[at]
            if index < floor:
                continue
            old = self.entries[index]
            if not old.key:
                self.entries[index] = sent[offset]
                del self.links[at:]
            else:
                self.entries[index] = _with_ids(old, sent[offset])
            if self.entries[index] is not old:
                self.changed = min(self.changed, index)
        self.extend(sent[found.known :])

    def extend(self, entries: Iterable[Entry]) -> None:
        """Append entries."""
        for entry in entries:
            role = entry.message.role
            if role not in SYSTEM_ROLES:
                if role == "assistant":
                    self.answers.append(len(self.spoken))
                self.spoken.append(len(self.entries))
            self.entries.append(entry)

    def put(self, start: int, entries: Iterable[Entry]) -> None:
        """Replace the entries from `start` on."""
        count = bisect_left(self.spoken, start)
        del self.answers[bisect_left(self.answers, count) :]
        del self.entries[start:], self.spoken[count:], self.links[count:]
        self.changed = min(self.changed, start)
        self.extend(entries)


def with_dropped_calls(thread: Thread, sent: Sequence[Entry]) -> Sequence[Entry]:
    """Return an input with the calls that it dropped, as the thread has them.

    Args:
        thread: The conversation so far.
        sent: The input, without system prompts.

    Returns:
        The input itself where it holds no result without its call.
    """
    loose = (
        at
        for at, entry in enumerate(sent)
        if entry.message.role == "tool" and not entry.message.tool_call_id
    )
    if not any(_is_orphan(sent, at) for at in loose):
        return sent
    return list(_restored(thread, sent))


def _is_orphan(sent: Sequence[Entry], at: int) -> bool:
    """Return whether a result has neither an id nor a call or other result before it."""
    message = sent[at].message
    if message.role != "tool" or message.tool_call_id:
        return False
    before = sent[at - 1].message if at else None
    return before is None or (before.role != "tool" and not before.tool_calls)


def _restored(thread: Thread, sent: Sequence[Entry]) -> Iterator[Entry]:
    place = 0  # in the thread
    at = 0
    while at < len(sent):
        entry, known = sent[at], _known(thread, place)
        given = sent[at : at + 1]
        if _is_orphan(sent, at) and known is not None and known.message.tool_calls:
            given = _results_from(sent, at)
            yield known
            yield from (results := _results(known.message, given))
            place += 1 + len(results)
        elif not _lost_its_calls(sent, at, known):
            yield entry
            place += 1
        at += len(given)


def _results_from(sent: Sequence[Entry], at: int) -> Sequence[Entry]:
    """Return the results without ids that stand one after another from a place on."""
    end = at
    while end < len(sent) and sent[end].message.role == "tool":
        if sent[end].message.tool_call_id:
            break
        end += 1
    return sent[at:end]


def _known(thread: Thread, place: int) -> Entry | None:
    return thread.entries[thread.spoken[place]] if place < len(thread.spoken) else None


def _lost_its_calls(sent: Sequence[Entry], at: int, known: Entry | None) -> bool:
    """Return whether an answer's text was kept without its calls; they come with the result."""
    if known is None or at + 1 == len(sent) or not _is_orphan(sent, at + 1):
        return False
    message = sent[at].message
    is_same = message.role == "assistant" and (message.content or "") == (
        known.message.content or ""
    )
    return is_same and bool(known.message.tool_calls)


def _results(asked: Message, given: Sequence[Entry]) -> list[Entry]:
    """Return results with the ids of their calls, which are in the same order.

    A single one for several calls is the error of their step: of each, only that it has a result.
    """
    calls = asked.tool_calls
    if len(given) > 1 and len(given) != len(calls):
        return list(given)
    is_shared = len(given) < len(calls)
    results = []
    for call, entry in zip(calls, [*given] * len(calls) if is_shared else given, strict=True):
        message = replace(entry.message, tool_call_id=call.id)
        if is_shared:
            message = replace(message, content=None, is_error=False)
        results.append(Entry(message, key_of(message), entry.time_ns))
    return results
