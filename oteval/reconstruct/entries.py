"""Messages of a conversation with their keys: a message and its repetitions share a key.

Messages that a model call repeats are recognised by role, text, tool names and canonical arguments;
ids and finish reasons differ between a call and its echo.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, overload

from ..base.jsontext import canonical, dumps
from ..messages import FEW_MESSAGES, SYSTEM_ROLES, active, of_span, parse, stamped
from ..model import Message, Span

__all__ = ["Entry", "Sent", "key_of", "keys_of"]


# Parts that a client may leave out when it repeats an answer.
_ASIDE = ("reasoning", "refusal")


def key_of(message: Message, *, by_ids: bool = False) -> str:
    """The key of a message, which its repetitions share.

    Args:
        message: The message.
        by_ids: Whether calls are known by their ids alone, because the emitter leaves the rest out
            of the history.
    """
    role, content = message.role, message.content or ""
    calls, parts = message.tool_calls, message.parts
    if by_ids and calls and all(call.id for call in calls):
        ids = sorted([call.id for call in calls])
        return hashlib.blake2b(f"ids\0{ids}".encode(), digest_size=12).hexdigest()
    if role == "tool":
        content = canonical(parse(content).value)
    # If there is a text, calls of the provider's tools may be left out of the history.
    calls = message.client_calls if content and calls else calls
    call_text = str([(call.name, canonical(call.arguments)) for call in calls]) if calls else "[]"
    part_text = "[]"
    if parts:
        part_text = str([dumps(part) for part in parts if part.get("type") not in _ASIDE])
    text = f"{role}\0{content.strip()}\0{call_text}\0{part_text}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


@dataclass(slots=True)
class Entry:
    """One message of a thread, or of the input of a model call.

    Attributes:
        message: The message.
        key: The key that `key_of` returns; "" where only its role is known.
        time_ns: When it was sent or received.
        is_open: Whether the answer was not wholly captured, and may have requested more calls.
        is_guess: Whether the message is only inferred from a call without an answer.
        is_inner: Whether it was recorded inside of a model call's span, so that later inputs may
            lack it.
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

    @property
    def is_incomplete(self) -> bool:
        """Whether an echo may complete it: all of it, or the ids and arguments of its calls."""
        if not self.key:
            return True
        for call in self.message.tool_calls:
            if not call.id or call.arguments is None or call.arguments == {}:
                return True
        return False

    def is_same(self, other: Entry) -> bool:
        """Whether another message, wholly known, is this one."""
        if not self.key:
            return self.message.role == other.message.role
        return self.key == other.key or _asks_the_same(self.message, other.message)


def keys_of(messages: Sequence[Message]) -> list[str]:
    """The keys that `key_of` returns for messages."""
    return [key_of(message) for message in messages]


class _Spoken(NamedTuple):
    """The messages of an input, taken apart.

    Attributes:
        prompts: The system prompts.
        messages: The other messages.
        keys: The keys of `messages`.
        has_loose_result: Whether any result of a tool names no call.
        answered: The number of `messages` up to the last message of the assistant.
    """

    prompts: tuple[Message, ...] = ()
    messages: tuple[Message, ...] = ()
    keys: tuple[str, ...] = ()
    has_loose_result: bool = False
    answered: int = 0


_NOTHING = _Spoken()


def _spoken(by_ids: bool, earlier: _Spoken | None, messages: Sequence[Message]) -> _Spoken:
    """The earlier and further messages of an input, taken apart."""
    prompts, spoken, keys, is_loose, answered = earlier or _NOTHING
    count = len(spoken)
    new: list[Message] = []
    for message in messages:
        role = message.role
        if role in SYSTEM_ROLES:
            prompts += (message,)
            continue
        new.append(message)
        if role == "assistant":
            answered = count + len(new)
        elif role == "tool" and not message.tool_call_id:
            is_loose = True
    keys += tuple([key_of(message, by_ids=by_ids) for message in new])
    return _Spoken(prompts, spoken + tuple(new), keys, is_loose, answered)


_SPOKEN = {by_ids: partial(_spoken, by_ids) for by_ids in (False, True)}


class Sent(Sequence[Entry]):
    """The messages of an input, without system prompts, as entries that are made on demand.

    Most of an input is only compared, by its keys.

    Args:
        messages: The messages of the input.
        span: The span that they count as read from.
        time_ns: When they were sent.
        by_ids: Whether calls are known by their ids alone.

    Attributes:
        prompts: The system prompts, which may have another span's ids.
        keys: The keys of the entries.
        has_loose_result: Whether any result of a tool names no call.
        answered: The number of entries up to the last entry of the assistant.
    """

    def __init__(
        self, messages: Sequence[Message], span: Span, time_ns: int, *, by_ids: bool = False
    ) -> None:
        cache = active() if len(messages) >= FEW_MESSAGES else None
        extend: Callable[[_Spoken | None, Sequence[Message]], _Spoken] = _SPOKEN[by_ids]
        spoken = cache.fold(extend, messages, extend) if cache else extend(None, messages)
        self.prompts, self._messages, self.keys, self.has_loose_result, self.answered = spoken
        self._span, self._time_ns = span, time_ns

    def shown_prompts(self) -> list[Entry]:
        """The system prompts as entries."""
        prompts = stamped(self.prompts, self._span)
        return [Entry(message, key_of(message), self._time_ns) for message in prompts]

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, at: int) -> Entry: ...

    @overload
    def __getitem__(self, at: slice) -> list[Entry]: ...

    def __getitem__(self, at: int | slice) -> Entry | list[Entry]:
        if isinstance(at, slice):
            span, time_ns = self._span, self._time_ns
            pairs = zip(self._messages[at], self.keys[at], strict=True)
            return [Entry(of_span(message, span), key, time_ns) for message, key in pairs]
        message = of_span(self._messages[at], self._span)
        return Entry(message, self.keys[at], self._time_ns)


def _asks_the_same(message: Message, other: Message) -> bool:
    """Whether two messages request the same calls, though the first may be incomplete.

    Streamed calls may be recorded before their arguments arrive. Some frameworks keep only the
    calls of an answer with a text: then equal ids show that it is the same answer.
    """
    if not message.tool_calls or len(message.tool_calls) != len(other.tool_calls):
        return False
    if message.role != other.role:
        return False
    pairs = list(zip(message.tool_calls, other.tool_calls, strict=True))
    is_cut = not other.content and all(a.id and a.id == b.id for a, b in pairs)
    if (message.content or "") != (other.content or "") and not is_cut:
        return False
    return all(a.name == b.name and _may_be_equal(a.arguments, b.arguments) for a, b in pairs)


def _may_be_equal(arguments: Any, other: Any) -> bool:
    return (
        arguments in ({}, None) or other in ({}, None) or canonical(arguments) == canonical(other)
    )
