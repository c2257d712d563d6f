r"""Secrets by their keys in text that contains JSON, found without changing anything else in it.

The text may be JSON, events of a stream, JSON inside the strings of JSON (tool arguments), or
damaged. It is therefore not parsed as a whole: names of secrets are looked up in the text. If a
name is a key, its value is read at the key's level of escaping. At level 1, quotes are written
``\"``, at level 2 ``\\\"``, and so on.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..patterns import Pattern
from .secret_names import NAME_ENDS, PARAMETER_ENDS, is_secret_parameter, names_in, secret_kind
from .secret_values import is_secret_value
from .text_edits import spans_in

__all__ = [
    "JSON_TAIL",
    "PARAMETER",
    "JsonString",
    "json_strings",
    "named_spans",
    "parameter_spans",
    "string_end",
]

_KEY_END = re.compile(r'"\s*:')
JSON_TAIL = r'[^a-z0-9"]*"\s*:'
"""A pattern for the signs after the last words of a key."""
_NAME = re.compile(r"[\w.$ -]+")
_PARAMETER_NAME = re.compile(r"[?&#]([\w.%\[\]-]{1,64})=")
_PARAMETER_VALUE = re.compile(r"[^&\s\"'<>\\`]+")
PARAMETER = rf"(?i:[?&#][\w.%\[\]-]*(?:{PARAMETER_ENDS})(?:%5[bd]|[^a-z0-9=&])*=)"
"""A pattern for a parameter's name that may name a secret, except for a form's first parameter."""
_FIRST_PARAMETER = re.compile(r"([\w.%\[\]-]{1,64})=([^&\s\"'<>\\`]+)")
_NUMBER = re.compile(r"-?[0-9][0-9.eE+-]*")
_TOKEN = re.compile(r'["{}\[\]]')
_LOGPROB = re.compile(r"[^{}]{0,400}logprob")
_SPACE = " \t\r\n"
_LEVELS = {0: 0, 1: 1, 3: 2, 7: 3, 15: 4, 31: 5}
_LONGEST_NAME = 64
# The kinds of names whose numbers, objects and lists are secrets as well.
_WHOLE = frozenset(("secret", "rule"))
_SCHEMA_KEYS = names_in("""
    $ref allOf anyOf const enum items oneOf properties type
""")


class JsonString(NamedTuple):
    """A string of JSON text.

    Attributes:
        key: The key of the value; "" in an array. None if the string is a key itself.
        start: The index of its first character, after the quote.
        end: The index after its last character.
    """

    key: str | None
    start: int
    end: int


def string_end(text: str, start: int, level: int) -> tuple[int, int]:
    """The end of a string of JSON, and the index after its closing quote.

    Args:
        text: The text.
        start: The index after the opening quote.
        level: How often the JSON is escaped.
    """
    at = start
    while (quote := text.find('"', at)) >= 0:
        slash = quote
        while slash > start and text[slash - 1] == "\\":
            slash -= 1
        run = quote - slash
        for _ in range(level):
            if run % 2 == 0:
                return slash, quote  # the end of the string that contains the JSON
            run //= 2
        if run % 2 == 0:
            return quote - (2**level - 1), quote + 1
        at = quote + 1
    return len(text), len(text)


def json_strings(text: str, start: int, level: int) -> Iterator[JsonString]:
    """Yield the strings of the object or array that begins at an index, keys included."""
    depth = 0
    at = start
    key = ""
    keys: list[str] = []
    while (token := _TOKEN.search(text, at)) is not None:
        char = token[0]
        at = token.end()
        if char in "{[":
            depth += 1
            keys.append(key)
            key = ""
        elif char in "}]":
            depth -= 1
            key = keys.pop() if keys else ""
            if depth <= 0:
                return
        else:
            end, at = string_end(text, token.end(), level)
            after = at
            while after < len(text) and text[after] in _SPACE:
                after += 1
            if text.startswith(":", after):
                key = text[token.end() : end]
                yield JsonString(None, token.end(), end)
            else:
                yield JsonString(key, token.end(), end)


def named_spans(
    text: str, stretches: Sequence[tuple[int, int]], kind: Callable[[str], str] = secret_kind
) -> Iterator[tuple[int, int, str]]:
    """Yield the places of values whose key names a secret.

    Args:
        text: The text.
        stretches: Where keys may be.
        kind: Returns the kind of secret that a key names, or "".

    Yields:
        The start and end of a value, and the quotes that its replacement needs: "" unless it is a
        number.
    """
    nested = 0  # the end of the last object or array that was read as a whole
    for end, after in _key_ends(text, stretches, kind):
        quote = text.rfind('"', max(0, end - _LONGEST_NAME), end)
        if quote < 0:
            continue
        slashes = 0
        while text[end - 1] == "\\" and end > quote + 1:
            slashes += 1
            end -= 1
        name = text[quote + 1 : end]
        named = kind(name)
        if not named or slashes not in _LEVELS or not _NAME.fullmatch(name):
            continue
        level = _LEVELS[slashes]
        start = _skip_space(text, after, level)
        if text[start : start + 1] not in ("{", "["):
            yield from _value_spans(text, start, slashes, named)
        elif named in _WHOLE and start >= nested:
            # A container inside another container is not read again.
            strings = list(json_strings(text, start, level))
            nested = strings[-1].end if strings else start + 1
            yield from _secret_strings(text, strings, named)


def parameter_spans(
    text: str, stretches: Sequence[tuple[int, int]], *, is_form: bool = False
) -> Iterator[tuple[int, int]]:
    """Yield the places of values of parameters that name secrets, in URLs and forms.

    Args:
        text: The text.
        stretches: Where parameters may be.
        is_form: Whether the text is the query of a URL or an encoded form.
    """
    if is_form and (first := _FIRST_PARAMETER.match(text)) and is_secret_parameter(first[1]):
        yield first.span(2)
    for start, end in stretches:
        for name in _PARAMETER_NAME.finditer(text, start, end):
            value = _PARAMETER_VALUE.match(text, name.end())
            if value and is_secret_parameter(name[1]):
                yield value.span()


def _key_ends(
    text: str, stretches: Sequence[tuple[int, int]], kind: Callable[[str], str]
) -> Iterator[tuple[int, int]]:
    """Yield the places of the closing quote and the colon of keys that may have a kind."""
    if kind is not secret_kind:
        for match in _KEY_END.finditer(text):
            yield match.span()
        return
    for start, end in spans_in(_secret_key_end(), text, stretches):
        yield text.index('"', start), end


@functools.cache
def _secret_key_end() -> Pattern:
    return Pattern(f"(?i:(?:{NAME_ENDS}){JSON_TAIL})")


def _value_spans(text: str, start: int, slashes: int, kind: str) -> Iterator[tuple[int, int, str]]:
    """Yield the place of the string or number that begins at an index, if it is a secret.

    Args:
        text: The text.
        start: The index of the value.
        slashes: The number of backslashes before each quote.
        kind: The kind of secret that the key names.
    """
    level = _LEVELS[slashes]
    if text.startswith('"', start + slashes):
        start += slashes + 1
        end, closed = string_end(text, start, level)
        if is_secret_value(kind, text[start:end]) and not (
            kind == "bare token" and _LOGPROB.match(text, closed)
        ):
            yield start, end, ""
    elif kind in _WHOLE:
        number = _NUMBER.match(text, start)
        if number is not None:
            yield start, number.end(), "\\" * slashes + '"'


def _secret_strings(
    text: str, strings: list[JsonString], kind: str
) -> Iterator[tuple[int, int, str]]:
    """Yield the strings inside the value of a secret's key, unless they describe a schema."""
    keys = {text[string.start : string.end] for string in strings if string.key is None}
    if _SCHEMA_KEYS.isdisjoint(keys):
        for string in strings:
            if string.key is not None and is_secret_value(kind, text[string.start : string.end]):
                yield string.start, string.end, ""


def _skip_space(text: str, at: int, level: int) -> int:
    """The index after white space, which is escaped inside strings."""
    while at < len(text):
        if text[at] in _SPACE:
            at += 1
        elif level and text[at] == "\\":
            letter = at
            while text.startswith("\\", letter):
                letter += 1
            if text[letter : letter + 1] not in ("n", "r", "t"):
                return at
            at = letter + 1
        else:
            return at
    return at
