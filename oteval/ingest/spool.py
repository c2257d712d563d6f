"""The spool: received requests on disk until they are stored.

The listening process appends every request to a durable log before it acknowledges it, and the
storage process reads that log. Requests that arrive while the disk is busy are written and synced
together. Once the reader has stored a segment's requests, it removes the segment.

The spool does not compress, parse or deduplicate requests.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

from ..base import files
from ..base.durable_log import (
    HEADER_BYTES,
    Encoding,
    Kind,
    LogWriter,
    Position,
    Record,
    SegmentMoved,
    pack_header,
    segment_sizes,
)
from ..base.errors import OtevalError

__all__ = ["QUOTA", "Backlog", "Encoding", "Kind", "Position", "Record", "Spool", "SpoolFull"]

_log = logging.getLogger(__name__)

QUOTA = 4 << 30
# Disk space to leave for the database. Storing the spooled requests then frees more space.
RESERVE = 64 << 20
_SEGMENT_BYTES = 64 << 20
# The most bytes that are written and synced together.
_GROUP_BYTES = 32 << 20
# Seconds between two checks of the size of the folder and the free space.
_LOOK_EVERY = 0.1
# A spool counts as refusing for this time (s) after it refused a request.
_REFUSING = 2.0
# Seconds between two checks of the files while nothing is appended, and seconds until a missing
# segment counts as lost. Before that, the reader may have stored and removed it.
_INSPECT_EVERY = 0.5
_LOST_AFTER = 2.5
# Acknowledgements closer together than this (s) share an entry of the backlog. The backlog has at
# most this many entries.
_BACKLOG_STEP = 0.25
_MOST_BACKLOG = 1024


class SpoolFull(OtevalError):
    """A request cannot be spooled now; the message contains the reason. The sender may retry."""


class Backlog:
    """The age of acknowledged requests that are not stored yet.

    Acknowledgements within a short time share an entry, which has the time of the first. So ages
    may be too high by up to this time, never too low.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._step = _BACKLOG_STEP
        self._lock = threading.Lock()
        self._entries: deque[tuple[float, Position]] = deque()

    def acknowledge(self, end: Position) -> None:
        """Note that everything up to a position is durable from now on."""
        now = self._clock()
        with self._lock:
            entries = self._entries
            if entries and now - entries[-1][0] < self._step:
                entries[-1] = (entries[-1][0], end)
                return
            entries.append((now, end))
            if len(entries) > _MOST_BACKLOG:
                # Nothing was stored for long: merge pairs, and use longer steps from now on.
                self._step *= 2
                pairs = zip(list(entries)[::2], list(entries)[1::2], strict=False)
                self._entries = deque((first[0], second[1]) for first, second in pairs)
                if len(entries) % 2:
                    self._entries.append(entries[-1])

    def oldest(self, stored: Position) -> float:
        """The age in seconds of the oldest request that is not stored, 0 if there is none.

        Args:
            stored: The position after the stored part of the spool.
        """
        with self._lock:
            while self._entries and self._entries[0][1] <= stored:
                self._entries.popleft()
            if not self._entries:
                self._step = _BACKLOG_STEP
                return 0.0
            return max(0.0, self._clock() - self._entries[0][0])


class _Waiting(NamedTuple):
    """A record that is not written yet, and the future that completes when it is durable."""

    header: bytes
    payload: bytes
    done: Future[None]

    @property
    def size(self) -> int:
        return HEADER_BYTES + len(self.payload)


class Spool:
    """The appending side of the spool. One process has it; any thread of the process may append.

    Attributes:
        backlog: The age of acknowledged requests that are not stored yet.
        cut: Bytes of an incomplete record that were truncated when the spool was opened.
        quota: The most bytes of all segments together.
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
        """Open a spool, and create its folder if it is missing.

        Args:
            folder: The folder of its segments.
            quota: The most bytes of all segments together.
            reserve: Bytes to leave free on the disk.
            write: Writes buffers to a file descriptor and returns the number of bytes written.
            sync: Makes the content of a file descriptor durable.
            clock: Monotonic seconds.

        Raises:
            SpoolFull: Another process appends to it, or its folder cannot be written.
        """
        self.backlog = Backlog(clock)
        self._folder = Path(folder)
        self.quota, self._reserve = quota, reserve
        self._clock = clock
        self._lock = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._closing = False
        self._refused = (-_REFUSING, "")
        self._failed = self._displaced = ""
        self._inspected = clock()
        self._gone: dict[int, float] = {}
        self._stored = Position()
        segment_bytes = min(_SEGMENT_BYTES, quota // 4)
        try:
            self._log = LogWriter(self._folder, segment_bytes=segment_bytes, write=write, sync=sync)
        except OSError as error:
            raise SpoolFull(f"{folder}: cannot be used: {error.strerror}") from error
        self.cut = self._log.cut
        if sizes := segment_sizes(self._folder):
            self.backlog.acknowledge(Position(*next(reversed(sizes.items()))))
        self._looked = -1.0
        self._bytes = 0
        self._free = 0
        self._look()
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str:
        """The disk's last error, or why the files are not in place; "" without either."""
        return self._displaced or self._failed

    def oldest(self) -> float:
        """The age in seconds of the oldest acknowledged request that is not stored."""
        return self.backlog.oldest(self._stored)

    def stored(self, position: Position) -> None:
        """Note how far, by position, the storage process has stored the spool."""
        with self._lock:
            self._stored = max(self._stored, position)

    def size(self) -> int:
        """The bytes of all spooled requests, including requests not written yet."""
        with self._lock:
            self._look()
            return self._bytes + self._waiting_bytes

    def full(self, size: int = 0) -> str:
        """Why a request of this many bytes would be refused, or ""."""
        with self._lock:
            return self._full(size)

    def refusing(self) -> str:
        """Why requests are refused, or were refused a moment ago; else ""."""
        with self._lock:
            when, reason = self._refused
            return self._full(0) or (reason if self._clock() - when < _REFUSING else "")

    def append(self, record: Record) -> Future[None]:
        """Queue a record to be written. Its `end` is ignored.

        Returns:
            A future that completes when the record is durable, or with the error that prevents it.

        Raises:
            SpoolFull: The quota is reached, the disk is full, or the spool is closing.
        """
        waiting = _Waiting(pack_header(record), record.payload, Future())
        with self._lock:
            if reason := self._full(waiting.size):
                raise SpoolFull(reason)
            self._waiting.append(waiting)
            self._waiting_bytes += waiting.size
            self._lock.notify()
        return waiting.done

    def close(self) -> None:
        """Write the queued records, and release the folder."""
        with self._lock:
            self._closing = True
            self._lock.notify()
        self._thread.join()
        self._log.close()

    def _full(self, size: int) -> str:
        reason = self._refusal(size)
        if reason:
            self._refused = (self._clock(), reason)
        return reason

    def _refusal(self, size: int) -> str:
        if self._closing:
            return "the server stops"
        if self._displaced:
            return self._displaced
        self._look()
        if self._bytes + self._waiting_bytes + size > self.quota:
            return "the spool is at its quota"
        if self._free - self._waiting_bytes - size < self._reserve:
            return "the disk is full"
        return ""

    def _look(self) -> None:
        """Update the folder's size and the free space, unless they were updated a moment ago."""
        now = self._clock()
        if now - self._looked < _LOOK_EVERY and self._looked >= 0:
            return
        self._looked = now
        self._bytes = sum(segment_sizes(self._folder).values())
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
                group, is_closing = self._next_group(), self._closing
            if group:
                self._write_group(group)
            elif is_closing:
                return
            if not group or self._displaced or self._clock() - self._inspected > _INSPECT_EVERY:
                self._inspect()

    def _next_group(self) -> list[_Waiting]:
        """Remove and return the records to be written together."""
        size = count = 0
        for count, request in enumerate(self._waiting, start=1):  # noqa: B007  counted to the break
            size += request.size
            if size >= _GROUP_BYTES:
                break
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    def _write_group(self, group: Sequence[_Waiting]) -> None:
        """Make records durable, and complete their futures."""
        error: OSError | None = None
        try:
            self._append(group)
        except SegmentMoved as found:
            error = found
            self._displaced = str(found.strerror)
        except OSError as found:
            error = found
            if not self._failed:
                _log.error("requests are refused: %s", found.strerror or found)
        size = sum(request.size for request in group)
        with self._lock:
            self._waiting_bytes -= size
            self._bytes += 0 if error else size
            self._looked = -1.0 if error else self._looked
        self._failed = "" if error is None else error.strerror or str(error)
        for request in group:
            if error is None:
                request.done.set_result(None)
            else:
                request.done.set_exception(SpoolFull(f"the spool: {self._failed}"))

    def _append(self, group: Sequence[_Waiting]) -> None:
        self._log.release_before(self._stored.segment)
        try:
            self._log.append([part for request in group for part in request[:2] if part])
            self._log.sync()
        except OSError:
            self._log.discard_unsynced()
            raise
        self.backlog.acknowledge(self._log.end)

    def _inspect(self) -> None:
        """Check that all files are in place, and restore deleted files."""
        now = self._inspected = self._clock()
        try:
            self._log.release_before(self._stored.segment)
            if self._displaced or not self._is_in_place():
                self._restore()
            # A segment that the reader stored and removed is missing too, until `stored` notes it.
            self._gone = {number: self._gone.get(number, now) for number in self._log.missing()}
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
            self._log.verify()
        except SegmentMoved:
            return False
        return True

    def _restore(self) -> None:
        restored = self._log.restore()
        if restored:
            _log.error(
                "%s: restored %d deleted segments with everything in them",
                *(self._folder, len(restored)),
            )
