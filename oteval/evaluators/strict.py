"""Strict comparison: message by message, with parallel calls as unordered groups.

A **position** is the place of a message, from 0. Several providers put several results into one
message; here each result has a separate message. Under a view, only messages that still contain a
call are positions. Positions form one **group** if their calls overlapped in time on either side.
The calls of a group are compared in any order, but roles are still compared at each position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .call_pairs import Pairs, call_fits, match_calls
from .calls import CallTable
from .spec import MatchSpec

__all__ = ["StrictMatch", "match_strict"]

_NONE: list[int] = []


class StrictMatch(NamedTuple):
    """The result of a strict comparison.

    Attributes:
        pairs: The calls matched at their own positions.
        position: The first position that differs, or None.
        roles: The roles there; None on a side without such a message.
        calls: The output's and the reference's calls there.
        lengths: How many messages the output and the reference have.
    """

    pairs: Pairs
    position: int | None
    roles: tuple[str | None, str | None]
    calls: tuple[list[int], list[int]]
    lengths: tuple[int, int]


class _Side:
    """One trajectory by position: the roles, and the calls if there are any."""

    __slots__ = ("calls", "roles", "table")

    def __init__(self, table: CallTable, chosen: Sequence[int], is_whole: bool) -> None:
        self.table = table
        self.calls: dict[int, list[int]] = {}
        for call in chosen:
            self.calls.setdefault(table.at[call], []).append(call)
        self.roles = table.roles
        if not is_whole:
            self.roles = [table.roles[call] for call in self.calls]
            self.calls = dict(enumerate(self.calls.values()))

    def role(self, position: int) -> str | None:
        return self.roles[position] if position < len(self.roles) else None


def match_strict(
    out: CallTable, ref: CallTable, spec: MatchSpec, outs: Sequence[int], refs: Sequence[int]
) -> StrictMatch:
    """Compare two trajectories position by position.

    Args:
        out: The output.
        ref: The reference.
        spec: The configuration.
        outs: The output's calls that count.
        refs: The reference's calls that count.

    Returns:
        The matched calls and the first difference.
    """
    is_whole = spec.view == "all"
    left, right = _Side(out, outs, is_whole), _Side(ref, refs, is_whole)
    first = _first_role(left.roles, right.roles)
    pairs: Pairs = []
    for group in _groups(left, right, spec):
        if len(group) == 1:
            lefts, rights = left.calls.get(group[0], _NONE), right.calls.get(group[0], _NONE)
        else:
            lefts = [i for p in group for i in left.calls.get(p, ())]
            rights = [j for p in group for j in right.calls.get(p, ())]
        group_pairs = _pair(out, ref, spec, lefts, rights)
        pairs += group_pairs
        if group[0] < first and not len(group_pairs) == len(lefts) == len(rights):
            first = min(first, _first_unpaired(group, left, right, group_pairs))
    lengths = (len(left.roles), len(right.roles))
    calls = (left.calls.get(first, []), right.calls.get(first, []))
    roles = (left.role(first), right.role(first))
    position = first if first < max(lengths) else None
    return StrictMatch(sorted(pairs), position, roles, calls, lengths)


def _first_role(left: list[str], right: list[str]) -> int:
    """The first position whose roles differ; past the end if none differs."""
    if left == right:
        return len(left)
    roles = enumerate(zip(left, right, strict=False))
    return next((position for position, (a, b) in roles if a != b), min(len(left), len(right)))


def _pair(
    out: CallTable, ref: CallTable, spec: MatchSpec, lefts: list[int], rights: list[int]
) -> Pairs:
    if spec.strict_order:
        candidates = zip(lefts, rights, strict=False)
        return [(i, j) for i, j in candidates if call_fits(out, ref, spec, i, j)]
    return match_calls(out, ref, spec, lefts, rights)


def _first_unpaired(group: list[int], left: _Side, right: _Side, pairs: Pairs) -> int:
    lefts, rights = {i for i, _ in pairs}, {j for _, j in pairs}
    for position in group:
        if not lefts.issuperset(left.calls.get(position, ())):
            return position
        if not rights.issuperset(right.calls.get(position, ())):
            return position
    return group[0]


def _groups(left: _Side, right: _Side, spec: MatchSpec) -> list[list[int]]:
    """The positions with calls; positions that are compared together are in one list."""
    positions = sorted(left.calls.keys() | right.calls.keys())
    if spec.strict_order or not (left.table.times or right.table.times):
        return [[position] for position in positions]
    head = {position: position for position in positions}
    for side in (left, right):
        for first, second in _overlaps(side):
            first, second = _head(head, first), _head(head, second)
            head[max(first, second)] = min(first, second)
    groups: dict[int, list[int]] = {}
    for position in positions:
        groups.setdefault(_head(head, position), []).append(position)
    return list(groups.values())


def _overlaps(side: _Side) -> list[tuple[int, int]]:
    """Return pairs that connect all positions whose calls overlapped in time."""
    times = side.table.times
    spans = sorted(
        (*times[call], position)
        for position, calls in side.calls.items()
        for call in calls
        if call in times
    )
    pairs, latest, holder = [], 0, -1
    for start, end, position in spans:
        if start < latest and position != holder:
            pairs.append((holder, position))
        if end > latest:
            latest, holder = end, position
    return pairs


def _head(head: dict[int, int], position: int) -> int:
    while head[position] != position:
        head[position] = head[head[position]]
        position = head[position]
    return position
