"""Redact Python values: those of named keys as a whole, and matches of patterns in any text.

The rules mean the same as in `oteval serve`: globs apply to keys on every level, patterns to all
text, to keys, to numbers and to bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..patterns import Pattern
from .rules import RedactionRule, key_pattern
from .text import TextRedactor

__all__ = ["ValueRedactor"]

_MAX_CACHED_KEYS = 10_000


class ValueRedactor:
    """Applies redaction rules to Python values. The given values are never changed."""

    def __init__(self, rules: Iterable[RedactionRule]) -> None:
        """Compile the rules; the first whose key matches decides about a value.

        Raises:
            PatternError: A pattern is invalid.
        """
        self._globs: list[tuple[Pattern, str]] = []
        patterns: list[tuple[Pattern, str]] = []
        for rule in rules:
            self._globs += [(key_pattern(key), rule.replace) for key in rule.keys]
            if rule.pattern is not None:
                patterns.append((Pattern(rule.pattern), rule.replace))
        self._text = TextRedactor(patterns)
        self._keys: dict[str, tuple[str, str | None]] = {}

    def __bool__(self) -> bool:
        """Return whether there are any rules."""
        return bool(self._globs or self._text)

    def text(self, text: str) -> str:
        """Return text with the matches of patterns replaced.

        Raises:
            ValueError: The text has too many escapes.
        """
        return self._text.text(text)

    def attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return a mapping with its keys and values redacted.

        Raises:
            ValueError: A text has too many escapes.
        """
        redacted = {}
        for key, value in attributes.items():
            known, replacement = self._key(str(key))
            redacted[known] = self.value(value) if replacement is None else replacement
        return redacted

    def value(self, value: Any) -> Any:
        """Return a value redacted; sequences become tuples, mappings become dicts.

        Raises:
            ValueError: A text has too many escapes.
        """
        if isinstance(value, str):
            return self._text.text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, float)):
            redacted = self._text.number(value)
            return value if redacted is None else redacted
        if isinstance(value, bytes):
            return self._text.data(value)
        if isinstance(value, Mapping):
            return self.attributes(value)
        if isinstance(value, Sequence):
            return self._sequence(value)
        return value

    def _sequence(self, values: Sequence[Any]) -> tuple[Any, ...]:
        redacted = tuple(self.value(item) for item in values)
        # OpenTelemetry accepts no sequences of mixed types as attributes.
        was_uniform = len({type(item) for item in values}) <= 1
        if was_uniform and len({type(item) for item in redacted}) > 1:
            return tuple(item if isinstance(item, str) else str(item) for item in redacted)
        return redacted

    def _key(self, key: str) -> tuple[str, str | None]:
        """Return the redacted key, and the replacement of its value; None to redact the value."""
        known = self._keys.get(key)
        if known is None:
            found = next((text for glob, text in self._globs if glob.fullmatch(key)), None)
            known = self._text.text(key), found
            if len(self._keys) < _MAX_CACHED_KEYS:
                self._keys[key] = known
        return known
