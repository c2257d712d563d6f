"""What waits on disk to be sent on: appended, read in any order, deleted once all of it is sent.

A folder of segments. A segment begins with the position up to which its source was read when it
was begun; then records follow, each with its length and checksum. Beside it, ``.done`` names the
parts of records that were sent. What a crash cut off at the end of a segment is cut away; what was
sent but not noted is sent again.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..files import sync, sync_folder

__all__ = ["Journal", "Position", "Record"]

_HEAD = struct.Struct("<8sQQ")  # magic, position
_RECORD = struct.Struct("<IIQQQBB")  # length, checksum, received, position, kind, encoding
_DONE = struct.Struct("<Q16s")  # where the record begins, the part
_MAGIC = b"oteval-1"
KINDS = ("traces", "logs")
ENCODINGS = ("protobuf", "json")


class Position(NamedTuple):
    """How far a source was read: a segment's number and an offset in it."""

    segment: int = 0
    offset: int = 0


@dataclass(eq=False, slots=True)
class Record:
    """A record.

    Attributes:
        segment: Its segment.
        at: Where it begins there.
        size: The length of its payload.
        received_ns: When it came.
        kind: ``traces`` or ``logs``.
        encoding: ``protobuf`` or ``json``.
        waiting: How many of its parts are not sent.
        done: The parts that were sent, when it was read back.
    """

    segment: int
    at: int
    size: int
    received_ns: int
    kind: str
    encoding: str
    waiting: int = 0
    done: frozenset[bytes] = frozenset()


@dataclass(eq=False, slots=True)
class _Segment:
    number: int
    file: int
    done_file: int
    size: int
    records: set[Record] = field(default_factory=set)


class Journal:
    """A folder of records.

    Args:
        folder: The folder; made when it is not there.
        segment_size: From how many bytes on a new segment is begun.

    Attributes:
        position: Up to where the source was read.
        size: The bytes on disk.
    """

    def __init__(self, folder: Path, segment_size: int = 32 << 20) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._segment_size = segment_size
        self._segments: dict[int, _Segment] = {}
        self.position = Position()
        for number in sorted(int(path.stem) for path in folder.glob("*.held")):
            self._open(number)

    @property
    def size(self) -> int:
        """The bytes on disk."""
        return sum(segment.size for segment in self._segments.values())

    def records(self) -> list[Record]:
        """Return the records that are there, in order; some of their parts may be done."""
        found = [r for segment in self._segments.values() for r in segment.records]
        return sorted(found, key=lambda record: (record.segment, record.at))

    def append(
        self,
        kind: str,
        encoding: str,
        payload: bytes,
        received_ns: int,
        position: Position = Position(),  # noqa: B008
    ) -> Record:
        """Append a record; it is durable after `sync`.

        Raises:
            OSError: It cannot be written; then nothing of it stays.
        """
        segment = self._current()
        position = max(position, self.position)
        fixed = (received_ns, *position, KINDS.index(kind), ENCODINGS.index(encoding))
        head = _RECORD.pack(len(payload), 0, *fixed)
        head = _RECORD.pack(len(payload), zlib.crc32(payload, zlib.crc32(head)), *fixed)
        at = segment.size
        try:
            _write_all(segment.file, head + payload, at)
        except OSError:
            with suppress(OSError):
                os.ftruncate(segment.file, at)
            raise
        segment.size = at + len(head) + len(payload)
        self.position = position
        record = Record(segment.number, at, len(payload), received_ns, kind, encoding)
        segment.records.add(record)
        return record

    def sync(self) -> None:
        """Wait until all that was appended is on the disk."""
        if self._segments:
            sync(self._segments[max(self._segments)].file)

    def read(self, record: Record) -> bytes:
        """Return a record's payload."""
        segment = self._segments[record.segment]
        return os.pread(segment.file, record.size, record.at + _RECORD.size)

    def done(self, record: Record, part: bytes, *, is_last: bool) -> None:
        """Note that a part of a record was sent; a segment is deleted with its last record."""
        segment = self._segments[record.segment]
        # On a full disk it is not noted, and sent again after a restart.
        with suppress(OSError):
            os.write(segment.done_file, _DONE.pack(record.at, part))
        if is_last:
            segment.records.discard(record)
            self._clean()

    def close(self) -> None:
        """Close the files."""
        for segment in self._segments.values():
            os.close(segment.file)
            os.close(segment.done_file)
        self._segments.clear()

    def _clean(self) -> None:
        # The newest stays: it knows the position.
        for number in sorted(self._segments)[:-1]:
            segment = self._segments[number]
            if segment.records:
                continue
            del self._segments[number]
            os.close(segment.file)
            os.close(segment.done_file)
            for path in self._paths(number):
                path.unlink(missing_ok=True)

    def _paths(self, number: int) -> tuple[Path, Path]:
        name = f"{number:012d}"
        return self._folder / f"{name}.held", self._folder / f"{name}.done"

    def _current(self) -> _Segment:
        newest = max(self._segments, default=0)
        if newest and self._segments[newest].size < self._segment_size:
            return self._segments[newest]
        if newest:
            sync(self._segments[newest].file)
        segment = self._opened(newest + 1)
        try:
            _write_all(segment.file, _HEAD.pack(_MAGIC, *self.position), 0)
        except OSError:
            os.close(segment.file)
            os.close(segment.done_file)
            raise
        segment.size = _HEAD.size
        self._segments[segment.number] = segment
        sync_folder(self._folder)
        self._clean()
        return segment

    def _opened(self, number: int) -> _Segment:
        held, done = self._paths(number)
        file = os.open(held, os.O_RDWR | os.O_CREAT, 0o600)
        done_file = os.open(done, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        return _Segment(number, file, done_file, os.fstat(file).st_size)

    def _open(self, number: int) -> None:
        """Read a segment back, and cut away what a crash left at its end."""
        segment = self._opened(number)
        head = os.pread(segment.file, _HEAD.size, 0)
        if len(head) == _HEAD.size and head.startswith(_MAGIC):
            _, first, second = _HEAD.unpack(head)
            self.position = max(self.position, Position(first, second))
        else:
            _write_all(segment.file, _HEAD.pack(_MAGIC, *self.position), 0)
        at = _HEAD.size
        parts = _parts_done(segment.done_file)
        for found, position in _scan(segment):
            at = found.at + _RECORD.size + found.size
            found.done = frozenset(parts.get(found.at, ()))
            segment.records.add(found)
            self.position = max(self.position, position)
        os.ftruncate(segment.file, at)
        segment.size = at
        self._segments[number] = segment


def _scan(segment: _Segment) -> Iterator[tuple[Record, Position]]:
    at = _HEAD.size
    while True:
        head = os.pread(segment.file, _RECORD.size, at)
        if len(head) < _RECORD.size:
            return
        size, checksum, received_ns, first, second, kind, encoding = _RECORD.unpack(head)
        payload = os.pread(segment.file, size, at + _RECORD.size)
        fixed = (received_ns, first, second, kind, encoding)
        expected = zlib.crc32(payload, zlib.crc32(_RECORD.pack(size, 0, *fixed)))
        if len(payload) < size or checksum != expected:
            return
        record = Record(segment.number, at, size, received_ns, KINDS[kind], ENCODINGS[encoding])
        yield record, Position(first, second)
        at += _RECORD.size + size


def _parts_done(file: int) -> dict[int, set[bytes]]:
    size = os.fstat(file).st_size // _DONE.size * _DONE.size
    os.ftruncate(file, size)
    found: dict[int, set[bytes]] = {}
    for at, part in _DONE.iter_unpack(os.pread(file, size, 0)):
        found.setdefault(at, set()).add(part)
    return found


def _write_all(file: int, data: bytes, at: int) -> None:
    view: Sequence[int] = memoryview(data)
    while len(view):
        written = os.pwrite(file, view, at)  # type: ignore[arg-type]
        at += written
        view = view[written:]
