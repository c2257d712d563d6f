"""The meaning of an unknown dialect's attributes, by the words of their names.

`shape_of` returns the attributes of a span by meaning: messages sent and received, a tool's name,
arguments and result, the model, the kind of the operation. A span of a request or a query has none;
neither do settings, templates and counts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ...model import Span, count_of

__all__ = ["Shape", "shape_of", "token_attributes", "words_of"]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# First words of attributes whose spans are requests, queries and jobs, whatever else they contain.
_INFRASTRUCTURE = frozenset(
    {
        *("asgi", "aws", "celery", "cloudevents", "code", "db", "faas", "feature", "graphql"),
        *("http", "log", "messaging", "rpc", "sql", "url"),
    }
)
# Words that mark an attribute as a setting, or as a description of a value that is elsewhere.
_SETTINGS = frozenset(
    {
        *("config", "configuration", "default", "env", "hash", "metadata", "option", "options"),
        *("setting", "settings", "template", "templates", "version"),
    }
)
_PACKAGING = frozenset({"content", "data", "json", "payload", "raw", "string", "text", "value"})
_SENT = frozenset({"input", "inputs", "prompt", "prompts", "query", "question", "request"})
_RECEIVED = frozenset(
    {
        *("answer", "completion", "completions", "output", "outputs", "reply", "response"),
        *("result", "results"),
    }
)
_ARGUMENTS = frozenset({"args", "arguments"})
_PARAMETERS = frozenset({"parameters", "params"})
# The last words of names, the longest first, and the meaning of the attribute.
_ENDINGS = (
    (("tool", "call", "id"), "call id"),
    (("call", "id"), "call id"),
    (("tool", "name"), "tool name"),
    (("agent", "name"), "agent name"),
    (("model", "name"), "model"),
    (("model", "id"), "model"),
    (("operation", "name"), "kind"),
    (("operation", "id"), "kind"),
    (("tool", "calls"), "calls"),
    (("function", "calls"), "calls"),
    (("tool", "definitions"), "tools"),
    (("system", "prompt"), "system"),
    (("system", "instruction"), "system"),
    (("system", "instructions"), "system"),
    (("kind",), "kind"),
    (("type",), "kind"),
    (("subtype",), "kind"),
    (("model",), "model"),
    (("tools",), "tools"),
)


class Shape(NamedTuple):
    """The attributes of a span whose names have a meaning.

    Attributes:
        span: The span.
        values: The values by name. If indexed names spell out a list, its name is the part before
            the index.
        keys: The names of each meaning.
    """

    span: Span
    values: Mapping[str, Any]
    keys: Mapping[str, Sequence[str]]

    def values_of(self, meaning: str) -> list[Any]:
        """The values of the attributes with a meaning."""
        return [self.values[key] for key in self.keys[meaning]]


def shape_of(span: Span) -> Shape | None:
    """The attributes that mean anything; None for a request, or a span without content."""
    values: dict[str, Any] = {}
    keys: dict[str, list[str]] = defaultdict(list)
    indexed: dict[str, dict[str, Any]] = defaultdict(dict)
    for key, value in span.attributes.items():
        match = _INDEXED.match(key) if len(key) < _LONGEST_NAME else None
        if match:
            indexed[match[1]][match[2]] = value
        else:
            values[key] = value
    values |= {prefix: _nested(fields) for prefix, fields in indexed.items()}
    for key, value in values.items():
        meaning = _meaning(key)
        if meaning == "infrastructure":
            return None
        if meaning and value and isinstance(value, (str, list, Mapping)):
            keys[meaning].append(key)
    has_content = keys.keys() & {"sent", "received", "arguments", "calls", "parameters"}
    return Shape(span, values, keys) if has_content else None


def _nested(fields: Mapping[str, Any]) -> Any:
    """The list that indexed names spell out; None if an item is missing."""
    items: dict[str, dict[str, Any]] = defaultdict(dict)
    for path, value in fields.items():
        first, _, inner_path = path.partition(".")
        items[first][inner_path] = value
    if all(first.isdecimal() for first in items):
        places = [str(index) for index in range(len(items))]
        is_whole = items.keys() == set(places)
        return [_nested_field(items[index]) for index in places] if is_whole else None
    inner = {first: _nested_field(rests) for first, rests in items.items()}
    for name, plain in _FLAT_NAMES.items():
        if name in inner and plain not in inner:
            inner[plain] = inner.pop(name)
    wrapped = next(iter(inner.values())) if len(inner) == 1 and _WRAPPED & inner.keys() else None
    return wrapped if isinstance(wrapped, Mapping) else inner


def _nested_field(rests: Mapping[str, Any]) -> Any:
    return rests[""] if set(rests) == {""} else _nested(rests)


_LONGEST_NAME = 500
_INDEXED = re.compile(r"(.+?)\.(\d+(?:\.[^.]+)+)$")
# OpenInference's names: each item is wrapped in a field, and a list of parts has another name.
_FLAT_NAMES = {"contents": "content"}
_WRAPPED = frozenset({"message", "message_content", "tool_call"})


@lru_cache(maxsize=4096)
def words_of(key: str) -> tuple[str, ...]:
    """The words of an attribute's name, in lower case."""
    return tuple(word.lower() for word in _WORD.findall(key))


@lru_cache(maxsize=4096)
def _meaning(key: str) -> str:
    """The meaning of an attribute by its name, or ""."""
    words = words_of(key)
    if not words or words[0] in _INFRASTRUCTURE:
        return "infrastructure" if words else ""
    if not _SETTINGS.isdisjoint(words):
        return ""
    for ending, meaning in _ENDINGS:
        if words[-len(ending) :] == ending:
            return meaning
    while len(words) > 1 and words[-1] in _PACKAGING:
        words = words[:-1]
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in ("message", "messages"):
        is_side = before in _SENT or before in _RECEIVED
        if not is_side and (len(words) > 2 or last == "message"):
            return ""
        last = before if is_side else "input"
    if last in _ARGUMENTS:
        return "arguments"
    if last in _PARAMETERS:
        return "parameters"
    return "sent" if last in _SENT else "received" if last in _RECEIVED else ""


def token_attributes(span: Span) -> list[str]:
    """The attributes that count the tokens sent to a model and received from it.

    Both are needed: an embedding has only the first.
    """
    counts = {
        words_of(key)[-2]: key
        for key, value in span.attributes.items()
        if words_of(key)[-1:] == ("tokens",)
        and len(words_of(key)) > 1
        and count_of(value) is not None
    }
    sides = [[counts[word] for word in side if word in counts] for side in _TOKENS]
    return [key for side in sides for key in side] if all(sides) else []


_TOKENS = (("input", "prompt"), ("output", "completion"))
