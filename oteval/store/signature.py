"""The signature of a run: columns of a trajectory's row that summarize its messages.

Runs with equal signatures match. A call becomes a 63-bit hash of its name and canonical arguments.
A call without recorded arguments has no hash, and does not match any other call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from ..base.jsontext import call_hash, dumps_exact, escaped
from ..model import Message, ToolCall, call_errors

__all__ = ["Signature", "name_hash", "signature_of"]


@dataclass(frozen=True, slots=True)
class Signature:
    """The columns of a run's own messages.

    Attributes:
        roles: The role of each message.
        names: The tool of each call, in order.
        hashes: The hash of each call, or None if its arguments are unknown.
        positions: The index of each call's message.
        errors: Whether each call failed, or None if that is unknown.
        strict_names: A hash of the roles and, by message, the tools called.
        strict_calls: The same with arguments, or None if some are unknown.
        overlapping: Whether calls of different messages ran at the same time.
    """

    roles: tuple[str, ...]
    names: tuple[str, ...]
    hashes: tuple[int | None, ...]
    positions: tuple[int, ...]
    errors: tuple[bool | None, ...]
    strict_names: int
    strict_calls: int | None
    overlapping: bool


def name_hash(text: str) -> int:
    """A 63-bit hash of a text."""
    data = escaped(text).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") >> 1


def signature_of(messages: Sequence[Message]) -> Signature:
    """The columns of some messages."""
    calls = [(at, call) for at, message in enumerate(messages) for call in message.tool_calls]
    hashes = tuple(
        None if call.arguments is None else call_hash(call.name, call.arguments)
        for _, call in calls
    )
    # Columns are UTF-8, which cannot encode lone surrogates.
    names = tuple(escaped(call.name) for _, call in calls)
    positions = tuple(at for at, _ in calls)
    roles = tuple(message.role for message in messages)
    all_hashed = all(value is not None for value in hashes)
    return Signature(
        roles=roles,
        names=names,
        hashes=hashes,
        positions=positions,
        errors=call_errors(messages),
        strict_names=_strict(roles, positions, names),
        strict_calls=_strict(roles, positions, list(map(str, hashes))) if all_hashed else None,
        overlapping=_overlapping(calls),
    )


def _strict(roles: Sequence[str], positions: Sequence[int], calls: Sequence[str]) -> int:
    grouped: list[list[str]] = [[] for _ in roles]
    for at, call in zip(positions, calls, strict=True):
        grouped[at].append(call)
    # JSON separates the names without ambiguity.
    return name_hash(
        dumps_exact([[role, *sorted(g)] for role, g in zip(roles, grouped, strict=True)])
    )


def _overlapping(calls: Sequence[tuple[int, ToolCall]]) -> bool:
    timed = sorted((c.start_ns, c.end_ns, at) for at, c in calls if c.start_ns and c.end_ns)
    end_ns, message = 0, -1
    for start, end, at in timed:
        if start < end_ns and at != message:
            return True
        if end > end_ns:
            end_ns, message = end, at
    return False
