"""The files of a spool: numbered segments to which records are appended, each with its CRC.

Numbers are contiguous: a segment that is missing between two others was lost. Knows no process and
no position; see `spool` for the side that appends and `spool_reader` for the one that reads.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from ..errors import OtevalError

__all__ = [
    "Encoding",
    "Head",
    "Kind",
    "Position",
    "Record",
    "SpoolMissing",
    "cut_tail",
    "first_number",
    "is_gap",
    "missing_after",
    "next_mark",
    "packed_head",
    "remove_before",
    "scan",
    "segment_path",
    "segments",
    "unpacked_head",
]

Kind = Literal["traces", "logs"]
Encoding = Literal["protobuf", "json"]

MAGIC = b"OTSPOOL1"
_MARK = b"\xf5OTR"
# Mark, length and CRC of the payload, kind, encoding, time of receipt; then the CRC of these.
_HEAD = struct.Struct("<4sIIBBq")
_CRC = struct.Struct("<I")
HEADER = _HEAD.size + _CRC.size
_SUFFIX = ".spool"
_KINDS: tuple[Kind, ...] = ("traces", "logs")
_ENCODINGS: tuple[Encoding, ...] = ("protobuf", "json")


# Numbers that are further apart do not follow each other: a folder begun anew counts from the time,
# from one after a multiple of this, so that its first segment is known as the first.
_FAR = 1_000_000


class SpoolMissing(OtevalError):
    """A segment that holds acknowledged requests is not in the folder; the message names it."""


class Position(NamedTuple):
    """A place between two records.

    Attributes:
        segment: The segment's number; segments made later have greater ones.
        offset: Bytes from its beginning.
    """

    segment: int = 0
    offset: int = 0


class Record(NamedTuple):
    """A request as it was received, decompressed.

    Attributes:
        kind: What it holds.
        encoding: What its payload is.
        time_ns: When it was received.
        payload: Its body.
        end: The position after it.
    """

    kind: Kind
    encoding: Encoding
    time_ns: int
    payload: bytes
    end: Position = Position()


def packed_head(record: Record) -> bytes:
    """Return the header that a record has in a segment."""
    head = _HEAD.pack(
        _MARK,
        len(record.payload),
        zlib.crc32(record.payload),
        _KINDS.index(record.kind),
        _ENCODINGS.index(record.encoding),
        record.time_ns,
    )
    return head + _CRC.pack(zlib.crc32(head))


class Head(NamedTuple):
    """What is told of a record before its payload: bytes of it, its CRC, and the rest."""

    length: int
    crc: int
    kind: Kind
    encoding: Encoding
    time_ns: int


def unpacked_head(data: bytes) -> Head | None:
    """Return what a header says; None where the bytes are none."""
    if len(data) < HEADER or not data.startswith(_MARK):
        return None
    (crc,) = _CRC.unpack_from(data, _HEAD.size)
    if zlib.crc32(data[: _HEAD.size]) != crc:
        return None
    _, length, payload_crc, kind, encoding, time_ns = _HEAD.unpack_from(data)
    if kind >= len(_KINDS) or encoding >= len(_ENCODINGS):
        return None
    return Head(length, payload_crc, _KINDS[kind], _ENCODINGS[encoding], time_ns)


def segment_path(folder: Path, number: int) -> Path:
    """Return a segment's file."""
    return folder / f"{number:020d}{_SUFFIX}"


def segments(folder: Path) -> dict[int, int]:
    """Return the sizes in bytes of a spool's segments by their numbers, in order."""
    found = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name, dot, _ = entry.name.partition(_SUFFIX)
                if dot and name.isdecimal():
                    try:
                        found[int(name)] = entry.stat().st_size
                    except FileNotFoundError:  # the other process has just removed it
                        continue
    except FileNotFoundError:
        return {}
    return dict(sorted(found.items()))


def missing_after(folder: Path, position: Position) -> dict[int, str]:
    """Return the segments that are missing of a spool after a stored position.

    Returns:
        A message for each stretch of missing segments, by the segment after it; 0 where none is.
    """
    known = [number for number in segments(folder) if number >= position.segment]
    found = {}
    expected = first = position.segment
    if known and not first and known[0] % _FAR != 1:
        found[known[0]] = _missing(folder, known[0] - known[0] % _FAR + 1, known[0] - 1)
    for number in known:
        is_stored = expected == first and first > 0
        if number != expected and (is_stored or is_gap(expected - 1, number)):
            last = number - 1 if number < expected + _FAR else expected
            found[number] = _missing(folder, expected, last)
        expected = number + 1
    if first and not known:
        found[0] = _missing(folder, first, first)
    return found


def first_number(now: int) -> int:
    """Return the number of a folder's first segment: greater than those of folders before it.

    Args:
        now: The time (ns).
    """
    return now // _FAR * _FAR + 1


def is_gap(before: int, after: int) -> bool:
    """Return whether segments are missing between two that follow each other in a folder."""
    return before > 0 and before + 1 < after < before + _FAR


def _missing(folder: Path, first: int, last: int) -> str:
    names = segment_path(folder, first).name
    if last > first:
        names += f" to {segment_path(folder, last).name}"
    return f"{folder}: {names} missing, with what was acknowledged in it and is not stored"


def remove_before(folder: Path, segment: int, first: int = 0) -> int:
    """Remove the segments before one, and return how many there were.

    Args:
        folder: The spool.
        segment: The first that stays.
        first: The first that goes; what is before it was never read.
    """
    old = [number for number in segments(folder) if first <= number < segment]
    for number in old:
        segment_path(folder, number).unlink(missing_ok=True)
    return len(old)


def cut_tail(folder: Path) -> int:
    """Cut an incomplete record off the end of the last segment, and return how many bytes."""
    known = segments(folder)
    if not known:
        return 0
    number, size = next(reversed(known.items()))
    end = len(MAGIC)
    with segment_path(folder, number).open("r+b") as file:
        for offset, head in scan(file.fileno()):
            end = offset + HEADER + head.length
        if end < size:
            file.truncate(end)
            os.fsync(file.fileno())
    return max(0, size - end)


def scan(fd: int) -> Iterator[tuple[int, Head]]:
    """Yield the offset and header of each record of a segment that is whole."""
    offset = len(MAGIC)
    size = os.fstat(fd).st_size
    while offset < size:
        head = unpacked_head(os.pread(fd, HEADER, offset))
        end = offset + HEADER + head.length if head else size + 1
        if head is None or end > size:
            offset = next_mark(fd, offset + 1, size)
            continue
        if zlib.crc32(os.pread(fd, head.length, offset + HEADER)) == head.crc:
            yield offset, head
        offset = end


def next_mark(fd: int, start: int, size: int) -> int:
    """Return the offset of the next header of a segment from one on; its size where none is."""
    at = start
    while at < size:
        data = os.pread(fd, 1 << 20, at)
        found = data.find(_MARK)
        if found < 0:
            at += max(1, len(data) - len(_MARK) + 1)
        elif unpacked_head(os.pread(fd, HEADER, at + found)):
            return at + found
        else:
            at += found + 1
    return size
