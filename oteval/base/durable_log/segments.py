"""The file format of a log: numbered segments of records, each record with its checksums.

Segment numbers are contiguous, so a missing number between two segments means lost records.
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
    "HEADER_BYTES",
    "MAGIC",
    "Encoding",
    "Kind",
    "Position",
    "Record",
    "RecordHeader",
    "SegmentMissing",
    "cut_tail",
    "first_number",
    "is_gap",
    "missing_segments",
    "next_header",
    "pack_header",
    "remove_before",
    "scan",
    "segment_path",
    "segment_sizes",
    "unpack_header",
]

Kind = Literal["traces", "logs"]
Encoding = Literal["protobuf", "json"]

MAGIC = b"OTSPOOL1"
_MARK = b"\xf5OTR"
# Mark, payload length, payload CRC, kind, encoding, time of receipt; then the CRC of these fields.
_HEADER = struct.Struct("<4sIIBBq")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CRC.size
_SUFFIX = ".spool"
_KINDS: tuple[Kind, ...] = ("traces", "logs")
_ENCODINGS: tuple[Encoding, ...] = ("protobuf", "json")
_SEARCH_BYTES = 1 << 20


# The number of the first segment of an empty folder is based on the time: one above a multiple of
# this. It therefore identifies the first segment. Numbers further apart than this belong to
# different logs.
_NUMBER_RANGE = 1_000_000


class SegmentMissing(OtevalError):
    """A segment with acknowledged requests is not in the folder; the message names it."""


class Position(NamedTuple):
    """A place between two records.

    Attributes:
        segment: The segment's number. Later segments have greater numbers.
        offset: Bytes from the beginning of the segment.
    """

    segment: int = 0
    offset: int = 0


class Record(NamedTuple):
    """An OTLP request as it was received, decompressed.

    Attributes:
        kind: The signal, ``traces`` or ``logs``.
        encoding: The encoding of the payload.
        time_ns: When the request was received.
        payload: The request body.
        end: The position after the record.
    """

    kind: Kind
    encoding: Encoding
    time_ns: int
    payload: bytes
    end: Position = Position()


class RecordHeader(NamedTuple):
    """The header of a record: the length and CRC of its payload, and the fields of `Record`."""

    length: int
    crc: int
    kind: Kind
    encoding: Encoding
    time_ns: int


def pack_header(record: Record) -> bytes:
    """The bytes that precede a record's payload in a segment."""
    header = _HEADER.pack(
        _MARK,
        len(record.payload),
        zlib.crc32(record.payload),
        _KINDS.index(record.kind),
        _ENCODINGS.index(record.encoding),
        record.time_ns,
    )
    return header + _CRC.pack(zlib.crc32(header))


def unpack_header(data: bytes) -> RecordHeader | None:
    """Parse a header; return None unless the bytes are an intact header."""
    if len(data) < HEADER_BYTES or not data.startswith(_MARK):
        return None
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    if zlib.crc32(data[: _HEADER.size]) != crc:
        return None
    _, length, payload_crc, kind, encoding, time_ns = _HEADER.unpack_from(data)
    if kind >= len(_KINDS) or encoding >= len(_ENCODINGS):
        return None
    return RecordHeader(length, payload_crc, _KINDS[kind], _ENCODINGS[encoding], time_ns)


def segment_path(folder: Path, number: int) -> Path:
    """The path of a segment's file."""
    return folder / f"{number:020d}{_SUFFIX}"


def segment_sizes(folder: Path) -> dict[int, int]:
    """The size in bytes of each segment by its number, in order."""
    sizes = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name, suffix, _ = entry.name.partition(_SUFFIX)
                if suffix and name.isdecimal():
                    try:
                        sizes[int(name)] = entry.stat().st_size
                    except FileNotFoundError:  # the reading process has just removed it
                        continue
    except FileNotFoundError:
        return {}
    return dict(sorted(sizes.items()))


def missing_segments(folder: Path, position: Position) -> dict[int, str]:
    """Find the segments that a log lacks after a stored position.

    Returns:
        A message for each run of missing segments, by the number of the segment after it; 0 means
        the end of the log.
    """
    numbers = [number for number in segment_sizes(folder) if number >= position.segment]
    messages = {}
    expected = first = position.segment
    if numbers and not first and numbers[0] % _NUMBER_RANGE != 1:
        start = numbers[0] - numbers[0] % _NUMBER_RANGE + 1
        messages[numbers[0]] = _missing_message(folder, start, numbers[0] - 1)
    for number in numbers:
        is_stored = expected == first and first > 0
        if number != expected and (is_stored or is_gap(expected - 1, number)):
            last = number - 1 if number < expected + _NUMBER_RANGE else expected
            messages[number] = _missing_message(folder, expected, last)
        expected = number + 1
    if first and not numbers:
        messages[0] = _missing_message(folder, first, first)
    return messages


def first_number(now: int) -> int:
    """The number for the first segment of an empty folder.

    It is greater than the numbers of earlier logs.

    Args:
        now: The time (ns).
    """
    return now // _NUMBER_RANGE * _NUMBER_RANGE + 1


def is_gap(before: int, after: int) -> bool:
    """Whether segments are missing between two neighbours in the folder."""
    return before > 0 and before + 1 < after < before + _NUMBER_RANGE


def _missing_message(folder: Path, first: int, last: int) -> str:
    names = segment_path(folder, first).name
    if last > first:
        names += f" to {segment_path(folder, last).name}"
    return f"{folder}: {names} missing, with acknowledged requests that are not stored"


def remove_before(folder: Path, segment: int, first: int = 0) -> int:
    """Remove the segments before one, and return how many there were.

    Args:
        folder: The log's folder.
        segment: The first segment to keep.
        first: The first segment to remove; earlier ones were never read and stay.
    """
    old = [number for number in segment_sizes(folder) if first <= number < segment]
    for number in old:
        segment_path(folder, number).unlink(missing_ok=True)
    return len(old)


def cut_tail(folder: Path) -> int:
    """Truncate an incomplete record at the end of the last segment; return the bytes cut."""
    sizes = segment_sizes(folder)
    if not sizes:
        return 0
    number, size = next(reversed(sizes.items()))
    end = len(MAGIC)
    with segment_path(folder, number).open("r+b") as file:
        for offset, header, _ in scan(file.fileno()):
            end = offset + HEADER_BYTES + header.length
        if end < size:
            file.truncate(end)
            os.fsync(file.fileno())
    return max(0, size - end)


def scan(fd: int) -> Iterator[tuple[int, RecordHeader, bytes]]:
    """Yield the offset, header and payload of each intact record of a segment."""
    offset = len(MAGIC)
    size = os.fstat(fd).st_size
    while offset < size:
        header = unpack_header(os.pread(fd, HEADER_BYTES, offset))
        end = offset + HEADER_BYTES + header.length if header else size + 1
        if header is None or end > size:
            offset = next_header(fd, offset + 1, size)
            continue
        payload = os.pread(fd, header.length, offset + HEADER_BYTES)
        if zlib.crc32(payload) == header.crc:
            yield offset, header, payload
        offset = end


def next_header(fd: int, start: int, size: int) -> int:
    """The offset of the first intact header at or after `start`, or `size` if none."""
    at = start
    while at < size:
        data = os.pread(fd, _SEARCH_BYTES, at)
        index = data.find(_MARK)
        if index < 0:
            at += max(1, len(data) - len(_MARK) + 1)
        elif unpack_header(os.pread(fd, HEADER_BYTES, at + index)):
            return at + index
        else:
            at += index + 1
    return size
