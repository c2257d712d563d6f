"""Positions of backends that list traces by the time at which they began.

A trace that arrives late began before traces that were read already. A later pull therefore begins
an hour before the newest trace of the last complete one; the store skips what it has.
"""

from __future__ import annotations

from .interface import PullPosition

__all__ = ["OVERLAP_NS", "begin_ns", "position_at"]

OVERLAP_NS = 3600 * 10**9
"""How far before the end of a complete pull the next one begins (ns)."""


def begin_ns(position: PullPosition) -> int:
    """Return the time from which a pull reads (ns).

    Args:
        position: A position by `position_at`, or only ``since_ns``.
    """
    since = int(position["since_ns"])
    read = int(position.get("read_ns", since))
    return max(since, read - OVERLAP_NS) if position.get("is_complete") else max(since, read)


def position_at(position: PullPosition, read_ns: int, *, is_complete: bool) -> PullPosition:
    """Return the position after a page.

    Args:
        position: The position before it.
        read_ns: All traces that began before this time (ns) were read.
        is_complete: Whether this was the last page.
    """
    return {"since_ns": position["since_ns"], "read_ns": read_ns, "is_complete": is_complete}
