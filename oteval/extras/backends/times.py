"""Times of backends' APIs, and positions of backends that list traces by their start.

A trace that arrives late began before traces that were read already. A later pull therefore begins
an hour before the newest trace of the last complete pull; the store skips repeated spans.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from .interface import PullPosition

__all__ = ["OVERLAP_NS", "begin_ns", "halved_ranges", "iso_of", "ns_of", "position_at"]

OVERLAP_NS = 3600 * 10**9
"""How far before the end of a complete pull the next pull begins (ns)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"\.(\d+)")
_NS_DIGITS = 9
_Found = TypeVar("_Found")


def ns_of(text: str) -> int:
    """An ISO time in nanoseconds; a time without a zone is UTC.

    Raises:
        ValueError: The text is not an ISO time.
    """
    match = _FRACTION.search(text)
    digits = match[1][:_NS_DIGITS].ljust(_NS_DIGITS, "0") if match else "0"
    when = datetime.fromisoformat(_FRACTION.sub("", text, count=1))
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return (when - _EPOCH) // timedelta(seconds=1) * 10**9 + int(digits)


def iso_of(ns: int) -> str:
    """A time in nanoseconds as ISO text in UTC, with microseconds, rounded down."""
    seconds, nanoseconds = divmod(ns, 10**9)
    when = _EPOCH + timedelta(seconds=seconds, microseconds=nanoseconds // 1000)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def begin_ns(position: PullPosition) -> int:
    """The time where a pull begins to read (ns).

    Args:
        position: A position by `position_at`, or only ``since_ns``.
    """
    since = int(position["since_ns"])
    read = int(position.get("read_ns", since))
    return max(since, read - OVERLAP_NS) if position.get("is_complete") else max(since, read)


def position_at(position: PullPosition, read_ns: int, *, is_complete: bool) -> PullPosition:
    """The position after a page.

    Args:
        position: The position before it.
        read_ns: All traces that began before this time (ns) were read.
        is_complete: Whether this was the last page.
    """
    return {"since_ns": position["since_ns"], "read_ns": read_ns, "is_complete": is_complete}


def halved_ranges(
    begin: int,
    end: int,
    search: Callable[[int, int], _Found | None],
    *,
    widest: int | None = None,
) -> Iterator[tuple[int, int, _Found]]:
    """Search a span of time in ranges that are as wide as the backend can answer.

    Args:
        begin: The start, in any unit.
        end: The end, in the same unit.
        search: Returns the findings of a range, or None if it is to be halved. A range of one unit
            cannot be halved.
        widest: The largest width of a range.

    Yields:
        The start and end of each range, and its findings.
    """
    largest = widest or max(end - begin, 1)
    width = largest
    while begin < end:
        until = min(begin + width, end)
        results = search(begin, until)
        if results is None:
            width = max((until - begin) // 2, 1)
            continue
        yield begin, until, results
        begin, width = until, min(width * 2, largest)
