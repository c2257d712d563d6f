"""Pairs the calls of two trajectories, tool by tool, under a `MatchSpec`.

Everything here works on indexes of calls; `oteval.evaluators.assignment` does the matching itself.
Calls with equal texts are paired first: that needs no parsing, and for rules that are preorders
it never prevents a better pairing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import ne

from ..jsontext import equal_objects, flat_objects
from .assignment import longest_order, match_equal, maximum_matching
from .calls import CallTable
from .rules import Rule
from .spec import MatchSpec

__all__ = [
    "Pairs",
    "call_fits",
    "differing",
    "match_calls",
    "ordered_calls",
    "same_texts",
    "unpaired",
]

_NOWHERE = -1

Pairs = list[tuple[int, int]]
"""Index of an output call and index of the reference call that it stands for."""


def differing(out: CallTable, ref: CallTable, spec: MatchSpec) -> list[int] | None:
    """Return the calls that do not match the call at the same place on the other side.

    Returns:
        The calls; None unless both sides call the same tools in the same order, and it is easily
        seen which arguments match.
    """
    rule = spec.args
    if spec.overrides or out.names != ref.names:
        return None
    if not rule.by_value and rule.blind:
        return []
    if not (rule.preorder and out.textual and ref.textual):
        return None
    if out.raw == ref.raw:
        return []
    if not rule.by_value:
        return None
    other = [call for call, differs in enumerate(map(ne, out.raw, ref.raw)) if differs]
    if len(other) == 1:  # as in most failures
        known = _equal_texts(out, ref, other[0], other[0])
        return None if known is None else [] if known else other
    return _differing_texts(out, ref, other)


def _differing_texts(out: CallTable, ref: CallTable, calls: list[int]) -> list[int] | None:
    """Return those of some calls whose arguments differ as values; None if not easily seen."""
    count = len(calls)
    if count == len(out.raw):
        texts = out.raw + ref.raw
    else:
        texts = [out.raw[call] for call in calls] + [ref.raw[call] for call in calls]
    both = flat_objects(texts)
    if both is None:
        return None
    made, wanted = both[:count], both[count:]
    if made == wanted:
        return []
    for call, one, two in zip(calls, made, wanted, strict=True):
        out.learn(call, one)
        ref.learn(call, two)
    return [call for call, one, two in zip(calls, made, wanted, strict=True) if one != two]


def same_texts(out: CallTable, ref: CallTable, spec: MatchSpec) -> Pairs | None:
    """Pair all calls with the calls of the same texts.

    Returns:
        The pairs; None unless both sides have the same texts, each once.
    """
    rule, count = spec.args, len(out.names)
    if spec.overrides or rule.blind or not (rule.preorder and out.textual and ref.textual):
        return None
    place = dict(zip(zip(ref.names, ref.raw, strict=True), range(count), strict=False))
    if len(place) != count or len(ref.names) != count:
        return None
    found = [*map(place.pop, zip(out.names, out.raw, strict=True), repeat(_NOWHERE, count))]
    return None if place else [*enumerate(found)]


def match_calls(
    out: CallTable, ref: CallTable, spec: MatchSpec, outs: Sequence[int], refs: Sequence[int]
) -> Pairs:
    """Pair as many calls as can be, in any order.

    Args:
        out: The output's calls.
        ref: The reference's calls.
        spec: The configuration.
        outs: Which of the output's calls to pair.
        refs: Which of the reference's calls to pair.

    Returns:
        A matching of the greatest possible size, in the output's order.
    """
    most = min(len(outs), len(refs))
    pairs: Pairs = []
    if not spec.overrides and spec.args.by_value and out.textual and ref.textual:
        pairs = _in_place(out, ref, outs, refs)
        if len(pairs) == most:
            return pairs
        if pairs:
            outs, refs = unpaired(pairs, outs, refs)
    if len(outs) == 1 == len(refs):
        if call_fits(out, ref, spec, outs[0], refs[0]):
            pairs.append((outs[0], refs[0]))
        return sorted(pairs)
    if not spec.overrides:
        for key in _levels(spec.args, out, ref):
            pairs += _pair_equal(outs, key(out, outs), refs, key(ref, refs))
            if len(pairs) == most:
                return sorted(pairs)
            if pairs:
                outs, refs = unpaired(pairs, outs, refs)
        if spec.args.equality and type(spec.args).key is Rule.key:
            return sorted(pairs)
        outs, refs = unpaired(pairs, outs, refs)
    wanted = _by_tool(ref, refs)
    for tool, lefts in _by_tool(out, outs).items():
        if tool in wanted:
            pairs += _match_tool(spec.rule(tool), out, ref, lefts, wanted[tool])
    return sorted(pairs)


def _in_place(out: CallTable, ref: CallTable, outs: Sequence[int], refs: Sequence[int]) -> Pairs:
    """Pair calls that stand at the same place on both sides and are easily seen to be equal."""
    made, wanted = out.names, ref.names
    return [
        (i, j)
        for i, j in zip(outs, refs, strict=False)
        if made[i] == wanted[j] and (out.raw[i] == ref.raw[j] or _equal_texts(out, ref, i, j))
    ]


def _equal_texts(out: CallTable, ref: CallTable, i: int, j: int) -> bool | None:
    """Return whether arguments in JSON text are equal; None if that is not easily seen."""
    made, wanted = out.flat.get(i), ref.flat.get(j)
    if made is None or wanted is None:
        both = flat_objects((out.raw[i], ref.raw[j]))
        if both is None:
            return equal_objects(out.raw[i], ref.raw[j])
        made, wanted = both
        out.learn(i, made)
        ref.learn(j, wanted)
    return made == wanted


def _pair_equal(
    outs: Sequence[int],
    out_keys: Sequence[Hashable],
    refs: Sequence[int],
    ref_keys: Sequence[Hashable],
) -> Pairs:
    """Pair calls of equal keys, first those at the same place, as most are; None equals nothing."""
    if out_keys == ref_keys and None not in out_keys:
        return [*zip(outs, refs, strict=True)]
    place = dict(zip(ref_keys, refs, strict=True))
    if len(place) == len(refs) and len({*out_keys}) == len(outs):  # there is one way only
        place.pop(None, None)
        return [(i, place[key]) for i, key in zip(outs, out_keys, strict=True) if key in place]
    rows = zip(outs, out_keys, refs, ref_keys, strict=False)
    pairs = [(i, j) for i, left, j, right in rows if left == right and left is not None]
    done_outs, done_refs = {i for i, _ in pairs}, {j for _, j in pairs}
    return pairs + match_equal(
        [(i, k) for i, k in zip(outs, out_keys, strict=True) if i not in done_outs],
        [(j, k) for j, k in zip(refs, ref_keys, strict=True) if j not in done_refs],
    )


def _levels(
    rule: Rule, out: CallTable, ref: CallTable
) -> Iterator[Callable[[CallTable, Sequence[int]], list[Hashable]]]:
    """Yield keys by which calls of all tools may be paired off at once, the cheapest first."""
    if rule.blind:
        yield _names
    elif rule.preorder:
        if out.textual and ref.textual and not set(out.raw).isdisjoint(ref.raw):
            yield _texts
        if type(rule).key is Rule.key:
            yield _canonical_calls


def _names(table: CallTable, calls: Sequence[int]) -> list[Hashable]:
    names = table.names
    return [names[call] for call in calls]


def _texts(table: CallTable, calls: Sequence[int]) -> list[Hashable]:
    names, raw = table.names, table.raw
    return [(names[call], raw[call]) for call in calls]


def _canonical_calls(table: CallTable, calls: Sequence[int]) -> list[Hashable]:
    names, keys = table.names, map(table.key, calls)
    return [
        None if key is None else f"{names[call]}\0{key}"
        for call, key in zip(calls, keys, strict=True)
    ]


def unpaired(pairs: Pairs, outs: Sequence[int], refs: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the unpaired calls of both sides."""
    left = dict(pairs)
    right = set(left.values())
    return [i for i in outs if i not in left], [j for j in refs if j not in right]


def call_fits(out: CallTable, ref: CallTable, spec: MatchSpec, i: int, j: int) -> bool:
    """Return whether one output call may stand for one reference call."""
    name = out.names[i]
    if name != ref.names[j]:
        return False
    rule = spec.rule(name)
    if rule.blind:
        return True
    if rule.preorder and out.textual and ref.textual and out.raw[i] == ref.raw[j]:
        return True
    if not (out.captured(i) and ref.captured(j)):
        return False
    if rule.by_value and out.textual and ref.textual:
        known = _equal_texts(out, ref, i, j)
        if known is not None:
            return known
    if rule.equality:
        key = _key(rule, out, i)
        return key is not None and key == _key(rule, ref, j)
    return _matches(rule, out, ref, i, j)


def ordered_calls(
    out: CallTable, ref: CallTable, spec: MatchSpec, outs: Sequence[int], refs: Sequence[int]
) -> Pairs:
    """Pair as many calls as can be without changing the order.

    Args:
        out: The output's calls.
        ref: The reference's calls.
        spec: The configuration.
        outs: Which of the output's calls to pair.
        refs: Which of the reference's calls to pair.

    Returns:
        Pairs in order on both sides, as many as possible.
    """
    by_tool = _by_tool(out, outs)
    bit = {i: 1 << place for place, i in enumerate(outs)}
    by_key: dict[tuple[str, Hashable], int] = {}
    for tool, lefts in by_tool.items():
        rule = spec.rule(tool)
        for i in lefts if rule.equality else ():
            if rule.blind or (out.captured(i) and _key(rule, out, i) is not None):
                key = (tool, _key(rule, out, i))
                by_key[key] = by_key.get(key, 0) | bit[i]
    masks = []
    for j in refs:
        tool = ref.names[j]
        rule = spec.rule(tool)
        if rule.equality:
            known = rule.blind or ref.captured(j)
            masks.append(by_key.get((tool, _key(rule, ref, j)), 0) if known else 0)
        else:
            fitting = (i for i in by_tool.get(tool, ()) if call_fits(out, ref, spec, i, j))
            masks.append(sum(bit[i] for i in fitting))
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
        [place for place, j in enumerate(rights) if _matches(rule, out, ref, i, j)] for i in lefts
    ]
    found = maximum_matching(adjacency, len(rights))
    return pairs + [(lefts[left], rights[right]) for left, right in found]


def _key(rule: Rule, table: CallTable, call: int) -> Hashable:
    if type(rule).key is Rule.key:
        return table.key(call)
    return rule.key(table.arguments(call))


def _matches(rule: Rule, out: CallTable, ref: CallTable, i: int, j: int) -> bool:
    try:
        return rule.matches(out.arguments(i), ref.arguments(j))
    except RecursionError:
        return False
