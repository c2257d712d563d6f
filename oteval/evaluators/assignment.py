"""Maximum matchings of output calls (lefts) and reference calls (rights).

A **matching** uses each left and each right at most once. For an equality, pairing equal keys gives
a maximum matching in linear time. For any other relation a greedy choice may be wrong, so the
matching is found with augmenting paths (Hopcroft and Karp). The **longest common order** is the
largest matching whose pairs do not cross.

No function here is recursive, so inputs may be of any size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

__all__ = ["in_order", "longest_order", "match_equal", "maximum_matching"]

_FREE = -1


def match_equal(
    lefts: Iterable[tuple[int, Hashable]], rights: Iterable[tuple[int, Hashable]]
) -> list[tuple[int, int]]:
    """Pair items with equal keys: first at equal positions, then in order of appearance.

    Args:
        lefts: Index and key; the key None equals nothing.
        rights: Index and key.

    Returns:
        Sorted pairs of indexes.
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
    """A maximum matching in a bipartite graph.

    Args:
        adjacency: For each left, the rights that it may be paired with.
        rights: The number of rights.

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
    """The distance of each left from a free left; None if no path augments."""
    layer = [0 if right == _FREE else _FREE for right in right_of]
    queue = deque(left for left, right in enumerate(right_of) if right == _FREE)
    reaches_free_right = False
    while queue:
        left = queue.popleft()
        for right in adjacency[left]:
            partner = left_of[right]
            if partner == _FREE:
                reaches_free_right = True
            elif layer[partner] == _FREE:
                layer[partner] = layer[left] + 1
                queue.append(partner)
    return layer if reaches_free_right else None


def _augment(
    root: int,
    tried: list[Iterator[int]],
    layer: list[int],
    left_of: list[int],
    right_of: list[int],
) -> None:
    """Follow the layers from a free left to a free right, and flip the path if one exists."""
    path: list[tuple[int, int]] = []
    left = root
    while True:
        for right in tried[left]:
            partner = left_of[right]
            if partner == _FREE:
                for path_left, path_right in [*path, (left, right)]:
                    right_of[path_left], left_of[path_right] = path_right, path_left
                return
            if layer[partner] == layer[left] + 1:
                path.append((left, right))
                left = partner
                break
        else:
            layer[left] = _FREE
            if not path:
                return
            left, _ = path.pop()


def in_order(
    lefts: Sequence[int], rights: Sequence[int], fits: Callable[[int, int], bool]
) -> list[tuple[int, int]] | None:
    """Pair all rights with lefts without changing the order.

    Taking the earliest left that fits is optimal: it leaves the most lefts for later rights.

    Args:
        lefts: The items to search.
        rights: The items to find, in order.
        fits: Whether a left may be paired with a right.

    Returns:
        The pairs, or None if a right has no left.
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
    """A largest matching whose pairs do not cross.

    Each row of the dynamic program is one integer with a bit for each left (Hyyrö's algorithm for
    the longest common subsequence), so 2,000 lefts and 2,000 rights take milliseconds.

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
