"""Calls that a framework's memory drops when one of them fails.

smolagents sends the error of a failed step back to the model without the calls it is about. The
thread still has them, from the answer that asked for them. So they are put back into the input
before it is compared with the thread; else the history would look rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..model import Message
from .merge import Entry, Thread, key_of

__all__ = ["with_dropped_calls"]


def with_dropped_calls(thread: Thread, sent: Sequence[Entry]) -> Sequence[Entry]:
    """Return an input with the calls that it dropped, as the thread has them.

    Args:
        thread: The conversation so far.
        sent: The input, without system prompts.

    Returns:
        The input itself where it holds no result without its call.
    """
    if not any(_is_orphan(sent, at) for at in range(len(sent))):
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
    for at, entry in enumerate(sent):
        known = _known(thread, place)
        if _is_orphan(sent, at) and known is not None and known.message.tool_calls:
            yield known
            yield from (results := list(_results(known.message, entry)))
            place += 1 + len(results)
        elif not _lost_its_calls(sent, at, known):
            yield entry
            place += 1


def _known(thread: Thread, place: int) -> Entry | None:
    return thread.entries[thread.spoken[place]] if place < len(thread.spoken) else None


def _lost_its_calls(sent: Sequence[Entry], at: int, known: Entry | None) -> bool:
    """Return whether an answer's text was kept without its calls; they come with the result."""
    if known is None or at + 1 == len(sent) or not _is_orphan(sent, at + 1):
        return False
    message = sent[at].message
    is_same = message.role == "assistant" and message.content == known.message.content
    return is_same and bool(known.message.tool_calls)


def _results(asked: Message, entry: Entry) -> Iterator[Entry]:
    """Yield the error as the result of the only call; of several, only that there is a result."""
    for call in asked.tool_calls:
        message = replace(entry.message, tool_call_id=call.id)
        if len(asked.tool_calls) > 1:
            message = replace(message, content=None, is_error=False)
        yield Entry(message, key_of(message), entry.time_ns)
