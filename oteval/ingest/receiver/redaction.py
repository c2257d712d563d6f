"""Taking out of requests what must not be written to disk: values by key, text by patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from typing import Any, NamedTuple

from google.protobuf.message import Message

__all__ = ["Redactor", "Rule"]

# Text that is an address or a number rather than content.
_KEPT = frozenset(
    name
    for names in ("traceId spanId parentSpanId traceState", "trace_id span_id parent_span_id")
    for name in names.split()
)


class Rule(NamedTuple):
    """What goes.

    Attributes:
        keys: Names of attributes whose values go; "*" stands for any text.
        pattern: A regular expression; what it matches goes.
        replace: What stands there instead.
    """

    keys: tuple[str, ...] = ()
    pattern: str | None = None
    replace: str = "[redacted]"


class Redactor:
    """Applies rules to whole requests."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._keys: list[tuple[re.Pattern[str], str]] = []
        self._patterns: list[tuple[re.Pattern[str], str]] = []
        for rule in rules:
            self._keys += [(re.compile(translate(key)), rule.replace) for key in rule.keys]
            if rule.pattern is not None:
                self._patterns.append((re.compile(rule.pattern), rule.replace))

    def __bool__(self) -> bool:
        """Whether there is any rule."""
        return bool(self._keys or self._patterns)

    def json(self, value: Any) -> Any:
        """Return an OTLP/JSON value without what must go."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.json(item) for item in value]
        if not isinstance(value, dict):
            return value
        key = value.get("key")
        if isinstance(key, str) and "value" in value:
            found = self._replacement(key)
            if found is not None:
                return {**value, "value": {"stringValue": found}}
            return {**value, "value": self.json(value["value"])}
        return {k: v if k in _KEPT else self.json(v) for k, v in value.items()}

    def message(self, message: Message) -> None:
        """Take out of a protobuf message what must go, in place."""
        for field, value in message.ListFields():
            if field.type == field.TYPE_STRING:
                if field.name in ("key", "trace_state"):
                    continue
                if isinstance(value, str):
                    setattr(message, field.name, self._text(value))
                else:
                    value[:] = [self._text(item) for item in value]
            elif field.type == field.TYPE_MESSAGE:
                items = [value] if isinstance(value, Message) else value
                for item in items:
                    if item.DESCRIPTOR.name == "KeyValue":
                        self._attribute(item)
                    else:
                        self.message(item)

    def _attribute(self, item: Any) -> None:
        found = self._replacement(item.key)
        if found is None:
            self.message(item.value)
        else:
            item.value.Clear()
            item.value.string_value = found

    def _replacement(self, key: str) -> str | None:
        return next((text for pattern, text in self._keys if pattern.match(key)), None)

    def _text(self, text: str) -> str:
        for pattern, replacement in self._patterns:
            text = pattern.sub(lambda _, new=replacement: new, text)  # type: ignore[misc]
        return text
