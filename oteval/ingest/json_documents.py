"""The OTLP documents of a JSON text, one line or one value at a time.

A file of JSON lines is read line by line. A line that is no whole document (pretty-printed,
several on a line, damaged, or very long) is read on value by value: the outer objects and lists
of OTLP are walked, and every span is parsed by itself. So a document of any size takes little
memory, and of one that is damaged everything before the damage is had.

Only the shape is looked at here; what a document means is `otlp`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from .incremental_json import BrokenError, Walker
from .otlp import parse_json
from .tape import Tape

__all__ = ["Document", "Fault", "documents"]

LONG_LINE = 32 << 20
"""Bytes from which on a line is read value by value."""
_BOM = b"\xef\xbb\xbf"


class Document(NamedTuple):
    """A parsed request, or a part of one in the form of a request."""

    line: int
    value: Any


class Fault(NamedTuple):
    """Something that is no document, and what was skipped for it."""

    line: int
    reason: str


def documents(tape: Tape) -> Iterator[Document | Fault]:
    """Yield what the text holds, in order.

    Args:
        tape: The text, from its beginning.
    """
    while True:
        number = tape.line
        line = tape.next_line(LONG_LINE)
        if not line:
            return
        text = line.strip().removeprefix(_BOM)
        if not text:
            continue
        whole = line.endswith(b"\n") or len(line) < LONG_LINE
        try:
            if whole:
                yield Document(number, parse_json(text))
                continue
        except ValueError:
            pass
        if text.startswith((b"{", b"[")):
            tape.put_back(line)
            tape.line = number
            yield from _walk(tape)
        else:
            yield Fault(number, f"{_reason(text)}; line skipped")
            if not whole:
                _end_line(tape)


def _walk(tape: Tape) -> Iterator[Document | Fault]:
    """Yield the documents from here on value by value, up to the first fault or the end."""
    walker = Walker(tape.chunk, tape.line)
    try:
        for line, value in walker.requests():
            yield from _notes(walker)
            yield Document(line, value)
        yield from _notes(walker)
    except BrokenError as broken:
        yield from _notes(walker)
        rest, tape.line = walker.rest()
        if rest is None:
            _end_line(tape)
        else:
            tape.put_back(rest)
        yield _fault(broken, walker, _to_next_document(tape))


def _notes(walker: Walker) -> Iterator[Fault]:
    for line in walker.not_utf8:
        yield Fault(line, "bytes that are not UTF-8 were read as U+FFFD")
    walker.not_utf8.clear()


def _fault(broken: BrokenError, walker: Walker, last: int) -> Fault:
    """Return what is told of a break after which the lines up to `last` were skipped."""
    reason, line = str(broken), broken.line
    if last < line and not broken.at_end:  # what follows was taken for a part of it
        reason, line = f"not valid JSON (cut at the end of line {last})", last
    what = f"lines {walker.start} to {last}" if last > walker.start else "line"
    if walker.records:
        what = f"{walker.records} spans and log records before it are kept, the rest of the {what}"
    return Fault(line, f"{reason}; {what} skipped")


def _to_next_document(tape: Tape) -> int:
    """Skip the lines that begin no document and return the number of the last one skipped."""
    last = tape.line - 1
    while True:
        number = tape.line
        line = tape.next_line(LONG_LINE)
        if not line:
            return last
        if line.removeprefix(_BOM).startswith((b"{", b"[")):
            tape.put_back(line)
            tape.line = number
            return last
        if not line.endswith(b"\n"):
            _end_line(tape)
        last = number


def _end_line(tape: Tape) -> None:
    number = tape.line
    while tape.line == number and tape.next_line(LONG_LINE):
        pass


def _reason(text: bytes) -> str:
    """Return why a text is no JSON."""
    try:
        json.loads(text.decode())
    except UnicodeDecodeError as error:
        return f"not UTF-8 text (byte 0x{text[error.start]:02x} at column {error.start + 1})"
    except json.JSONDecodeError as error:
        return f"not valid JSON ({error.msg.removesuffix(' at')} at column {error.colno})"
    except (RecursionError, ValueError):
        pass
    return "not valid JSON"
