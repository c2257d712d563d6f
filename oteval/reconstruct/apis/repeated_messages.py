"""The messages of requests, read once although each request repeats the messages before.

Requests of a long session have the same beginning. Their items are read in *runs* that do not
depend on each other. A run begins at each message, unless it and the message before are the
assistant's. The messages of a run are kept by its exact content. So the next request gets the same
objects, and reading a session takes time for its new messages only.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from ...messages import NO_SOURCE, from_messages
from ...model import Message

__all__ = ["repeated_messages"]

# How much content is kept, in bytes of its keys; then all of it is forgotten.
_MOST = 64 * 1024 * 1024
# Version 2 of the format has no references, so equal items have equal bytes, and others never do.
_FORMAT = 2
_OTHERS = ("developer", "system", "tool", "user")
_RESULT, _CALL = "function_call_output", "function_call"


class _Memory:
    """The messages of the runs that were read last."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Message, ...]] = {}
        self._size = 0

    def read(self, run: list[Any]) -> tuple[Message, ...]:
        """The messages of a run; none if it cannot be read alone."""
        try:
            key = marshal.dumps(run, _FORMAT)
        except ValueError:  # nested too deeply
            return tuple(from_messages(run, NO_SOURCE))
        messages = self._known.get(key)
        if messages is None:
            # Items of unknown forms belong to the message before, which must be of this run.
            is_whole = len(run) == 1 or bool(from_messages(run[:1], NO_SOURCE))
            messages = tuple(from_messages(run, NO_SOURCE)) if is_whole else ()
            if self._size > _MOST:
                self._known, self._size = {}, 0
            self._size += len(key)
            self._known[key] = messages
        return messages


_memory = _Memory()


def repeated_messages(items: Any) -> list[Message]:
    """The messages of a parsed list, as `from_messages` does.

    Args:
        items: The list.
    """
    if not isinstance(items, list):
        return from_messages(items, NO_SOURCE)
    message_runs = [_memory.read(run) for run in _runs(items)]
    if not all(message_runs):
        return from_messages(items, NO_SOURCE)
    if any(
        earlier[-1].role == later[0].role == "assistant"
        for earlier, later in pairwise(message_runs)
    ):
        return from_messages(items, NO_SOURCE)  # They may belong together.
    return [message for run in message_runs for message in run]


def _runs(items: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield the items in runs whose messages are the same with and without the items before."""
    run: list[Any] = []
    for item in items:
        if run and _begins(item, run[-1]):
            yield run
            run = []
        run.append(item)
    yield run


def _begins(item: Any, before: Any) -> bool:
    """Whether an item begins a run."""
    if not isinstance(item, dict) or not isinstance(before, dict):
        return False
    role = item.get("role")
    if role is None:
        return item.get("type") == _CALL and before.get("type") == _RESULT
    content = item.get("content")
    if content and (type(content) is str or type(content) is list):
        return role in _OTHERS or (role == "assistant" and before.get("role") in _OTHERS)
    return role == "assistant" and bool(item.get("tool_calls")) and before.get("role") in _OTHERS
