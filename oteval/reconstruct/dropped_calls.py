"""Calls that a framework's memory drops when one of them fails.

smolagents sends the error of a failed step back to the model without the calls it is about; OpenLIT
writes LangChain's history without calls, and its results without their ids. The
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
