"""Attribute values as emitters write them: JSON text, JSON in JSON, Python reprs, cut-off text.

`parse` never raises: it returns the value and whether the text was complete. `nested` reads lists
that are spelled out as indexed attributes, such as ``prefix.0.role``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

from pydantic_core import from_json

from ...jsontext import dumps, encodable, loads, loads_exact
from .python_reprs import literal_of
from .read_cache import active, has_prefix

__all__ = [
    "Parsed",
    "hidden",
    "list_of",
    "mapping_of",
    "nested",
    "parse",
    "parse_arguments",
    "text_of",
]

_PLACEHOLDERS = frozenset(
    {"__REDACTED__", "<elided>", "<REDACTED>", "[REDACTED]", "redacted-by-litellm"}
)
_LONGEST = max(map(len, _PLACEHOLDERS))
# Lists from this length on are looked for among those read before; shorter ones are read sooner.
_LONG = 4096


class Parsed(NamedTuple):
    """A value read from an attribute.

    Attributes:
        value: The value; the text itself where it is neither JSON nor a Python literal.
        truncated: Whether the text was JSON that had been cut; then `value` is the part before
            the cut, without the item that the cut goes through.
    """

    value: Any
    truncated: bool = False


def hidden(value: Any) -> bool:
    """Return whether a value is a placeholder for content that was not captured."""
    # Looking up a long text would read all of it.
    return isinstance(value, str) and len(value) <= _LONGEST and value in _PLACEHOLDERS


def parse(value: Any) -> Parsed:
    """Return the value that an attribute means, unwrapping text that holds JSON."""
    if not isinstance(value, str):
        return Parsed(value)
    cache = active() if len(value) >= _LONG and value[0] == "[" else None
    if cache is None:
        return _parse_text(value)
    return cache.parsed(value, _parse_list)


def _parse_list(text: str, items: list[Any], rest: str) -> tuple[Parsed, list[Any]]:
    """Return the value of a text that begins with a bracket, and the items if that is valid JSON.

    Args:
        text: The text.
        items: The first items, as far as they are known.
        rest: The text after them.
    """
    rest = rest.lstrip(" \t\r\n")
    more = _items(f"[{rest[1:]}") if items and rest.startswith(",") else []
    found = [*items, *more] if more else _items(text)
    return (Parsed(found) if found else _parsed(text)), found


def _items(text: str) -> list[Any]:
    """Return the items of a list in JSON text; none where it is not valid."""
    try:
        return list_of(_loads(text.strip()))
    except (ValueError, RecursionError):
        return []


def mapping_of(value: Any) -> Mapping[str, Any]:
    """Return the object that a value is or spells out; an empty one where it is none."""
    found = None if hidden(value) else parse(value).value
    return found if isinstance(found, Mapping) else {}


def list_of(value: Any) -> list[Any]:
    """Return a value that is a list; an empty list for any other."""
    return value if isinstance(value, list) else []


# A span's content is asked for twice in a row: for its messages, and for whether it is whole.
@lru_cache(maxsize=16)
def _parse_text(text: str) -> Parsed:
    if text[:1] in _OPENS and "\\u" not in text and text.isascii():
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
    """Return the value of a JSON text; only arguments keep the halves of surrogate pairs."""
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
    kept = {"input"} if value.get("type") == "tool_use" else _ARGUMENTS
    return {
        encodable(key): item if key in kept and isinstance(item, dict) else _encodable(item)
        for key, item in value.items()
    }


_JSON_STARTS = frozenset('{["')
_OPENS = frozenset("{[")


def _parse_broken(value: str, text: str) -> Parsed:
    if text[0] == '"':
        return Parsed(value)
    literal = literal_of(text)
    if literal is not None:
        return Parsed(literal)
    try:
        return Parsed(_without_cut_part(from_json(text, allow_partial=True)), truncated=True)
    except (ValueError, TypeError):
        return Parsed(value)


def _without_cut_part(value: Any) -> Any:
    """Return a cut list of messages less the part that the cut goes through."""
    if not isinstance(value, list) or not value:
        return value
    last = value[-1]
    parts = last.get("parts") if isinstance(last, dict) else None
    if isinstance(parts, list) and len(parts) > 1:
        return [*value[:-1], {**last, "parts": parts[:-1]}]
    return value[:-1]


def parse_arguments(value: Any) -> Any:
    """Return a tool call's arguments, parsed if they are JSON, or else the raw text.

    Absent and empty arguments of a call that was captured are those of a call without any: ``{}``.
    A placeholder's are not known: None.
    """
    if hidden(value):
        return None
    if value is None or value == "":
        return {}
    return _parse_arguments_text(value) if isinstance(value, str) else value


# Each call of a model repeats the arguments of the calls before it.
@lru_cache(maxsize=16)
def _parse_arguments_text(text: str) -> Any:
    try:
        exact = loads_exact(text)
    except ValueError:
        exact = None
    if isinstance(exact, (dict, list)):
        return exact
    parsed = parse(text)
    return text if parsed.truncated else parsed.value


def text_of(value: Any) -> str | None:
    """Return a value as message text: text stays as it is, anything else becomes JSON."""
    if value is None or isinstance(value, str):
        return value
    return dumps(value)


def nested(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """Return the list that the keys under a prefix spell out.

    Args:
        attributes: The span's attributes.
        prefix: The beginning of the keys, the last dot included.

    Returns:
        The items in the order of their indices as numbers; a missing index leaves no hole.
        Inside an item, keys that are all numbers become a list likewise.
    """
    if not has_prefix(attributes, prefix):
        return []
    cache = active()
    if cache is None:
        return _nested(attributes, prefix)
    return cache.flat.read(attributes, prefix, partial(_nested, prefix=prefix))


def _nested(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    root = _Branch()
    cut = len(prefix)
    for key, value in attributes.items():
        if key.startswith(prefix):
            *path, last = key[cut:].split(".", _MAX_STEPS)
            if len(path) < _MAX_STEPS:
                _put(root, path, last, value)
    items = _with_lists(root)
    return items if isinstance(items, list) else []


# No dialect nests as deeply, nor holds as many digits in an index.
_MAX_STEPS = 32
_MAX_DIGITS = 9


class _Branch(dict[str, Any]):
    """The values below a shared prefix, distinct from attributes whose value is a dict."""


def _put(node: _Branch, path: list[str], last: str, value: Any) -> None:
    for step in path:
        below = node[step] if step in node else node.setdefault(step, _Branch())
        if not isinstance(below, _Branch):
            return
        node = below
    node.setdefault(last, value)


def _with_lists(node: _Branch) -> dict[str, Any] | list[Any]:
    is_list = bool(node)
    for key, value in node.items():
        if isinstance(value, _Branch):
            node[key] = _with_lists(value)
        is_list = is_list and key.isdecimal() and len(key) <= _MAX_DIGITS
    return [node[key] for key in sorted(node, key=int)] if is_list else dict(node)
