"""Two trajectories lined up, message by message, and where they first part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from ..jsontext import canonical
from ..model import Message

__all__ = ["Pair", "align", "first_divergence"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A message of each side, or None where a side has none.

    Attributes:
        left: The first trajectory's.
        right: The second's.
        same: Whether both say and call the same.
    """

    left: Message | None
    right: Message | None
    same: bool


def _key(message: Message) -> str:
    """Return what two messages share when they are the same: role, text, calls, failure."""
    calls = sorted(f"{call.name} {canonical(call.arguments)}" for call in message.tool_calls)
    return canonical([message.role, message.content or "", calls, message.is_error])


def align(left: Sequence[Message], right: Sequence[Message]) -> list[Pair]:
    """Return the messages of two trajectories side by side.

    Where both have other messages between equal ones, those are put beside each other in order.
    """
    keys = [_key(message) for message in left], [_key(message) for message in right]
    matcher = SequenceMatcher(None, *keys, autojunk=False)
    pairs: list[Pair] = []
    for kind, a, b, c, d in matcher.get_opcodes():
        for offset in range(max(b - a, d - c)):
            one = left[a + offset] if a + offset < b else None
            other = right[c + offset] if c + offset < d else None
            pairs.append(Pair(one, other, kind == "equal"))
    return pairs


def first_divergence(pairs: Sequence[Pair]) -> int | None:
    """Return the index of the first pair that differs, or None."""
    return next((index for index, pair in enumerate(pairs) if not pair.same), None)
