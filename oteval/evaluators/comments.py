"""Why a match failed, in a line that people can act on.

A comment names the first position that differs (strict) or the calls that are missing and
extra. If a missing call has a namesake among the extra calls, the comment adds the difference
between the two: the **near miss**. Lists and values are cut, so a comment stays short however long
the trajectory is.

``{"item_ids": [1, 2]}`` and ``{"item_ids": [2, 1]}`` differ, since in JSON the order of a list
counts. For many tools it does not. So a comment on calls that a match left unpaired for that
reason alone names the option that ignores the order: ``{"tolerant": {"sets": ["item_ids"]}}``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from ..base.jsontext import canonical, dumps
from .call_pairs import StrictMatch, call_fits, unpaired
from .calls import CallTable
from .rules import Exact, Rule, Tolerant
from .spec import MatchSpec
from .values import canonical_key, differences, holds_list, same, show, sorted_lists

__all__ = [
    "call_lists",
    "calls_comment",
    "may_hold_lists",
    "option_for",
    "reordered_lists",
    "strict_comment",
]

_EXACT = Exact()
_LISTED = 3
_CANDIDATES = 10


def calls_comment(
    out: CallTable,
    ref: CallTable,
    spec: MatchSpec,
    extra: Sequence[int],
    missing: Sequence[int],
) -> str:
    """List the missing and the extra calls.

    Args:
        out: The output's calls.
        ref: The reference's calls.
        spec: The configuration; its mode decides which calls count against the output.
        extra: The output's calls that count and have no counterpart.
        missing: The reference's calls that count and have no counterpart.

    Returns:
        The comment.
    """
    parts = []
    if missing and spec.mode != "subset":
        parts.append(_listed("missing", ref, missing))
    if extra and spec.mode not in ("superset", "in_order"):
        parts.append(_listed("extra", out, extra))
    if spec.mode == "subset":
        for call in extra[:_LISTED]:
            near = _nearest(out, ref, call, missing, turned=False)
            if near is not None:
                parts.append(_near_miss(out, ref, spec, call, near))
    else:
        for call in missing[:_LISTED]:
            near = _nearest(ref, out, call, extra, turned=True)
            if near is not None:
                parts.append(_near_miss(out, ref, spec, near, call))
    return "; ".join(parts)


def strict_comment(out: CallTable, ref: CallTable, spec: MatchSpec, match: StrictMatch) -> str:
    """Describe the difference at the first position that differs.

    Args:
        out: The output.
        ref: The reference.
        spec: The configuration.
        match: The result of the comparison.

    Returns:
        The comment.
    """
    counts = ""
    if match.lengths[0] != match.lengths[1]:
        counts = f" ({match.lengths[0]} messages against the reference's {match.lengths[1]})"
    left, right = match.roles
    if left is None or right is None:
        side = "output" if left is None else "reference"
        why = f"the {side} ends where the other side goes on with role {left or right!r}"
    elif left != right:
        why = f"role {left!r} in the output, {right!r} in the reference"
    else:
        why = _calls_at(out, ref, spec, match)
    return f"position {match.position}: {why}{counts}"


def _calls_at(out: CallTable, ref: CallTable, spec: MatchSpec, match: StrictMatch) -> str:
    lefts, rights = match.calls
    if spec.strict_order:
        for i, j in zip(lefts, rights, strict=False):
            if (i, j) not in match.pairs and _out_of_order(out, ref, spec, i, rights):
                return f"{_call(out, i)} where the reference has {_call(ref, j)}"
    return calls_comment(out, ref, spec, *unpaired(match.pairs, lefts, rights))


def _out_of_order(
    out: CallTable, ref: CallTable, spec: MatchSpec, i: int, rights: Sequence[int]
) -> bool:
    return any(call_fits(out, ref, spec, i, j) for j in rights)


def _listed(what: str, table: CallTable, calls: Sequence[int]) -> str:
    count = len(calls)
    if count == 1:  # as in most failures
        return f"{what} 1 call: {_call(table, calls[0])}"
    listed_calls = ", ".join([_call(table, call) for call in calls[:_LISTED]])
    more = f" and {count - _LISTED} more" if count > _LISTED else ""
    return f"{what} {count} calls: {listed_calls}{more}"


def _call(table: CallTable, call: int) -> str:
    arguments = table.arguments(call)
    if arguments is None:
        return f"{table.names[call]}(arguments were not captured)"
    return f"{table.names[call]}({show(arguments, 80)})"


def _nearest(
    table: CallTable, other_table: CallTable, call: int, candidates: Sequence[int], *, turned: bool
) -> int | None:
    """The namesake whose arguments differ in the fewest places."""
    name = table.names[call]
    if len(candidates) == 1:  # as most are
        return candidates[0] if other_table.names[candidates[0]] == name else None
    same_name = list(islice((i for i in candidates if other_table.names[i] == name), _CANDIDATES))
    if len(same_name) < 2:
        return same_name[0] if same_name else None
    best: tuple[int, int] | None = None
    for other in same_name:
        pair = (other_table.arguments(other), table.arguments(call))
        out, ref = pair if turned else pair[::-1]
        count = 0 if call_lists(_EXACT, out, ref) else _count(out, ref)
        if best is None or count < best[0]:
            best = (count, other)
    return None if best is None else best[1]


def _count(out: object, ref: object) -> int:
    try:
        return sum(1 for _ in islice(differences(out, ref, same), 20))
    except RecursionError:
        return 20


def _near_miss(out: CallTable, ref: CallTable, spec: MatchSpec, i: int, j: int) -> str:
    tool = out.names[i]
    if not out.captured(i) or not ref.captured(j):
        side = "reference" if out.captured(i) else "output"
        return f"{tool}: the {side}'s arguments were not captured"
    rule, left, right = spec.rule(tool), out.arguments(i), ref.arguments(j)
    try:
        why = rule.explain(left, right)
    except RecursionError:
        why = None
    # Without an order, calls that fit are not left over. A preorder explains no calls that fit.
    may_fit = spec.mode in ("strict", "in_order") and not (why and rule.preorder)
    if may_fit and call_fits(out, ref, spec, i, j):
        return f"{tool} is called, but not in the reference's order"
    paths = call_lists(rule, left, right) if may_hold_lists(out, i, ref, j) else []
    if why and paths:
        lists = "list" if len(paths) == 1 else "lists"
        path_names = " and ".join(repr(path) for path in paths)
        sets = "it as a set" if len(paths) == 1 else "them as sets"
        option = option_for(rule, paths)
        return (
            f"{tool}: only the order of the {lists} {path_names} differs ({why}); "
            f"the argument mode {option} compares {sets}"
        )
    return f"{tool}: {why or 'the arguments are nested too deeply to compare'}"


# The most namesakes that a call is compared with.
_NAMESAKES = 50


def reordered_lists(
    out: CallTable,
    ref: CallTable,
    spec: MatchSpec,
    extra: Sequence[int],
    missing: Sequence[int],
) -> dict[str, list[str]]:
    """The lists whose order alone keeps unpaired calls apart.

    Args:
        out: The output's calls.
        ref: The reference's calls.
        spec: The configuration.
        extra: The output's calls that count and have no counterpart.
        missing: The reference's calls that count and have no counterpart.

    Returns:
        By tool, the dotted paths of the lists, as the option ``sets`` takes them.
    """
    extra = _with_lists(out, extra)
    missing = _with_lists(ref, missing) if extra else []
    if not missing:
        return {}
    waiting: dict[tuple[str, str], list[int]] = {}
    for call in missing:
        key = _unordered(spec.rule(ref.names[call]), ref, call)
        if key is not None:
            waiting.setdefault((ref.names[call], key), []).append(call)
    paths_by_tool: dict[str, list[str]] = {}
    for call in extra if waiting else ():
        tool = out.names[call]
        key = _unordered(spec.rule(tool), out, call)
        for reference_call in waiting.get((tool, key), [])[:_NAMESAKES] if key is not None else ():
            tool_paths = paths_by_tool.setdefault(tool, [])
            paths = call_lists(spec.rule(tool), out.arguments(call), ref.arguments(reference_call))
            tool_paths += [path for path in paths if path not in tool_paths]
    return {tool: sorted(paths) for tool, paths in paths_by_tool.items() if paths}


def call_lists(rule: Rule, out: Any, ref: Any) -> list[str]:
    """The paths of the lists whose order alone keeps two calls' arguments apart.

    Args:
        rule: How the arguments are compared.
        out: The output's arguments.
        ref: The reference's arguments.

    Returns:
        The paths; empty if the arguments match, or differ in more than the order of lists.
    """
    try:
        if not (holds_list(out) and holds_list(ref)):
            return []
        left, right = rule.compared(out), rule.compared(ref)
        if left is None or right is None or canonical(left) == canonical(right):
            return []
        if canonical(sorted_lists(left)) != canonical(sorted_lists(right)):
            return []
        return list(dict.fromkeys(path for path in _paths(left, right, "") if path))
    except RecursionError:
        return []


def option_for(rule: Rule, paths: Sequence[str]) -> str:
    """The argument mode that compares lists as sets, as JSON text.

    Args:
        rule: How the arguments are compared now; lists that are sets stay sets.
        paths: The lists.
    """
    sets = {*paths, *(rule.sets if isinstance(rule, Tolerant) else ())}
    return dumps({"tolerant": {"sets": sorted(sets)}})


def may_hold_lists(out: CallTable, i: int, ref: CallTable, j: int) -> bool:
    """Whether the arguments of both calls may contain a list; decided without parsing."""
    if out.textual and "[" not in out.raw[i]:
        return False
    return bool(_with_lists(out, (i,)) and _with_lists(ref, (j,)))


def _with_lists(table: CallTable, calls: Sequence[int]) -> list[int]:
    """The calls whose arguments may contain a list."""
    raw = table.raw
    if table.textual:
        return [call for call in calls if "[" in raw[call]]
    return [
        call
        for call in calls
        if raw[call] is not None and (not isinstance(raw[call], str) or "[" in raw[call])
    ]


def _unordered(rule: Rule, table: CallTable, call: int) -> str | None:
    try:
        if not holds_list(table.arguments(call)):
            return None
        value = rule.compared(table.arguments(call))
        return None if value is None else canonical_key(sorted_lists(value))
    except RecursionError:
        return None


def _paths(left: Any, right: Any, path: str) -> Iterator[str]:
    """Yield the paths of the lists that differ between values that are equal but for order."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in left:
            if key in right:
                yield from _paths(left[key], right[key], f"{path}.{key}" if path else str(key))
    elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        exact = [[canonical(item) for item in side] for side in (left, right)]
        if exact[0] != exact[1] and sorted(exact[0]) == sorted(exact[1]):
            yield path
            return
        # Items that are equal but for the order of lists inside them: lists add no component.
        if [*map(_sorted_key, left)] != [*map(_sorted_key, right)]:
            yield path
        for output, reference in zip(
            sorted(left, key=_sorted_key), sorted(right, key=_sorted_key), strict=False
        ):
            yield from _paths(output, reference, path)


def _sorted_key(value: Any) -> str:
    return canonical(sorted_lists(value))
