"""A trajectory's roles and calls as columns, the compact form for matching.

A match ignores message content, so a table has only roles and calls, and arguments stay unparsed
JSON text until a comparison needs them. Most trajectories are plain OpenAI dicts. This module reads
them without creating `Message` objects; `oteval.messages.direct` reads all other forms. Without
this shortcut, the match benchmark takes 10 times as long. A test proves that both readers agree.

A **call's index** counts all calls of the trajectory from 0, under every view. A call whose
arguments were not captured has None as its raw arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base.jsontext import loads_exact
from ..messages import ROLE_NAMES, parse_arguments, read_direct, role_of
from ..model import Message
from .messages import entries
from .values import canonical_key

__all__ = ["CallTable", "read"]

_STRINGS = frozenset({str})
# Any other field may contain calls, so messages with other fields are not read here.
# `_MANY` forces the check of a message's fields.
_MANY = 4
_FIELDS = frozenset({"content", "is_error", "name", "role", "tool_call_id", "tool_calls"})


class CallTable:
    """The roles and calls of one trajectory.

    Attributes:
        roles: The role of each message.
        names: The tool of each call.
        raw: The arguments of each call: JSON text, a value, or None if not captured.
        at: The index of each call's message.
        times: Start and end in ns of the calls that have a tool span.
        textual: Whether all arguments are JSON text, so that equal texts are equal arguments.
    """

    __slots__ = ("_keys", "_parsed", "at", "names", "raw", "roles", "textual", "times")

    def __init__(self) -> None:
        self.roles: list[str] = []
        self.names: list[str] = []
        self.raw: list[Any] = []
        self.at: list[int] = []
        self.times: dict[int, tuple[int, int]] = {}
        self.textual = True
        self._parsed: dict[int, Any] = {}
        self._keys: dict[int, str | None] = {}

    def arguments(self, call: int) -> Any:
        """A call's arguments as a value; None if they were not captured."""
        if call in self._parsed:
            return self._parsed[call]
        raw = self.raw[call]
        try:
            value = loads_exact(raw)
        except (ValueError, RecursionError):
            value = None
        # `parse_arguments` handles all other cases.
        self._parsed[call] = value = value if type(value) is dict else parse_arguments(raw)
        return value

    def key(self, call: int) -> str | None:
        """A text that equal arguments share; None equals nothing."""
        if call in self._keys:
            return self._keys[call]
        value = self.arguments(call)
        key = None if value is None else canonical_key(value)
        self._keys[call] = key
        return key

    def learn(self, call: int, value: dict[str, Any]) -> None:
        """Store the arguments of a call that `oteval.base.jsontext.flat_objects` parsed."""
        self._parsed[call] = value

    def captured(self, call: int) -> bool:
        """Whether a call's arguments were captured."""
        return self.raw[call] is not None

    def add(self, message: Message) -> None:
        """Append a message."""
        position = len(self.roles)
        self.roles.append(role_of(message.role))
        for call in message.tool_calls:
            index = len(self.names)
            self.names.append(call.name)
            self.raw.append(call.arguments)
            self._parsed[index] = call.arguments
            self.at.append(position)
            if call.start_ns > 0 and call.end_ns > 0:
                self.times[index] = (call.start_ns, call.end_ns)
            self.textual = False


def read(value: Any, name: str) -> CallTable:
    """Read a trajectory in any form.

    Args:
        value: As for `oteval.evaluators.messages.to_messages`.
        name: Its name in error messages.

    Returns:
        Its roles and calls.

    Raises:
        InputError: The value cannot be read as a trajectory; the message contains the name.
    """
    items, name = (value, name) if type(value) is list else entries(value, name)
    table = _read_plain(items)
    if table is not None:
        return table
    table = CallTable()
    for message in read_direct(items, name):
        table.add(message)
    return table


def _read_plain(items: Sequence[Any]) -> CallTable | None:
    """Read plain OpenAI dicts; None if a message has another form."""
    table = CallTable()
    roles, names, raw, at = table.roles, table.names, table.raw, table.at
    try:
        # One loop, because another pass over the messages costs more than all these checks.
        for item in items:
            count = len(item)  # fields, counting a missing content
            if "content" in item:
                content = item["content"]
                if type(content) is not str and content is not None:
                    return None
            else:
                count += 1
            if "tool_calls" in item:
                for call in item["tool_calls"] or ():
                    function = call["function"]
                    names.append(function["name"])
                    raw.append(function["arguments"])
                    at.append(len(roles))
            elif count > 2 and "tool_call_id" not in item:
                count = _MANY
            if count > 3 and not _FIELDS.issuperset(item):
                return None
            roles.append(ROLE_NAMES[item["role"]])
    except (KeyError, TypeError):
        return None
    return table if {*map(type, raw), *map(type, names)} <= _STRINGS else None
