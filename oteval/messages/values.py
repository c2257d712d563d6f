"""Attribute values as emitters write them: JSON text, JSON in JSON, Python reprs, cut-off text.

`parse` never raises: it returns the value and whether the text was complete.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ..base.jsontext import dumps, encodable, loads, loads_exact
from .python_objects import literal_of
from .read_cache import active

__all__ = [
    "Parsed",
    "decoded",
    "decoded_text",
    "hidden",
    "list_of",
    "mapping_of",
    "mappings_of",
    "parse",
    "parse_arguments",
    "text_of",
]

_PLACEHOLDERS = frozenset(
    {
        *("__REDACTED__", "<elided>", "<REDACTED>", "[Filtered]", "[REDACTED]"),
        "redacted-by-litellm",
    }
)
# An object that the emitter wrote as text without its content, in JavaScript and in Python.
_OBJECT = re.compile(r"\[?(?:\[object \w+\],?)+\]?|<[\w.]+ object (?:[\w.<>]+ )?at 0x[0-9A-Fa-f]+>")
_LONGEST = 120
# Lists from this length (characters) on are looked up in the cache; shorter lists are read faster.
_LONG = 4096


class Parsed(NamedTuple):
    """A value read from an attribute.

    Attributes:
        value: The value; the text itself if it is neither JSON nor a Python literal.
        truncated: Whether the text was cut JSON; then `value` is the part before the cut, without
            the item that the cut goes through.
    """

    value: Any
    truncated: bool = False


def hidden(value: Any) -> bool:
    """Whether a value is a placeholder for content that was not captured."""
    # Looking up a long text would read all of it.
    if not isinstance(value, str) or len(value) > _LONGEST:
        return False
    return value in _PLACEHOLDERS or (
        value[:1] in ("<", "[") and _OBJECT.fullmatch(value) is not None
    )


def parse(value: Any) -> Parsed:
    """The value that an attribute means; JSON inside text is unwrapped."""
    if not isinstance(value, str) or value[:1].isalpha():
        return Parsed(value)
    cache = active() if len(value) >= _LONG and value[0] == "[" else None
    if cache is None:
        return _parse_text(value)
    return cache.parsed(value, _parse_list)


def _parse_list(text: str, items: list[Any], unread: str) -> tuple[Parsed, list[Any]]:
    """The value of a text that begins with a bracket, and the items if that is valid JSON.

    Args:
        text: The text.
        items: The first items, as far as they are known.
        unread: The text after them.
    """
    unread = unread.lstrip(" \t\r\n")
    more = _items(f"[{unread[1:]}") if items and unread.startswith(",") else []
    all_items = [*items, *more] if more else _items(text)
    return (Parsed(all_items) if all_items else _parsed(text)), all_items


def _items(text: str) -> list[Any]:
    """The items of a list in JSON text; empty if the text is invalid."""
    try:
        return list_of(_loads(text.strip()))
    except (ValueError, RecursionError):
        return []


def decoded(value: Any) -> Any:
    """The value that an attribute means; None for a placeholder."""
    return None if hidden(value) else parse(value).value


def decoded_text(value: Any) -> Any:
    """The text that JSON text encodes once more; any other value as it is."""
    text = parse(value).value
    return text if isinstance(text, str) else value


def mapping_of(value: Any) -> Mapping[str, Any]:
    """The object that a value is or contains as text; an empty object for any other value."""
    mapping = decoded(value)
    return mapping if isinstance(mapping, Mapping) else {}


def mappings_of(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; none for any other value."""
    return [item for item in list_of(value) if isinstance(item, Mapping)]


def list_of(value: Any) -> list[Any]:
    """A value if it is a list; an empty list for any other value."""
    return value if isinstance(value, list) else []


# A span's content is parsed twice in a row: for its messages, and to check that it is complete.
@lru_cache(maxsize=16)
def _parse_text(text: str) -> Parsed:
    if "'" in text[:3] and _REPR.match(text):
        return _parse_broken(text, text.strip())
    # Searching for one character takes a tenth of the time of two.
    if text[:1] in _OPENS and text.isascii() and ("\\" not in text or "\\u" not in text):
        try:
            return Parsed(loads(text))
        except (ValueError, RecursionError):
            pass
    return _parsed(text)


def _parsed(value: Any) -> Parsed:
    for _ in range(3):
        if not isinstance(value, str):
            return Parsed(value)
        text = value.strip()
        if text[:1] not in _JSON_STARTS:
            return Parsed(value)
        try:
            value = _loads(text)
        except (ValueError, RecursionError):
            return _parse_broken(value, text)
    return Parsed(value)


_ARGUMENTS = frozenset({"arguments", "args"})
_HALF_PAIR = re.compile(r"\\u[dD]")


def _loads(text: str) -> Any:
    """The value of a JSON text; only arguments keep the halves of surrogate pairs."""
    if _is_encodable(text) and ("\\u" not in text or not _HALF_PAIR.search(text)):
        return loads(text)
    return _encodable(loads_exact(text))


def _is_encodable(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if not isinstance(value, dict):
        return value
    exact_keys = {"input"} if value.get("type") == "tool_use" else _ARGUMENTS
    return {
        encodable(key): item if key in exact_keys and isinstance(item, dict) else _encodable(item)
        for key, item in value.items()
    }


_JSON_STARTS = frozenset('{["')
_OPENS = frozenset("{[")
# The beginning of Python's lists and dicts of texts, which no JSON has.
_REPR = re.compile(r"\s*[\[{][\[{\s]*'")


def _parse_broken(value: str, text: str) -> Parsed:
    if text[0] == '"':
        return Parsed(value)
    literal = literal_of(text)
    if literal is not None:
        return Parsed(literal)
    try:
        beginning = _beginning_of(text)
    except (ValueError, TypeError) as error:
        return _parse_marked(value, text, str(error))
    end = _end_of_json(text)
    if not end:
        return Parsed(_without_cut_part(beginning), truncated=True)
    is_cut = _OBJECTS.match(text) or _MARKER.match(text, end)
    return Parsed(beginning, truncated=True) if is_cut else Parsed(value)


def _beginning_of(text: str, *, allow_partial: bool = True) -> Any:
    """The value of a JSON text, or of the part before the cut."""
    # Imported late: it takes 0.1 s, and only readers of broken JSON need it.
    from pydantic_core import from_json

    return from_json(text, allow_partial=allow_partial)


def _end_of_json(text: str) -> int:
    """The end of a whole JSON value that more text follows; 0 if the value is cut."""
    try:
        _beginning_of(text, allow_partial=False)
    except ValueError as error:
        return _place_in(text, str(error)) if str(error).startswith("trailing") else 0
    return 0


_POSITION = re.compile(r"at line (\d+) column (\d+)")
_OBJECTS = re.compile(r'(?:\[\s*)*\{\s*"')
_VALUES = re.compile(r'(?:\[\s*)*[{\[]\s*"')
# An emitter's replacement for the text that it cut: an ellipsis, or a remark in brackets or alone.
_REMARK = r"\b(?:chars?|characters|bytes|clipped|cut|elided|more|omitted|shortened|snip|trim|trunc)"
_MARKER = re.compile(
    rf"""[\s,]*(?:\.{{2,}}|…|[-+#*~<\[({{]*[^"{{}}\n]{{0,80}}?{_REMARK})""", re.IGNORECASE
)
_MAX_TAIL = 120


def _parse_marked(value: str, text: str, error: str) -> Parsed:
    """The part before the cut in a JSON text that ends with a remark about the cut.

    Args:
        value: The attribute.
        text: The same, stripped.
        error: Why it is not JSON, with the place.
    """
    if not _VALUES.match(text):
        return Parsed(value)
    end = _place_in(text, error)
    tail = text[end:].strip()
    is_short = _OBJECTS.match(text) is not None and len(tail) <= _MAX_TAIL
    is_short = is_short and set(tail).isdisjoint('"{}\n')
    # The marker's first characters may pass for JSON.
    for start in range(end, max(end - _MOST_BACK, 0) - 1, -1):
        if not (is_short or _MARKER.match(text, start)):
            continue
        try:
            beginning = _beginning_of(text[:start].rstrip(", \t\r\n"))
        except (ValueError, TypeError):
            continue
        return Parsed(_without_cut_part(beginning), truncated=True)
    return Parsed(value)


def _place_in(text: str, error: str) -> int:
    """The place in a text that the error of a JSON parser names; its columns count bytes."""
    match = _POSITION.search(error)
    if match is None:
        return len(text)
    lines = text.split("\n", int(match[1]))
    before = lines[: int(match[1]) - 1]
    line = lines[len(before)] if len(lines) > len(before) else ""
    head = line.encode("utf-8", "surrogatepass")[: max(int(match[2]) - 1, 0)]
    return len("\n".join([*before, head.decode(errors="ignore")]))


# A bracket, or a dot after a number.
_MOST_BACK = 3


def _without_cut_part(value: Any) -> Any:
    """A cut list of messages without the part that the cut goes through."""
    if not isinstance(value, list) or not value:
        return value
    last = value[-1]
    parts = last.get("parts") if isinstance(last, dict) else None
    if isinstance(parts, list) and len(parts) > 1:
        return [*value[:-1], {**last, "parts": parts[:-1]}]
    return value[:-1]


def parse_arguments(value: Any) -> Any:
    """A tool call's arguments, parsed if they are JSON, or else the raw text.

    Absent, blank and null arguments of a captured call become ``{}``. The arguments of a
    placeholder are unknown: None.
    """
    if hidden(value):
        return None
    if value is None or value == "":
        return {}
    return _parse_arguments_text(value) if isinstance(value, str) else value


def _parse_arguments_text(text: str) -> Any:
    try:
        exact = loads_exact(text) if text.strip() else None
    except (ValueError, RecursionError):
        parsed = parse(text)
        return text if parsed.truncated else parsed.value
    if exact is None:
        return {}
    return parse(text).value if isinstance(exact, str) else exact


def text_of(value: Any) -> str | None:
    """A value as message text: text stays as it is, anything else becomes JSON."""
    if value is None or isinstance(value, str):
        return value
    return dumps(value)
