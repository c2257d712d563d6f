"""Secrets that a stream of events divides between its deltas.

A model that repeats a key writes it in several events, each with a piece of it. The strings at the
same place of consecutive events are therefore joined, searched as one text, and changed in the
events that contain a piece of a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from .json_secrets import string_end
from .secret_names import names_in
from .text_edits import Edit, edited_pieces

__all__ = ["delta_edits"]

# A line of server-sent events, or of JSON lines.
_EVENT = re.compile(r"^(?:data:[ \t]*)?(\{[^\r\n]*\})[ \t]*$", re.MULTILINE)
# Strings that are the same in every event, or that name its kind.
_SAME = names_in("""
    created event_id finish_reason id item_id model object obfuscation role service_tier
    system_fingerprint type
""")
_PLACE_KEYS = ("type", "item_id", "output_index", "content_index", "index")
_DEEPEST = 16
_ENCODING = "utf-8"


class _Delta(NamedTuple):
    """A string in an event.

    Attributes:
        line: The index of the event's JSON in the text.
        path: The keys and indices that lead to the string.
        text: The string.
    """

    line: int
    path: tuple[str | int, ...]
    text: str


def delta_edits(text: str, find: Callable[[str], Sequence[Edit]]) -> Iterator[Edit]:
    """Yield the edits of an event stream by which its joined deltas contain no secret.

    Args:
        text: The stream.
        find: Returns the edits of a joined text, in order and without overlaps.
    """
    for deltas in _joined(text).values():
        if len(deltas) < 2:
            continue
        whole = "".join(each.text for each in deltas)
        edits = find(whole)
        if not edits:
            continue
        try:
            pieces = [each.text.encode(_ENCODING) for each in deltas]
        except UnicodeEncodeError:
            continue
        changed = edited_pieces(whole, edits, pieces, _ENCODING)
        for delta, before, after in zip(deltas, pieces, changed, strict=True):
            if before != after:
                place = _string_at(text, delta.line, delta.path)
                if place is not None:
                    new = json.dumps(after.decode(_ENCODING), ensure_ascii=False)[1:-1]
                    yield Edit(*place, new)


def _joined(text: str) -> dict[Any, list[_Delta]]:
    """Return the strings of a stream's events by their place, in order."""
    out: dict[Any, list[_Delta]] = {}
    for found in _EVENT.finditer(text):
        try:
            event = orjson.loads(found[1])
        except orjson.JSONDecodeError:
            continue
        place = tuple(_plain(event.get(key)) for key in _PLACE_KEYS)
        _collect(event, found.start(1), (), place, out)
    return out


def _collect(
    value: Any, line: int, path: tuple[str | int, ...], place: Any, out: dict[Any, list[_Delta]]
) -> None:
    if isinstance(value, dict):
        if len(path) < _DEEPEST:
            for key, item in value.items():
                if isinstance(item, str):
                    if key not in _SAME:
                        out.setdefault((place, key), []).append(_Delta(line, (*path, key), item))
                elif isinstance(item, (dict, list)):
                    _collect(item, line, (*path, key), (place, key), out)
    elif isinstance(value, list) and len(path) < _DEEPEST:
        for index, item in enumerate(value):
            # Deltas name the place of a choice or tool call by an index.
            known = item.get("index") if isinstance(item, dict) else None
            inner = (place, index if known is None else _plain(known))
            if isinstance(item, str):
                out.setdefault(inner, []).append(_Delta(line, (*path, index), item))
            else:
                _collect(item, line, (*path, index), inner, out)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int)) else None


def _string_at(text: str, start: int, path: tuple[str | int, ...]) -> tuple[int, int] | None:
    """Return the place of a string in the JSON that begins at an index."""
    at = start
    for step in path:
        entered = _enter(text, at, step)
        if entered is None:
            return None
        at = entered
    if not text.startswith('"', at):
        return None
    return at + 1, string_end(text, at + 1, 0)[0]


def _enter(text: str, at: int, step: str | int) -> int | None:
    """Return the index of the value of a key or index in the object or array at an index."""
    is_object = text.startswith("{", at)
    at = _next(text, at + 1)
    index = 0
    while at < len(text) and text[at] not in "}]":
        if text[at] == ",":
            at = _next(text, at + 1)
            continue
        key: str | int = index
        if is_object:
            after = string_end(text, at + 1, 0)[1]
            key = orjson.loads(text[at:after])
            at = _next(text, _next(text, after) + 1)
        if key == step:
            return at
        index += 1
        at = _next(text, _skip_value(text, at))
    return None


def _next(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t"):
        at += 1
    return at


_VALUE_TOKEN = re.compile(r'["{}\[\],]')


def _skip_value(text: str, at: int) -> int:
    """Return the index after the value that begins at an index."""
    depth = 0
    while True:
        found = _VALUE_TOKEN.search(text, at)
        if found is None:
            return len(text)
        char = found[0]
        if char == '"':
            at = string_end(text, found.end(), 0)[1]
        elif char in "{[":
            depth += 1
            at = found.end()
        elif char == ",":
            if depth == 0:
                return found.start()
            at = found.end()
        else:
            if depth == 0:
                return found.start()
            depth -= 1
            at = found.end()
        if depth == 0 and char != ",":
            return at
