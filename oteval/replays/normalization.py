"""Suggest a pattern that makes two texts equal which differ only in dates, ids or numbers.

The patterns are those of ``--normalize``: both texts are compared with all matches replaced. The
suggestion is the narrowest pattern, or the fewest patterns, that suffice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from ..patterns import Pattern

__all__ = ["suggest_normalization"]

_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
# From narrow to wide. Wide ones hide more.
_PATTERNS = (
    r"\d{4}-\d{2}-\d{2}",
    r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?",
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?",
    r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day",
    rf"(?:{_MONTHS})[a-z]* \d{{1,2}},? \d{{4}}",
    rf"\d{{1,2}}\.? (?:{_MONTHS})[a-z]* \d{{4}}",
    r"\d{1,2}[./]\d{1,2}[./]\d{2,4}",
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}",
    r"\b[0-9a-f]{8,64}\b",
    r"\b[A-Za-z]{1,16}[-_][0-9A-Za-z]{6,64}\b",
    r"\d+(?:\.\d+)?",
)
_MAX_LENGTH = 200_000
_COMPILED = tuple(map(Pattern, _PATTERNS))


def suggest_normalization(recorded: str, actual: str) -> str:
    """Return the pattern by which two texts become equal, or "" if none does.

    Args:
        recorded: The recorded text.
        actual: The actual text.
    """
    if recorded == actual or max(len(recorded), len(actual)) > _MAX_LENGTH:
        return ""
    for patterns in _candidates(recorded, actual):
        joined = "|".join(pattern.pattern for pattern in patterns)
        pattern = Pattern(joined)
        if pattern.replace(recorded, "*") == pattern.replace(actual, "*"):
            return joined
    return ""


def _candidates(recorded: str, actual: str) -> Iterator[tuple[Pattern, ...]]:
    """Yield the patterns to try: alone, in pairs, and all together."""
    found = [
        pattern for pattern in _COMPILED if pattern.search(recorded) and pattern.search(actual)
    ]
    for count in (1, 2):
        yield from combinations(found, count)
    if len(found) > 2:
        yield tuple(found)
