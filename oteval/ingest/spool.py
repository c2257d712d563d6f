"""Requests on disk until they are stored: appended by one process, read by another.

A spool is a folder of segments, numbered files to which records are only ever appended. What
`Spool.append` promises has been synced when it comes true: one fdatasync serves all that came
while the one before it ran. A reader follows by its position, which it keeps with what it stored;
segments before it may then be removed. A record that a crash cut, or a disk changed, is told
by its CRC; what comes after it is still read.

No compression, no format of the payload and no retries here; spans sent twice are spooled twice.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Literal, NamedTuple

from .. import machine
from ..errors import OtevalError

__all__ = [
    "Encoding",
    "Kind",
    "Position",
    "Record",
    "Spool",
    "SpoolFull",
    "remove_before",
    "segments",
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

SEGMENT = 64 << 20
QUOTA = 4 << 30
# Left free on the disk, so that the database can take in what is spooled, which frees the rest.
RESERVE = 64 << 20
_GROUP = 32 << 20
_BUFFERS = 512
_LOOK_EVERY = 0.1
# For so long after it refused one, a spool counts as refusing.
_REFUSING = 2.0


class SpoolFull(OtevalError):
    """No record can be taken now; the message says why. Trying again later is right."""


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


class _Waiting(NamedTuple):
    head: bytes
    payload: bytes
    done: Future[None]


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


def remove_before(folder: Path, segment: int) -> int:
    """Remove the segments before one, and return how many there were."""
    old = [number for number in segments(folder) if number < segment]
    for number in old:
        segment_path(folder, number).unlink(missing_ok=True)
    return len(old)


class Spool:
    """The appending side; one process has it, and any of its threads may append.

    Attributes:
        problem: What the disk last failed with, "" while it works.
        cut: How many bytes at the end of the last segment were no whole record at the start.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        quota: int = QUOTA,
        reserve: int = RESERVE,
        write: Callable[[int, Sequence[bytes]], int] = os.writev,
        sync: Callable[[int], None] = machine.sync,
    ) -> None:
        """Open a spool, and make its folder when it is not there.

        Args:
            folder: Where its segments are.
            quota: How many bytes they may have together.
            reserve: How many bytes it leaves free on the disk.
            write: Writes buffers to a file descriptor, and returns how many bytes.
            sync: Makes what was written to a file descriptor durable.

        Raises:
            SpoolFull: Another process appends to it, or its folder cannot be written.
        """
        self.problem = ""
        self._folder = Path(folder)
        self._quota, self._reserve = quota, reserve
        self._segment_bytes = min(SEGMENT, quota // 4)
        self._write, self._sync = write, sync
        self._lock = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._closing = False
        self._refused = (-_REFUSING, "")
        self._fd = -1
        self._number, self._end = 0, 0
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._guard = _exclusive(self._folder)
            self.cut = _cut_tail(self._folder)
        except OSError as error:
            raise SpoolFull(f"{folder}: cannot be used: {error.strerror}") from error
        self._looked = -1.0
        self._bytes = 0
        self._free = 0
        self._look()
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
        self._thread.start()

    @property
    def quota(self) -> int:
        """How many bytes the segments may have together."""
        return self._quota

    def size(self) -> int:
        """Return how many bytes are spooled, those that wait to be written among them."""
        with self._lock:
            self._look()
            return self._bytes + self._waiting_bytes

    def full(self, size: int = 0) -> str:
        """Return why a record of so many bytes could not be taken, "" when it could."""
        with self._lock:
            return self._full(size)

    def refusing(self) -> str:
        """Return why records are refused, or were a moment ago; "" while they are taken."""
        with self._lock:
            when, reason = self._refused
            return self._full(0) or (reason if time.monotonic() - when < _REFUSING else "")

    def append(self, record: Record) -> Future[None]:
        """Take a record; its end is not looked at.

        Returns:
            What is done when the record is durable, or has the error that kept it from it.

        Raises:
            SpoolFull: The quota, the disk, or this spool's life is at its end.
        """
        waiting = _Waiting(packed_head(record), record.payload, Future())
        size = HEADER + len(record.payload)
        with self._lock:
            if reason := self._full(size):
                raise SpoolFull(reason)
            self._waiting.append(waiting)
            self._waiting_bytes += size
            self._lock.notify()
        return waiting.done

    def close(self) -> None:
        """Write what waits, and let another process have the spool."""
        with self._lock:
            self._closing = True
            self._lock.notify()
        self._thread.join()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        os.close(self._guard)

    def _full(self, size: int) -> str:
        reason = self._reason(size)
        if reason:
            self._refused = (time.monotonic(), reason)
        return reason

    def _reason(self, size: int) -> str:
        if self._closing:
            return "the server stops"
        self._look()
        if self._bytes + self._waiting_bytes + size > self._quota:
            return "the spool is at its quota"
        if self._free - self._waiting_bytes - size < self._reserve:
            return "the disk is full"
        return ""

    def _look(self) -> None:
        """See what the other process has removed; not more often than it can matter."""
        now = time.monotonic()
        if now - self._looked < _LOOK_EVERY and self._looked >= 0:
            return
        self._looked = now
        self._bytes = sum(segments(self._folder).values())
        try:
            disk = os.statvfs(self._folder)
        except OSError:
            return
        self._free = disk.f_bavail * disk.f_frsize

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._waiting and not self._closing:
                    self._lock.wait()
                group = self._take()
            if not group:
                return
            error: OSError | None = None
            try:
                self._append(group)
            except OSError as found:
                error = found
            size = sum(HEADER + len(one.payload) for one in group)
            with self._lock:
                self._waiting_bytes -= size
                self._bytes += 0 if error else size
                self._looked = -1.0 if error else self._looked
            self.problem = "" if error is None else error.strerror or str(error)
            for one in group:
                if error is None:
                    one.done.set_result(None)
                else:
                    one.done.set_exception(SpoolFull(f"the spool: {self.problem}"))

    def _take(self) -> list[_Waiting]:
        """Take what waits, but no more than is written in a moment."""
        size = count = 0
        for count, one in enumerate(self._waiting, start=1):  # noqa: B007  counted to the break
            size += HEADER + len(one.payload)
            if size >= _GROUP:
                break
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    def _append(self, group: Sequence[_Waiting]) -> None:
        if self._fd < 0 or self._end >= self._segment_bytes:
            self._begin_segment()
        buffers = [part for one in group for part in (one.head, one.payload) if part]
        size = sum(map(len, buffers))
        try:
            for start in range(0, len(buffers), _BUFFERS):
                self._write_all(self._fd, buffers[start : start + _BUFFERS])
            self._sync(self._fd)
        except OSError:
            self._give_up_segment()
            raise
        self._end += size

    def _write_all(self, fd: int, buffers: Sequence[bytes]) -> None:
        left = list(buffers)
        while left:
            written = self._write(fd, left)
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = left[0][written:]

    def _begin_segment(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        # Times are greater than all numbers before, also when the folder was emptied meanwhile.
        number = max([time.time_ns(), self._number + 1, *(n + 1 for n in segments(self._folder))])
        path = segment_path(self._folder, number)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        try:
            self._write_all(fd, [MAGIC])
            self._sync(fd)
            _sync_folder(self._folder)
        except OSError:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        self._fd, self._number, self._end = fd, number, len(MAGIC)

    def _give_up_segment(self) -> None:
        """Leave a segment that could not be written: after a failed sync nothing in it is sure."""
        fd, self._fd = self._fd, -1
        try:
            os.ftruncate(fd, self._end)
        except OSError:
            pass
        finally:
            os.close(fd)


def _exclusive(folder: Path) -> int:
    """Return a descriptor that no other process has for the folder."""
    guard = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(guard)
        raise OSError(0, "another oteval serve uses it; stop that, or give another --db") from None
    return guard


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _cut_tail(folder: Path) -> int:
    """Cut what is no whole record off the end of the last segment, and return its size."""
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
