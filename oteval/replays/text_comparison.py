"""Comparison of recorded texts with a replay's texts, except for variable and redacted parts.

Two texts may differ only in dates, ids or numbers: the patterns of ``--normalize`` are replaced in
both. `suggest_normalization` returns the narrowest pattern, or the fewest patterns, that make them
equal.

Where the recording has ``[redacted]``, the placeholder equals one value, not any text: a whole text
or a whole value of JSON, or else a part of a line, or a private key of several lines. A placeholder
with a kind of data, such as ``[redacted card]``, equals only such data. So a replay that sends
other text next to a secret, or in its place, differs from its recording.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from ..base.errors import ConfigError
from ..base.patterns import Pattern, PatternError, compile_pattern
from ..base.redaction.personal_data import DATA_WORDS, is_data

__all__ = [
    "PLACEHOLDER",
    "compiled",
    "is_same_text",
    "suggest_normalization",
    "without_variable_parts",
]

PLACEHOLDER = "<*>"
"""The replacement of texts that match a pattern of ``normalize``."""

_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
# From narrow to wide. Wide patterns hide more.
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
    """The pattern that makes two texts equal, or "" if there is none.

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


def without_variable_parts(text: str, normalize: Sequence[Pattern]) -> str:
    """A text with the matches of patterns replaced by `PLACEHOLDER`."""
    for pattern in normalize:
        text = pattern.replace(text, PLACEHOLDER)
    return text


# In canonical JSON, a redacted number has become a text.
_REDACTED = re.compile(r'"?\[redacted([^\]\n]{0,80})\]"?', re.IGNORECASE)
_JSON_VALUE = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null', re.DOTALL)
_PART_OF_LINE = re.compile(r"[^\r\n]{1,4096}")
_PRIVATE_KEY = re.compile(r"-----BEGIN [^\r\n]*PRIVATE KEY[^-]*-----.*", re.DOTALL)


def is_same_text(recorded: str, actual: str) -> bool:
    """Whether texts are equal; a placeholder in the recorded text equals one value."""
    if recorded == actual:
        return True
    placeholders = list(_REDACTED.finditer(recorded))
    if not placeholders:
        return False
    first, last = placeholders[0], placeholders[-1]
    tail = recorded[last.end() :]
    if not actual.startswith(recorded[: first.start()]) or not actual.endswith(tail):
        return False
    at, end = first.start(), len(actual) - len(tail)
    is_whole = len(placeholders) == 1 and first.span() == (0, len(recorded))
    for placeholder, following in zip(placeholders, [*placeholders[1:], None], strict=True):
        part = recorded[placeholder.end() : following.start()] if following else ""
        value_end = actual.find(part, at + 1, end) if following else end
        if value_end < at:
            return False
        if not _is_value(placeholder, actual[at:value_end], is_whole=is_whole):
            return False
        at = value_end + len(part)
    return True


def _is_value(placeholder: re.Match[str], value: str, *, is_whole: bool) -> bool:
    """Whether a placeholder may represent a value."""
    if _REDACTED.fullmatch(value):
        return True
    text, word = placeholder[0], placeholder[1].strip()
    if word in DATA_WORDS:
        return is_data(value.strip('"') if text[0] == '"' else value, word)
    if is_whole:
        return True
    if text[0] == text[-1] == '"':
        return _JSON_VALUE.fullmatch(value) is not None
    return bool(_PART_OF_LINE.fullmatch(value) or _PRIVATE_KEY.fullmatch(value))
