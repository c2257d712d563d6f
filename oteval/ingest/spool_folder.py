"""The appender's side of a spool's folder: its lock, and its segments, which it keeps open.

An open file stays readable after its path is gone. So segments stay open until they are stored: one
whose file was deleted is written again from its descriptor, and one that was moved away is waited
for. Nothing may be acknowledged while `SpoolFolder.verify` raises.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .spool_segments import MAGIC, cut_tail, first_number, segment_path, segments

__all__ = ["OpenSegment", "SpoolFolder", "SpoolMoved"]

# At most so many descriptors are kept; 16 GB of segments of 64 MB.
_KEPT = 256
_COPIED = 1 << 20


class SpoolMoved(OSError):
    """The folder or a segment is not where its path says; the message says what to do."""


@dataclass
class OpenSegment:
    """A segment that this process has open.

    Attributes:
        number: Its number.
        fd: Its descriptor.
        end: The size in bytes up to which it is durable.
        identity: Device and inode.
        place: Its path.
    """

    number: int
    fd: int
    end: int
    identity: tuple[int, int]
    place: str

    @classmethod
    def of(cls, number: int, fd: int, path: Path) -> OpenSegment:
        """Return an open file as a segment, all of it durable."""
        found = os.fstat(fd)
        return cls(number, fd, found.st_size, (found.st_dev, found.st_ino), str(path))


class SpoolFolder:
    """A spool's folder, as the one process that appends has it.

    Attributes:
        path: The folder.
        current: The segment that is appended to, None before the first.
        cut: How many bytes at the end of the last segment were no whole record at the start.
    """

    def __init__(self, path: Path, sync: Callable[[int], None]) -> None:
        """Lock the folder, made when it is not there, and open what is in it.

        Raises:
            OSError: Another process appends to it, or it cannot be written.
        """
        self.path = path
        self.current: OpenSegment | None = None
        self._sync = sync
        self._kept: dict[int, OpenSegment] = {}
        self._newest = 0
        self._stored = 0
        self._guard = self._directory = -1
        self._enter()
        self.cut = cut_tail(path)
        for number in list(segments(path))[:_KEPT]:
            place = segment_path(path, number)
            self._keep(OpenSegment.of(number, os.open(place, _READ), place))

    def close(self) -> None:
        """Close all files, and let another process have the folder."""
        for number in list(self._kept):
            self._release(number)
        self.current = None
        for fd in (self._guard, self._directory):
            os.close(fd)

    def begin(self, write: Callable[[int, Sequence[bytes]], None]) -> OpenSegment:
        """Begin the next segment.

        Args:
            write: Writes all of some buffers to a descriptor.

        Raises:
            OSError: It cannot be made durable; nothing of it stays.
        """
        self.current = None
        self.verify()
        known = max([self._newest, self._stored, *segments(self.path)])
        number = known + 1 if known else first_number(time.time_ns())
        path = segment_path(self.path, number)
        fd = os.open(path, _APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            write(fd, [MAGIC])
            self._sync(fd)
            os.fsync(self._directory)
        except OSError:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        self._newest = number
        self.current = self._keep(OpenSegment.of(number, fd, path))
        return self.current

    def give_up(self) -> None:
        """Leave the current segment: after a failed write nothing past its end is sure."""
        segment, self.current = self.current, None
        if segment is not None:
            with suppress(OSError):
                if os.fstat(segment.fd).st_size > segment.end:
                    os.ftruncate(segment.fd, segment.end)

    def stored(self, segment: int) -> None:
        """Note that all before a segment is stored, so that its files need not be kept."""
        self._stored = max(self._stored, segment)
        for number in [number for number in self._kept if number < segment]:
            if self.current is None or number != self.current.number:
                self._release(number)

    def verify(self) -> None:
        """Check that paths lead to what is open.

        Raises:
            SpoolMoved: They do not.
            OSError: That cannot be told.
        """
        segment = self.current
        if segment is None:
            if not _leads_to(self.path, self._identity):
                raise SpoolMoved(0, self._moved(self.path))
            return
        # For each group of requests: a path as text is looked at in a tenth of the time.
        if not _leads_to(segment.place, segment.identity):
            raise SpoolMoved(0, self._moved(segment_path(self.path, segment.number)))

    def missing(self) -> list[int]:
        """Return the segments that are open, not stored, and not where their paths say."""
        return [
            number
            for number, segment in self._kept.items()
            if number >= self._stored
            and not _leads_to(segment_path(self.path, number), segment.identity)
        ]

    def restore(self) -> list[int]:
        """Write deleted segments again, and return their numbers.

        Raises:
            SpoolMoved: One was not deleted but moved away: it must come back.
            OSError: One cannot be written.
        """
        lost = [self._kept[number] for number in self.missing()]
        moved = [segment for segment in lost if os.fstat(segment.fd).st_nlink]
        if moved:
            raise SpoolMoved(0, self._moved(segment_path(self.path, moved[0].number)))
        if not _leads_to(self.path, self._identity):
            if not lost and os.fstat(self._directory).st_nlink:
                raise SpoolMoved(0, self._moved(self.path))
            self._enter()
        for segment in lost:
            self._rewrite(segment)
        return [segment.number for segment in lost]

    def _enter(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        guard = _exclusive(self.path)
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for fd in (self._guard, self._directory):
            if fd >= 0:
                os.close(fd)
        self._guard, self._directory = guard, directory
        found = os.fstat(directory)
        self._identity = (found.st_dev, found.st_ino)

    def _keep(self, segment: OpenSegment) -> OpenSegment:
        self._kept[segment.number] = segment
        self._newest = max(self._newest, segment.number)
        if len(self._kept) > _KEPT:
            self._release(next(iter(self._kept)))
        return segment

    def _release(self, number: int) -> None:
        os.close(self._kept.pop(number).fd)

    def _rewrite(self, segment: OpenSegment) -> None:
        """Write a deleted segment again, whole or not at all."""
        path = segment_path(self.path, segment.number)
        beside = path.with_suffix(".partial")
        beside.unlink(missing_ok=True)
        fd = os.open(beside, _APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            for at in range(0, segment.end, _COPIED):
                data = memoryview(os.pread(segment.fd, min(_COPIED, segment.end - at), at))
                while len(data):
                    data = data[os.write(fd, data) :]
            self._sync(fd)
            beside.replace(path)
            os.fsync(self._directory)
        except OSError:
            os.close(fd)
            beside.unlink(missing_ok=True)
            raise
        os.close(segment.fd)
        written = OpenSegment.of(segment.number, fd, path)
        segment.fd, segment.identity = written.fd, written.identity

    def _moved(self, path: Path) -> str:
        return (
            f"{path} was moved, deleted or replaced; put it back, or start the server again to go "
            "on without it"
        )


_READ = os.O_RDONLY | os.O_CLOEXEC
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


def _leads_to(path: Path | str, identity: tuple[int, int]) -> bool:
    try:
        found = os.stat(path)  # noqa: PTH116  without making a Path
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (found.st_dev, found.st_ino) == identity


def _exclusive(folder: Path) -> int:
    """Return a descriptor that no other process has for the folder."""
    guard = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(guard)
        raise OSError(0, "another oteval serve uses it; stop that, or give another --db") from None
    return guard
