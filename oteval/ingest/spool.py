"""Requests on disk until they are stored: appended by one process, read by another.

A spool is a folder of segments, numbered files to which records are only ever appended. What
`Spool.append` promises has been synced when it comes true, in a file that its path leads to: one
fdatasync and one look at the path serve all that came while the ones before ran. A reader follows
by its position, which it keeps with what it stored; segments before it may then be removed. A
record that a crash cut, or a disk changed, is told by its CRC; what comes after it is still read.

No compression, no format of the payload and no retries here; spans sent twice are spooled twice.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

from .. import files
from ..errors import OtevalError
from .backlog import Backlog
from .spool_folder import OpenSegment, SpoolFolder, SpoolMoved
from .spool_segments import (
    HEADER,
    Encoding,
    Kind,
    Position,
    Record,
    packed_head,
    remove_before,
    segment_path,
    segments,
)

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

_log = logging.getLogger(__name__)

SEGMENT = 64 << 20
QUOTA = 4 << 30
# Left free on the disk, so that the database can take in what is spooled, which frees the rest.
RESERVE = 64 << 20
_GROUP = 32 << 20
_BUFFERS = 512
_LOOK_EVERY = 0.1
# For so long after it refused one, a spool counts as refusing.
_REFUSING = 2.0
# Seconds between two looks at the files while nothing is appended, and until a segment that is
# gone counts as lost: until then, the reader may have stored and removed it.
_INSPECT_EVERY = 0.5
_LOST_AFTER = 2.5


class SpoolFull(OtevalError):
    """No record can be taken now; the message says why. Trying again later is right."""


class _Waiting(NamedTuple):
    head: bytes
    payload: bytes
    done: Future[None]


class Spool:
    """The appending side; one process has it, and any of its threads may append.

    Attributes:
        backlog: Since when acknowledged requests wait to be stored.
        cut: How many bytes at the end of the last segment were no whole record at the start.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        quota: int = QUOTA,
        reserve: int = RESERVE,
        write: Callable[[int, Sequence[bytes]], int] = os.writev,
        sync: Callable[[int], None] = files.sync,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open a spool, and make its folder when it is not there.

        Args:
            folder: Where its segments are.
            quota: How many bytes they may have together.
            reserve: How many bytes it leaves free on the disk.
            write: Writes buffers to a file descriptor, and returns how many bytes.
            sync: Makes what was written to a file descriptor durable.
            clock: Seconds that only ever grow.

        Raises:
            SpoolFull: Another process appends to it, or its folder cannot be written.
        """
        self.backlog = Backlog(clock)
        self._folder = Path(folder)
        self._quota, self._reserve = quota, reserve
        self._segment_bytes = min(SEGMENT, quota // 4)
        self._write, self._sync, self._clock = write, sync, clock
        self._lock = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._closing = False
        self._refused = (-_REFUSING, "")
        self._failed = self._displaced = ""
        self._inspected = clock()
        self._gone: dict[int, float] = {}
        self._stored = Position()
        try:
            self._files = SpoolFolder(self._folder, sync)
        except OSError as error:
            raise SpoolFull(f"{folder}: cannot be used: {error.strerror}") from error
        self.cut = self._files.cut
        if known := segments(self._folder):
            self.backlog.acknowledge(Position(*next(reversed(known.items()))))
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

    @property
    def problem(self) -> str:
        """What the disk last failed with, or why its files are not in place; "" without either."""
        return self._displaced or self._failed

    def oldest(self) -> float:
        """Return for how many seconds the oldest acknowledged request waits to be stored."""
        return self.backlog.oldest(self._stored)

    def stored(self, position: Position) -> None:
        """Note the position up to which the other process has stored the spool."""
        with self._lock:
            self._stored = max(self._stored, position)

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
            return self._full(0) or (reason if self._clock() - when < _REFUSING else "")

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
        self._files.close()

    def _full(self, size: int) -> str:
        reason = self._reason(size)
        if reason:
            self._refused = (self._clock(), reason)
        return reason

    def _reason(self, size: int) -> str:
        if self._closing:
            return "the server stops"
        if self._displaced:
            return self._displaced
        self._look()
        if self._bytes + self._waiting_bytes + size > self._quota:
            return "the spool is at its quota"
        if self._free - self._waiting_bytes - size < self._reserve:
            return "the disk is full"
        return ""

    def _look(self) -> None:
        """See what the other process has removed; not more often than it can matter."""
        now = self._clock()
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
                if not self._waiting and not self._closing:
                    self._lock.wait(_INSPECT_EVERY)
                group, is_closing = self._take(), self._closing
            if group:
                self._settle(group)
            elif is_closing:
                return
            if not group or self._displaced or self._clock() - self._inspected > _INSPECT_EVERY:
                self._inspect()

    def _settle(self, group: Sequence[_Waiting]) -> None:
        """Make some records durable, and say so, or why they are not."""
        error: OSError | None = None
        try:
            self._append(group)
        except SpoolMoved as found:
            error = found
            self._displaced = str(found.strerror)
        except OSError as found:
            error = found
            if not self._failed:
                _log.error("requests are refused: %s", found.strerror or found)
        size = sum(HEADER + len(one.payload) for one in group)
        with self._lock:
            self._waiting_bytes -= size
            self._bytes += 0 if error else size
            self._looked = -1.0 if error else self._looked
        self._failed = "" if error is None else error.strerror or str(error)
        for one in group:
            if error is None:
                one.done.set_result(None)
            else:
                one.done.set_exception(SpoolFull(f"the spool: {self._failed}"))

    def _inspect(self) -> None:
        """Look whether all files are in place, and bring back those that were deleted."""
        now = self._inspected = self._clock()
        files = self._files
        try:
            files.stored(self._stored.segment)
            if self._displaced or not self._is_in_place():
                self._restore()
            # One that the other process has stored and removed is gone too; of that we hear soon.
            missing = files.missing()
            self._gone = {number: self._gone.get(number, now) for number in missing}
            if any(now - since > _LOST_AFTER for since in self._gone.values()):
                self._restore()
        except OSError as error:
            reason = error.strerror or str(error)
            if reason != self._displaced:
                _log.error("nothing is acknowledged: %s", reason)
            self._displaced = reason
            return
        if self._displaced:
            _log.info("the spool's files are in place again: requests are taken")
        self._displaced = ""

    def _is_in_place(self) -> bool:
        try:
            self._files.verify()
        except SpoolMoved:
            return False
        return True

    def _restore(self) -> None:
        restored = self._files.restore()
        if restored:
            _log.error(
                "%s: %d deleted segments were written again, with all they held",
                *(self._folder, len(restored)),
            )

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
        segment = self._segment()
        buffers = [part for one in group for part in (one.head, one.payload) if part]
        size = sum(map(len, buffers))
        try:
            for start in range(0, len(buffers), _BUFFERS):
                self._write_all(segment.fd, buffers[start : start + _BUFFERS])
            self._sync(segment.fd)
            self._files.verify()
            if os.fstat(segment.fd).st_size < segment.end + size:
                raise OSError(0, f"{segment_path(self._folder, segment.number)} was cut")
        except OSError:
            self._files.give_up()
            raise
        segment.end += size
        self.backlog.acknowledge(Position(segment.number, segment.end))

    def _segment(self) -> OpenSegment:
        segment = self._files.current
        if segment is None or segment.end >= self._segment_bytes:
            self._files.stored(self._stored.segment)
            return self._files.begin(self._write_all)
        return segment

    def _write_all(self, fd: int, buffers: Sequence[bytes]) -> None:
        left = list(buffers)
        while left:
            written = self._write(fd, left)
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = left[0][written:]
