"""Pairs the calls of two trajectories under a `MatchSpec`: tool by tool, or position by position.

All functions work on indexes of calls; `oteval.evaluators.assignment` computes the matching.
Each call has one key. Rules that are preorders pair calls with equal keys first, which never
prevents a better pairing. `oteval.evaluators.comparison` tries shortcuts before that.

The mode strict goes by **positions**: the places of the messages, from 0. Several providers put
several results into one message; here each result has a separate message. Under a view, only
messages that still contain a call are positions. Positions form one **group** if their calls
overlapped in time on either side. The calls of a group are compared in any order, but roles are
still compared at each position.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from .assignment import longest_order, match_equal, maximum_matching
from .calls import CallTable
from .rules import Rule
from .spec import MatchSpec

__all__ = [
    "Pairs",
    "StrictMatch",
    "call_fits",
    "match_calls",
    "match_strict",
    "ordered_calls",
    "unpaired",
]

Pairs = list[tuple[int, int]]
"""Index of an output call, and index of the reference call that it matches."""


def match_calls(
    out: CallTable, ref: CallTable, spec: MatchSpec, outs: Sequence[int], refs: Sequence[int]
) -> Pairs:
    """Pair as many calls as possible, in any order.

    Args:
        out: The output's calls.
        ref: The reference's calls.
        spec: The configuration.
        outs: Which of the output's calls to pair.
        refs: Which of the reference's calls to pair.

    Returns:
        A maximum matching, in the output's order.
    """
    if len(outs) == 1 == len(refs):
        return [(outs[0], refs[0])] if call_fits(out, ref, spec, outs[0], refs[0]) else []
    pairs: Pairs = []
    rights = _by_tool(ref, refs)
    for tool, lefts in _by_tool(out, outs).items():
        if tool in rights:
            pairs += _match_tool(spec.rule(tool), out, ref, lefts, rights[tool])
    return sorted(pairs)


def unpaired(pairs: Pairs, outs: Sequence[int], refs: Sequence[int]) -> tuple[list[int], list[int]]:
    """The unpaired calls of both sides."""
    left = dict(pairs)
    right = set(left.values())
    return [i for i in outs if i not in left], [j for j in refs if j not in right]


def call_fits(out: CallTable, ref: CallTable, spec: MatchSpec, i: int, j: int) -> bool:
    """Whether an output call matches a reference call."""
    name = out.names[i]
    if name != ref.names[j]:
        return False
    rule = spec.rule(name)
    if rule.blind:
        return True
    # Without the comparison of texts, failures of strict take 1.4 times as long in the benchmark.
    if rule.preorder and out.textual and ref.textual and out.raw[i] == ref.raw[j]:
        return True
    if rule.equality:
        key = _key(rule, out, i)
        return key is not None and key == _key(rule, ref, j)
    return out.captured(i) and ref.captured(j) and _matches(rule, out, ref, i, j)


def ordered_calls(
    out: CallTable, ref: CallTable, spec: MatchSpec, outs: Sequence[int], refs: Sequence[int]
) -> Pairs:
    """Pair as many calls as possible without changing the order.

    Args:
        out: The output's calls.
        ref: The reference's calls.
        spec: The configuration.
        outs: Which of the output's calls to pair.
        refs: Which of the reference's calls to pair.

    Returns:
        A maximum set of pairs that are in order on both sides.
    """
    by_key: dict[tuple[str, Hashable], int] = {}
    by_tool: dict[str, list[tuple[int, int]]] = {}
    for index, i in enumerate(outs):
        tool, bit = out.names[i], 1 << index
        rule = spec.rule(tool)
        if not rule.equality:
            by_tool.setdefault(tool, []).append((bit, i))
        elif (key := _key(rule, out, i)) is not None:
            by_key[tool, key] = by_key.get((tool, key), 0) | bit
    masks = []
    for j in refs:
        tool = ref.names[j]
        rule = spec.rule(tool)
        if rule.equality:
            masks.append(by_key.get((tool, _key(rule, ref, j)), 0))
        else:
            candidates = by_tool.get(tool, ())
            masks.append(sum(bit for bit, i in candidates if call_fits(out, ref, spec, i, j)))
    return [(outs[left], refs[right]) for left, right in longest_order(masks)]


def _by_tool(table: CallTable, calls: Iterable[int]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for call in calls:
        groups.setdefault(table.names[call], []).append(call)
    return groups


def _match_tool(
    rule: Rule, out: CallTable, ref: CallTable, lefts: list[int], rights: list[int]
) -> Pairs:
    if rule.blind:
        return list(zip(lefts, rights, strict=False))
    lefts = [i for i in lefts if out.captured(i)]
    rights = [j for j in rights if ref.captured(j)]
    pairs: Pairs = []
    if rule.equality or rule.preorder:
        pairs = match_equal(
            ((i, _key(rule, out, i)) for i in lefts), ((j, _key(rule, ref, j)) for j in rights)
        )
        if rule.equality or len(pairs) == min(len(lefts), len(rights)):
            return pairs
        lefts, rights = unpaired(pairs, lefts, rights)
    adjacency = [
        [index for index, j in enumerate(rights) if _matches(rule, out, ref, i, j)] for i in lefts
    ]
    matching = maximum_matching(adjacency, len(rights))
    return pairs + [(lefts[left], rights[right]) for left, right in matching]


def _key(rule: Rule, table: CallTable, call: int) -> Hashable:
    """A key that equal arguments share; None equals nothing."""
    if not (table.captured(call) or rule.blind):
        return None
    if type(rule).key is Rule.key:
        return table.key(call)
    return rule.key(table.arguments(call))


def _matches(rule: Rule, out: CallTable, ref: CallTable, i: int, j: int) -> bool:
    try:
        return rule.matches(out.arguments(i), ref.arguments(j))
    except RecursionError:
        return False


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
