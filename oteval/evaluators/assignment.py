"""Which output call stands for which reference call: matchings of the greatest possible size.

A **matching** pairs lefts with rights so that each is used at most once. Where the relation is
an equality, pairing off equal keys is a greatest matching and takes linear time. Any other
relation can make a greedy choice wrong, so those go through augmenting paths (Hopcroft and
Karp). The **longest common order** is the greatest matching in which pairs do not cross.

Nothing here recurses, so no input is too large for the stack.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

__all__ = ["in_order", "longest_order", "match_equal", "maximum_matching"]

_FREE = -1


def match_equal(
    lefts: Iterable[tuple[int, Hashable]], rights: Iterable[tuple[int, Hashable]]
) -> list[tuple[int, int]]:
    """Pair items with equal keys: those at the same place first, then the earliest on both sides.

    Args:
        lefts: Index and key; a key None equals nothing.
        rights: Index and key likewise.

    Returns:
        Pairs of indexes, in their order.
    """
    lefts, pairs = list(lefts), []
    waiting: dict[Hashable, deque[int]] = {}
    for index, (right, key) in enumerate(rights):
        if key is None:
            continue
        if index < len(lefts) and lefts[index][1] == key:
            pairs.append((lefts[index][0], right))
        else:
            waiting.setdefault(key, deque()).append(right)
    if not waiting:
        return pairs
    done = {left for left, _ in pairs}
    for left, key in lefts:
        queue = waiting.get(key)
        if queue and left not in done:
            pairs.append((left, queue.popleft()))
    return sorted(pairs)


def maximum_matching(adjacency: Sequence[Sequence[int]], rights: int) -> list[tuple[int, int]]:
    """Return a matching of the greatest possible size in a bipartite graph.

    Args:
        adjacency: For each left, the rights that it may be paired with.
        rights: How many rights there are.

    Returns:
        Pairs of left and right, in the order of the lefts.
    """
    left_of = [_FREE] * rights
    right_of = [_FREE] * len(adjacency)
    for left, options in enumerate(adjacency):
        for right in options:
            if left_of[right] == _FREE:
                left_of[right], right_of[left] = left, right
                break
    while True:
        layer = _layers(adjacency, left_of, right_of)
        if layer is None:
            break
        tried = [iter(options) for options in adjacency]
        for left, right in enumerate(right_of):
            if right == _FREE:
                _augment(left, tried, layer, left_of, right_of)
    return [(left, right) for left, right in enumerate(right_of) if right != _FREE]


def _layers(
    adjacency: Sequence[Sequence[int]], left_of: list[int], right_of: list[int]
) -> list[int] | None:
    """Number the lefts by their distance from a free one; None when no path augments."""
    layer = [0 if right == _FREE else _FREE for right in right_of]
    queue = deque(left for left, right in enumerate(right_of) if right == _FREE)
    reaches_free_right = False
    while queue:
        left = queue.popleft()
        for right in adjacency[left]:
            other = left_of[right]
            if other == _FREE:
                reaches_free_right = True
            elif layer[other] == _FREE:
                layer[other] = layer[left] + 1
                queue.append(other)
    return layer if reaches_free_right else None


def _augment(
    root: int,
    tried: list[Iterator[int]],
    layer: list[int],
    left_of: list[int],
    right_of: list[int],
) -> None:
    """Walk the layers from a free left to a free right, and flip the path when there is one."""
    path: list[tuple[int, int]] = []
    left = root
    while True:
        for right in tried[left]:
            other = left_of[right]
            if other == _FREE:
                for path_left, path_right in [*path, (left, right)]:
                    right_of[path_left], left_of[path_right] = path_right, path_left
                return
            if layer[other] == layer[left] + 1:
                path.append((left, right))
                left = other
                break
        else:
            layer[left] = _FREE
            if not path:
                return
            left, _ = path.pop()


def in_order(
    lefts: Sequence[int], rights: Sequence[int], fits: Callable[[int, int], bool]
) -> list[tuple[int, int]] | None:
    """Find all rights among the lefts in their order.

    Taking the earliest left that fits is always right: it leaves the most for those after it.

    Args:
        lefts: The items to search.
        rights: The items to find, in order.
        fits: Whether a left may be paired with a right.

    Returns:
        The pairs, or None when some right is not found.
    """
    pairs: list[tuple[int, int]] = []
    remaining = iter(rights)
    right = next(remaining, None)
    for left in lefts:
        if right is None:
            break
        if fits(left, right):
            pairs.append((left, right))
            right = next(remaining, None)
    return pairs if right is None else None


def longest_order(masks: Sequence[int]) -> list[tuple[int, int]]:
    """Return a greatest matching whose pairs do not cross.

    One row of the dynamic program is one integer, a bit for each left (Hyyrö's form of the
    longest common subsequence), so that 2,000 against 2,000 takes milliseconds.

    Args:
        masks: For each right, in order, the lefts that fit it as the bits of an integer.

    Returns:
        Pairs of left and right, in order.
    """
    width = max((mask.bit_length() for mask in masks), default=0)
    full = (1 << width) - 1
    row, rows = full, []
    for mask in masks:
        hit = row & mask
        row = ((row + hit) | (row - hit)) & full
        rows.append(row)
    pairs: list[tuple[int, int]] = []
    left, right = width, len(masks)
    while left and right:
        bit = 1 << (left - 1)
        if rows[right - 1] & bit:
            left -= 1
            continue
        right -= 1
        if right and not rows[right - 1] & bit:
            continue
        left -= 1
        pairs.append((left, right))
    pairs.reverse()
    return pairs
