"""Parts of a file of JSON lines, to be read in parallel.

A file is only cut before a line that begins like an OTLP request, so no document is ever cut,
whatever else the file contains. Compressed files, protobuf and single documents have no parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..base.errors import InputError
from .trace_files import Batch, Problem, read_stream

__all__ = ["FilePart", "read_part", "split_file"]

_REQUEST = b'{"resource'
_CUT = b"\n" + _REQUEST
_BLOCK = 64 << 10  # bytes; a request is mostly longer


class FilePart(NamedTuple):
    """A range of a file's bytes that begins with a request and ends before another request.

    Attributes:
        start: The offset of its first byte.
        end: The offset after its last byte.
    """

    start: int
    end: int


def split_file(path: str | Path, part_size: int) -> list[FilePart]:
    """The parts of a file of JSON lines in order, or no parts if it cannot be cut.

    Args:
        path: The file.
        part_size: The approximate size of a part in bytes.
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
    parts = [FilePart(start, end) for start, end in zip(cuts, [*cuts[1:], size], strict=True)]
    return parts if len(parts) > 1 else []


def _next_cut(file: BinaryIO, offset: int) -> int | None:
    """The offset of the first request at or after an offset; None if there is none."""
    file.seek(offset)
    tail = b""
    while block := file.read(_BLOCK):
        index = (tail + block).find(_CUT)
        if index >= 0:
            return file.tell() - len(block) - len(tail) + index + 1
        tail = (tail + block)[-len(_CUT) :]
    return None


def read_part(path: str | Path, part: FilePart, *, chunk: int) -> Iterator[tuple[Batch, int]]:
    """Read one part of a file.

    Args:
        path: The file.
        part: The range of bytes to read.
        chunk: The least spans and log records of a batch, as in `read`.

    Yields:
        Batches, each with the number of lines read so far. The lines of problems count from the
        beginning of the part.
    """
    with Path(path).open("rb") as file:
        window = _PartReader(file, part)
        try:
            for batch in read_stream(window, str(path), chunk=chunk):
                yield batch, window.lines
        except InputError as error:
            # An unreadable part is a problem and not an error: the other parts are still read.
            reason = str(error).removeprefix(f"{path}:")
            yield Batch(problems=[_problem(str(path), reason)]), window.lines


def _problem(source: str, reason: str) -> Problem:
    """An error message about a file as a problem, with the line number removed from the message."""
    line, colon, text = reason.partition(": ")
    if colon and line.isdecimal():
        return Problem(source, int(line), text)
    return Problem(source, None, reason.strip())


class _PartReader:
    """A range of a file's bytes, readable like a whole file.

    Attributes:
        lines: The number of line ends read so far.
    """

    def __init__(self, file: BinaryIO, part: FilePart) -> None:
        self._file = file
        self._left = part.end - part.start
        self.lines = 0
        file.seek(part.start)

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        self.lines += _line_ends(data)
        return data


def _line_ends(data: bytes) -> int:
    """The number of newlines, found one by one; `count` would take longer."""
    count, at = 0, data.find(b"\n")
    while at >= 0:
        count, at = count + 1, data.find(b"\n", at + 1)
    return count
