"""How many parts a request may have: spans, log records, attributes, values, events, links.

A part takes a hundred times more memory than the two bytes that an empty one has in a request, and
compressed they are nearly nothing. So parts are counted before a request is parsed: first by a
bound that costs next to nothing and that real requests keep, then one by one.
"""

from __future__ import annotations

import re

from ..spool import Encoding, Kind
from .answers import Refused

__all__ = ["MOST_ITEMS", "MOST_PARTS", "check_parts", "too_many"]

MOST_PARTS = 2_000_000
"""The most parts of a request, of any kind."""
MOST_ITEMS = 250_000
"""The most spans or log records of a request."""
_CONTROLS = bytes(range(32))
# A string without an end goes up to the end of the body: looking for its end from each quotation
# mark in it would take quadratic time.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
# JSON has twice as many braces, brackets and commas as protobuf has parts.
_MOST_TOKENS = 2 * MOST_PARTS


def check_parts(kind: Kind, encoding: Encoding, body: bytes) -> None:
    """Refuse a request with too many parts to be parsed.

    Raises:
        Refused: It has more than `MOST_PARTS`.
    """
    if encoding == "json":
        is_many = _tokens(body) > _MOST_TOKENS and _tokens(_STRING.sub(b"", body)) > _MOST_TOKENS
    else:
        is_many = _bound(body) > MOST_PARTS and _Count(kind, body).is_many()
    if is_many:
        raise too_many("attributes and other parts", MOST_PARTS)


def too_many(name: str, most: int) -> Refused:
    """Return the refusal of a request with too many parts of a kind."""
    return Refused(413, "parts", f"the request has more than {most} {name}; send less at once")


def _tokens(body: bytes) -> int:
    return body.count(b"{") + body.count(b"[") + body.count(b",")


def _bound(body: bytes) -> int:
    """Return more than the parts that a protobuf request can have.

    A part of less than 32 bytes has a length below 32, which is a control character; one that can
    hold others of its kind has a child whose tag is one. Text has hardly any.
    """
    if len(body) // 2 <= MOST_PARTS:
        return len(body) // 2
    controls = len(body) - len(body.translate(None, _CONTROLS))
    return 2 * controls + len(body) // 32


_Fields = dict[int, str]
# Of each message, the fields that hold messages.
_COMMON: dict[str, _Fields] = {
    "resource": {1: "attribute", 3: "leaf"},
    "scope": {3: "attribute"},
    "attribute": {2: "value"},
    "value": {5: "list", 6: "map"},
    "list": {1: "value"},
    "map": {1: "attribute"},
    "leaf": {3: "leaf", 4: "leaf"},
}
_MESSAGES: dict[Kind, dict[str, _Fields]] = {
    "traces": _COMMON
    | {
        "request": {1: "group"},
        "group": {1: "resource", 2: "scoped"},
        "scoped": {1: "scope", 2: "span"},
        "span": {9: "attribute", 11: "event", 13: "link", 15: "leaf"},
        "event": {3: "attribute"},
        "link": {4: "attribute"},
    },
    "logs": _COMMON
    | {
        "request": {1: "group"},
        "group": {1: "resource", 2: "scoped"},
        "scoped": {1: "scope", 2: "record"},
        "record": {5: "value", 6: "attribute"},
    },
}


class _Count:
    """Counts the parts of a protobuf request, without parsing their content."""

    def __init__(self, kind: Kind, body: bytes) -> None:
        self._messages = _MESSAGES[kind]
        self._body = body

    def is_many(self) -> bool:
        """Return whether there are too many; malformed requests are left to the parser."""
        body, messages = self._body, self._messages
        waiting = [(0, len(body), "request")]
        count = 0
        while waiting:
            at, end, name = waiting.pop()
            fields = messages.get(name, {})
            while at < end:
                try:
                    tag, at = self._varint(at)
                    wire = tag & 7
                    if wire == 2:
                        size, at = self._varint(at)
                        if (child := fields.get(tag >> 3)) is not None:
                            count += 1
                            if size:
                                waiting.append((at, min(end, at + size), child))
                        at += size
                    elif wire == 0:
                        _, at = self._varint(at)
                    elif wire in _FIXED:
                        at += _FIXED[wire]
                    else:
                        break  # groups: no field of OTLP is one
                except IndexError:
                    break
                if count > MOST_PARTS:
                    return True
        return False

    def _varint(self, at: int) -> tuple[int, int]:
        body = self._body
        byte = body[at]
        if byte < 0x80:
            return byte, at + 1
        value, shift = byte & 0x7F, 7
        while byte >= 0x80 and shift < 70:
            at += 1
            byte = body[at]
            value |= (byte & 0x7F) << shift
            shift += 7
        return value, at + 1


_FIXED = {1: 8, 5: 4}
