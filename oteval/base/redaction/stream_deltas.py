"""Secrets that a stream of events divides between its deltas.

A model that repeats a key writes it in several events, each with a piece of it. The strings at the
same place of consecutive events are therefore joined, searched as one text, and changed in the
events that contain a piece of a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

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


_Delta = tuple[int, tuple[str | int, ...], str]
"""The index of an event's JSON in the text, the keys and indices to a string in it, the string."""


def delta_edits(text: str, find: Callable[[str], Sequence[Edit]]) -> Iterator[Edit]:
    """Yield the edits of an event stream that remove secrets from its joined deltas.

    Args:
        text: The stream.
        find: Returns the edits of a joined text, in order and without overlaps.
    """
    for deltas in _joined(text):
        if len(deltas) < 2:
            continue
        joined = "".join([string for _, _, string in deltas])
        edits = find(joined)
        if not edits:
            continue
        try:
            pieces = [string.encode(_ENCODING) for _, _, string in deltas]
        except UnicodeEncodeError:
            continue
        changed = edited_pieces(joined, edits, pieces, _ENCODING)
        for (line, path, _), before, after in zip(deltas, pieces, changed, strict=True):
            if before != after:
                span = _string_at(text, line, path)
                if span is not None:
                    new = json.dumps(after.decode(_ENCODING), ensure_ascii=False)[1:-1]
                    yield Edit(*span, new)


def _joined(text: str) -> Iterable[list[_Delta]]:
    """The strings of a stream's events by their place, in order."""
    places = _Places()
    for match in _EVENT.finditer(text):
        try:
            event = orjson.loads(match[1])
        except orjson.JSONDecodeError:
            continue
        kind = tuple([_plain(event.get(key)) for key in _PLACE_KEYS])
        places.collect(event, match.start(1), (), places.inner(0, kind))
    return places.deltas.values()


class _Places:
    """Collects the strings of events by their places.

    A place is a number, so that looking one up does not hash all keys that lead to it.

    Attributes:
        deltas: The strings by their place.
    """

    def __init__(self) -> None:
        self.deltas: dict[int, list[_Delta]] = {}
        self._numbers: dict[tuple[int, Any], int] = {}

    def inner(self, parent: int, step: Any) -> int:
        """The place that a step leads to from another place."""
        return self._numbers.setdefault((parent, step), len(self._numbers) + 1)

    def collect(self, value: Any, line: int, path: tuple[str | int, ...], node: int) -> None:
        """Collect the strings of an object or array.

        Args:
            value: The object or array; other values have no strings in them.
            line: The index of the event's JSON in the text.
            path: The keys and indices that lead to the value.
            node: The value's place.
        """
        if len(path) >= _DEEPEST:
            return
        if type(value) is dict:
            for key, item in value.items():
                kind = type(item)
                if kind is str:
                    if key not in _SAME:
                        self._add(item, line, (*path, key), self.inner(node, key))
                elif (kind is dict or kind is list) and item:
                    self.collect(item, line, (*path, key), self.inner(node, key))
        elif type(value) is list:
            for index, item in enumerate(value):
                # Deltas name the place of a choice or tool call by an index.
                event_index = item.get("index") if type(item) is dict else None
                inner = self.inner(node, index if event_index is None else _plain(event_index))
                if type(item) is str:
                    self._add(item, line, (*path, index), inner)
                else:
                    self.collect(item, line, (*path, index), inner)

    def _add(self, text: str, line: int, path: tuple[str | int, ...], node: int) -> None:
        deltas = self.deltas.get(node)
        if deltas is None:
            self.deltas[node] = [(line, path, text)]
        else:
            deltas.append((line, path, text))


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int)) else None


def _string_at(text: str, start: int, path: tuple[str | int, ...]) -> tuple[int, int] | None:
    """The place of a string in the JSON that begins at an index."""
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
    """The index of the value of a key or index in the object or array at an index."""
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
    """The index after the value that begins at an index."""
    depth = 0
    while True:
        match = _VALUE_TOKEN.search(text, at)
        if match is None:
            return len(text)
        char = match[0]
        if char == '"':
            at = string_end(text, match.end(), 0)[1]
        elif char in "{[":
            depth += 1
            at = match.end()
        elif char == ",":
            if depth == 0:
                return match.start()
            at = match.end()
        else:
            if depth == 0:
                return match.start()
            depth -= 1
            at = match.end()
        if depth == 0 and char != ",":
            return at
