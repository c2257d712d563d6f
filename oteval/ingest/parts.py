"""Parts of a file of JSON lines that can be read at the same time.

A file is only cut in front of a line that begins like an OTLP request, so that no document is cut
whatever else the file holds. Compressed files, protobuf and single documents are not cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..errors import InputError
from .files import Batch, Problem, read_stream

__all__ = ["Part", "read_part", "split"]

_REQUEST = b'{"resource'
_CUT = b"\n" + _REQUEST
_WINDOW = 1 << 20


class Part(NamedTuple):
    """A range of a file's bytes that begins with a request and ends before another.

    Attributes:
        start: Its first byte.
        end: The byte after its last.
    """

    start: int
    end: int


def split(path: str | Path, part_size: int) -> list[Part]:
    """Return the parts of a file of JSON lines, in order; none where it cannot be cut.

    Args:
        path: The file.
        part_size: About how many bytes a part has.
    """
    try:
        size = Path(path).stat().st_size
        if not Path(path).is_file() or size < 2 * part_size:
            return []
        with Path(path).open("rb") as file:
            if file.read(len(_REQUEST)) != _REQUEST:
                return []
            cuts = [0]
            while (cut := _next_cut(file, cuts[-1] + part_size)) is not None:
                cuts.append(cut)
    except OSError:
        return []
    parts = [Part(start, end) for start, end in zip(cuts, [*cuts[1:], size], strict=True)]
    return parts if len(parts) > 1 else []


def _next_cut(file: BinaryIO, offset: int) -> int | None:
    """Return where the first request begins at or after an offset."""
    file.seek(offset)
    kept = b""
    while block := file.read(_WINDOW):
        found = (kept + block).find(_CUT)
        if found >= 0:
            return file.tell() - len(block) - len(kept) + found + 1
        kept = (kept + block)[-len(_CUT) :]
    return None


def read_part(path: str | Path, part: Part, *, chunk: int) -> Iterator[tuple[Batch, int]]:
    """Read a part of a file.

    Args:
        path: The file.
        part: Which of its bytes.
        chunk: As for `read`.

    Yields:
        Batches, and the number of lines read until then; lines of problems count from the part's
        first.
    """
    with Path(path).open("rb") as file:
        window = _Window(file, part)
        try:
            for batch in read_stream(window, str(path), chunk=chunk):
                yield batch, window.lines
        except InputError as error:
            # Other parts are read all the same: what this one lacks is a problem, no end.
            reason = str(error).removeprefix(f"{path}:")
            yield Batch(problems=[_problem(str(path), reason)]), window.lines


def _problem(source: str, reason: str) -> Problem:
    """Return the problem that a message about a file tells, its line taken out of it."""
    line, colon, rest = reason.partition(": ")
    if colon and line.isdecimal():
        return Problem(source, int(line), rest)
    return Problem(source, None, reason.strip())


class _Window:
    """A part of a file, read as if it were all of it."""

    def __init__(self, file: BinaryIO, part: Part) -> None:
        self._file = file
        self._left = part.end - part.start
        self.lines = 0
        file.seek(part.start)

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        self.lines += data.count(b"\n")
        return data
