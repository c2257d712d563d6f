"""The patterns of ``--normalize``: both texts are compared with all matches replaced.

Two texts may differ only in dates, ids or numbers. `suggest_normalization` gives the narrowest
pattern, or the fewest patterns, with which they are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from ..base.errors import ConfigError
from ..base.patterns import Pattern, PatternError, compile_pattern

__all__ = ["compiled", "normalizer", "suggest_normalization"]

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
    """The pattern by which two texts become equal, or "" if none does.

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
    matching = [
        pattern for pattern in _COMPILED if pattern.search(recorded) and pattern.search(actual)
    ]
    for count in (1, 2):
        yield from combinations(matching, count)
    if len(matching) > 2:
        yield tuple(matching)


def compiled(normalize: Sequence[str | Pattern]) -> tuple[Pattern, ...]:
    """Compile patterns of text that varies in every run.

    Raises:
        ConfigError: A pattern is invalid.
    """
    patterns = [normalize] if isinstance(normalize, (str, Pattern)) else normalize
    compiled_patterns = []
    for pattern in patterns:
        try:
            compiled_patterns.append(compile_pattern(pattern))
        except PatternError as error:
            raise ConfigError(f"normalize: {pattern!r}: {error}") from error
    return tuple(compiled_patterns)


def normalizer(patterns: Sequence[Pattern]) -> Callable[[str], str]:
    """A function that replaces variable parts in a text."""

    def normalized(text: str) -> str:
        for pattern in patterns:
            text = pattern.replace(text, "*")
        return text

    return normalized
