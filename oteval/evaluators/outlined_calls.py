"""The calls of an outline, which a match compares by their hashes instead of their arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..base.jsontext import call_hash
from ..messages import role_of
from ..model import Message, ToolCall
from .calls import CallTable
from .outline import Unread
from .rules import Rule

__all__ = ["HashedCalls", "OutlinedCalls", "call_hashes", "compares_hashes"]

_CAPTURED = object()


def compares_hashes(rule: Rule) -> bool:
    """Whether a rule only needs to know whether the arguments are equal."""
    return rule.blind or rule.by_value


def call_hashes(messages: Iterable[Message]) -> list[int | None]:
    """The hash of each call, as stored; None if its arguments are not known."""
    calls = (call for message in messages for call in message.tool_calls)
    return [
        None if call.arguments is None else call_hash(call.name, call.arguments) for call in calls
    ]


class HashedCalls(CallTable):
    """The calls of a reference; their keys are hashes."""

    def __init__(self, messages: Sequence[Message]) -> None:
        super().__init__()
        for message in messages:
            self.add(message)
        hashes = call_hashes(messages)
        self._keys = {
            at: None if hash_value is None else str(hash_value)
            for at, hash_value in enumerate(hashes)
        }


class OutlinedCalls(CallTable):
    """The calls of a run's outline; reading arguments that are not known raises `Unread`."""

    __slots__ = ("_calls",)

    def __init__(self, messages: Iterable[Message]) -> None:
        super().__init__()
        self._calls: list[ToolCall] = []
        for position, message in enumerate(messages):
            self.roles.append(role_of(message.role))
            for call in message.tool_calls:
                self._add(call, position)

    def _add(self, call: ToolCall, position: int) -> None:
        index = len(self.names)
        self.names.append(call.name)
        self.at.append(position)
        self.textual = False
        self._calls.append(call)
        hash_value = vars(call).get("hash", _CAPTURED)
        self.raw.append(None if hash_value is None else _CAPTURED)
        if hash_value is not _CAPTURED:
            self._keys[index] = None if hash_value is None else str(hash_value)

    def arguments(self, call: int) -> Any:
        """A call's arguments; None where they were not captured.

        Raises:
            Unread: They were not read.
        """
        return None if self.raw[call] is None else self._calls[call].arguments

    def key(self, call: int) -> str | None:
        """The hash of a call with its arguments."""
        if call in self._keys:
            return self._keys[call]
        raise Unread("arguments")

    def captured(self, call: int) -> bool:
        """Whether the trace contains the call's arguments."""
        if call in self._keys:
            return self.raw[call] is not None
        return self.arguments(call) is not None
