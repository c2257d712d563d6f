"""Calls that differ only in the order of a list, and the option that ignores that order.

``{"item_ids": [1, 2]}`` and ``{"item_ids": [2, 1]}`` differ, since in JSON the order of a list
counts. For many tools it does not. This module finds calls that a match left unpaired for that
reason alone, so that a comment can name ``{"tolerant": {"sets": ["item_ids"]}}``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..base.jsontext import canonical, dumps
from .calls import CallTable
from .rules import Rule, Tolerant
from .spec import MatchSpec
from .values import canonical_key, holds_list, sorted_lists

__all__ = ["call_lists", "may_hold_lists", "option_for", "reordered_lists"]

# The most namesakes that a call is compared with.
_CANDIDATES = 50


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
        for reference_call in waiting.get((tool, key), [])[:_CANDIDATES] if key is not None else ():
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
