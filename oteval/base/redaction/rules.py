"""Rules of redaction: values by globs of their keys, text by patterns or kinds of data.

`ValueRedactor` applies them to Python values. There they mean the same as in `oteval serve`: globs
apply to keys on every level, patterns to all text, to keys, to numbers and to bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import ConfigError
from ..patterns import Pattern, PatternError
from .personal_data import DATA_RULES, Matcher, matcher
from .text import TextRedactor

__all__ = [
    "CompiledRules",
    "RedactionRule",
    "ValueRedactor",
    "key_pattern",
    "rule_from",
]

# A set of characters in a glob, after `re.escape`.
_SET = re.compile(r"\\\[((?:[^\[\]\\]|\\[-.^])+)\\\]")
_FIELDS = frozenset({"keys", "pattern", "replace", "data", "entities"})
_MAX_CACHED_KEYS = 10_000


class RedactionRule(NamedTuple):
    """A rule of redaction.

    Attributes:
        keys: Globs for the names of attributes whose values are replaced.
        pattern: A regular expression whose matches are replaced.
        replace: The replacement; None for ``[redacted]``, or ``[redacted card]`` and the like.
        data: A kind of data that is replaced in any text: see `personal_data.DATA_RULES`.
        entities: The entities that Presidio looks for, with ``data="presidio"``; () for all.
    """

    keys: tuple[str, ...] = ()
    pattern: str | None = None
    replace: str | None = None
    data: str = ""
    entities: tuple[str, ...] = ()

    @property
    def replacement(self) -> str:
        """The text in place of a match."""
        if self.replace is not None:
            return self.replace
        return f"[redacted {DATA_RULES[self.data]}]" if DATA_RULES.get(self.data) else "[redacted]"


class CompiledRules:
    """Rules that are ready to be applied.

    Attributes:
        globs: The patterns of keys with their replacements.
        matchers: The patterns of text and the kinds of data, with their replacements.
    """

    def __init__(self, rules: Iterable[RedactionRule]) -> None:
        """Compile the rules; the first whose key matches decides about a value.

        Raises:
            PatternError: A pattern is invalid.
            ConfigError: A kind of data is unknown, or needs a package that is missing.
        """
        self.globs: list[tuple[Pattern, str]] = []
        self.matchers: list[tuple[Matcher, str]] = []
        for rule in rules:
            self.globs += [(key_pattern(key), rule.replacement) for key in rule.keys]
            if rule.pattern is not None:
                self.matchers.append((Pattern(rule.pattern), rule.replacement))
            if rule.data:
                self.matchers.append((matcher(rule.data, rule.entities), rule.replacement))
        self._replacements: dict[str, str | None] = {}

    def replacement(self, key: str) -> str | None:
        """The replacement of the value of a key; None if the rules do not name it."""
        if not self.globs:
            return None
        try:
            return self._replacements[key]
        except KeyError:
            replacement = next((text for glob, text in self.globs if glob.fullmatch(key)), None)
            if len(self._replacements) < _MAX_CACHED_KEYS:
                self._replacements[key] = replacement
            return replacement


def key_pattern(text: str) -> Pattern:
    """A glob such as ``*.password`` as a pattern for whole keys.

    Brackets match both as a set of characters and literally.
    """
    literal = re.escape(text).replace(r"\*", ".*").replace(r"\?", ".")
    try:
        return Pattern(f"(?s)(?:{literal}|{_SET.sub(_set, literal)})")
    except PatternError:
        return Pattern(f"(?s){literal}")


def rule_from(value: RedactionRule | Mapping[str, Any] | str, name: str) -> RedactionRule:
    """A rule from a `RedactionRule`, a mapping or a text.

    A text is the name of a kind of data, such as ``cards``, or else a glob for keys.

    Args:
        value: The rule.
        name: Its name in messages.

    Raises:
        ConfigError: The rule is invalid.
    """
    if isinstance(value, RedactionRule):
        return value
    if isinstance(value, str):
        return RedactionRule(data=value) if value in DATA_RULES else RedactionRule((value,))
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name}: give a RedactionRule or a mapping with keys or pattern")
    if unknown := sorted(set(value) - _FIELDS):
        fields = "keys, pattern, replace, data and entities"
        raise ConfigError(f"{name}: unknown key {unknown[0]!r}; use {fields}")
    keys, pattern = value.get("keys", ()), value.get("pattern")
    data, entities = value.get("data", ""), value.get("entities", ())
    if isinstance(keys, str) or not all(isinstance(key, str) for key in keys):
        raise ConfigError(f"{name}.keys: give a list of names of attributes")
    if pattern is not None and not isinstance(pattern, str):
        raise ConfigError(f"{name}.pattern: give a regular expression as text")
    if data and data not in DATA_RULES:
        raise ConfigError(f"{name}.data: unknown data {data!r}; use {', '.join(DATA_RULES)}")
    if isinstance(entities, str) or not all(isinstance(entity, str) for entity in entities):
        raise ConfigError(f"{name}.entities: give a list of names of Presidio's entities")
    if not keys and pattern is None and not data:
        raise ConfigError(f"{name}: give keys, a pattern, or data")
    replace = value.get("replace")
    return RedactionRule(
        keys=tuple(keys),
        pattern=pattern,
        replace=None if replace is None else str(replace),
        data=str(data),
        entities=tuple(entities),
    )


def _set(match: re.Match[str]) -> str:
    members = match[1].replace(r"\-", "-")
    sign = "^" if members.startswith("!") else ""
    return f"[{sign}{members[len(sign) :]}]"


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
