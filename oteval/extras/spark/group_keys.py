"""Keys that find groups of traces that belong together, but were reconstructed apart.

Two groups that share a key may belong together: another trace continues the messages, or two
instrumentations recorded one call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...model import FAILED_REQUEST, FOLLOWS_ANSWER, RETRY_WAIT_NS, Trajectory

__all__ = ["GroupKey", "keys_of_run", "linked_groups"]

# As for pairs of runs in a store: the longest time between a call and a tool run in another trace.
_WAIT_NS = 60 * 10**9
_ALWAYS = (-(1 << 63), (1 << 63) - 1)
_ANY, _OFFERS, _WANTS = 0, 1, 2


class GroupKey(NamedTuple):
    """A key of a group, compared with the keys of other groups.

    Attributes:
        value: A hash.
        group: The number of the group.
        role: Groups with a key only belong together if one of them has the role 0, or if their
            roles are 1 and 2.
        first: The begin (ns) of the time when the key counts.
        last: The end of that time.
    """

    value: int
    group: int
    role: int
    first: int
    last: int


def keys_of_run(run: Trajectory, number: int) -> Iterator[GroupKey]:
    """Yield the keys that a run of a group shares with runs that may belong to it."""
    if not run.conversation_id:
        for role, text in ((_OFFERS, run.chain), (_WANTS, run.follows)):
            if text:
                value = _hashed("messages", run.service, text)
                yield GroupKey(value, number, role, *_times_of(run, text))
    if run.follows.startswith(FOLLOWS_ANSWER):
        key = int(run.follows.removeprefix(FOLLOWS_ANSWER))
        yield GroupKey(key & (1 << 64) - 1, number, _WANTS, *_ALWAYS)
    role = _OFFERS if run.agent else _ANY
    first, last = run.start_ns - _WAIT_NS, run.end_ns + _WAIT_NS
    for key in run.call_keys:
        yield GroupKey(key & (1 << 64) - 1, number, role, first, last)


def _times_of(run: Trajectory, text: str) -> tuple[int, int]:
    """The begin and end of the time when a run may follow another, or be followed."""
    if not text.startswith(FAILED_REQUEST):
        return _ALWAYS
    is_offer = text == run.chain
    return run.start_ns, run.end_ns + RETRY_WAIT_NS if is_offer else run.start_ns


def _hashed(*texts: str) -> int:
    data = "\0".join(texts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def linked_groups(keys: Iterable[GroupKey]) -> Iterator[set[int]]:
    """Yield sets of groups whose times overlap, if their roles go together.

    Args:
        keys: Keys with equal values.
    """
    begun: list[GroupKey] = []
    end = 0
    for key in sorted(keys, key=lambda key: key.first):
        if begun and key.first > end:
            yield _matched(begun)
            begun = []
        end = max(end, key.last) if begun else key.last
        begun.append(key)
    yield _matched(begun)


def _matched(keys: Sequence[GroupKey]) -> set[int]:
    groups, roles = {key.group for key in keys}, {key.role for key in keys}
    return groups if len(groups) > 1 and (_ANY in roles or len(roles) > 1) else set()
