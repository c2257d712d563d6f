"""Redact Python values: values of named keys as a whole, and matches of patterns in any text.

The rules mean the same as in `oteval serve`: globs apply to keys on every level, patterns to all
text, to keys, to numbers and to bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .rules import CompiledRules, RedactionRule
from .text import TextRedactor

__all__ = ["ValueRedactor"]


class ValueRedactor:
    """Applies redaction rules to Python values. The given values are never changed."""

    def __init__(self, rules: Iterable[RedactionRule]) -> None:
        """Compile the rules; the first whose key matches decides about a value.

        Raises:
            PatternError: A pattern is invalid.
        """
        self._rules = CompiledRules(rules)
        self._text = TextRedactor(self._rules.matchers)

    def __bool__(self) -> bool:
        """Whether there are any rules."""
        return bool(self._rules.globs or self._text)

    def text(self, text: str) -> str:
        """Return text with the matches of patterns replaced.

        Raises:
            ValueError: The text has too many escapes.
        """
        return self._text.text(text)

    def attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """A mapping with its keys and values redacted.

        Raises:
            ValueError: A text has too many escapes.
        """
        redacted = {}
        for key, value in attributes.items():
            name = str(key)
            replacement = self._rules.replacement(name)
            redacted[self._text.text(name)] = (
                self.value(value) if replacement is None else replacement
            )
        return redacted

    def value(self, value: Any) -> Any:
        """A value redacted; sequences become tuples, mappings become dicts.

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
