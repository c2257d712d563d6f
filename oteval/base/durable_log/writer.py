"""The appending side of a log: its lock, its current segment, and repair of deleted segments.

An open file stays readable after it was deleted. The writer therefore keeps segments open until
they are no longer needed: it rewrites a deleted segment from its descriptor, and refuses to
continue while a segment or the folder is not at its path.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .. import files
from .segments import (
    MAGIC,
    Position,
    RecordHeader,
    cut_tail,
    first_number,
    scan,
    segment_path,
    segment_sizes,
)

__all__ = ["LogWriter", "SegmentMoved"]

# Descriptors kept open at most; enough for 16 GB in segments of 64 MB.
_MOST_OPEN = 256
_COPY_BYTES = 1 << 20
# Buffers per writev(2); Linux takes 1024 at most.
_MOST_BUFFERS = 512

_READ = os.O_RDONLY | os.O_CLOEXEC
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


class SegmentMoved(OSError):
    """The folder or a segment is not at its path; the message has the remedy."""


@dataclass
class _OpenSegment:
    """A segment that this process has open.

    Attributes:
        number: The segment's number.
        fd: Its file descriptor.
        end: Size in bytes up to the last complete append.
        durable: Size in bytes up to which it was synced.
        identity: Device and inode of the file.
        place: The path as text, which is faster to look up than a `Path`.
    """

    number: int
    fd: int
    end: int
    durable: int
    identity: tuple[int, int]
    place: str

    @classmethod
    def of(cls, number: int, fd: int, path: Path) -> _OpenSegment:
        """Describe an open file that is durable as a whole."""
        status = os.fstat(fd)
        identity = (status.st_dev, status.st_ino)
        return cls(number, fd, status.st_size, status.st_size, identity, str(path))


class LogWriter:
    """Appends records to a log. Not thread-safe, but `sync` may run during `append` and `read`.

    Attributes:
        folder: The log's folder.
        cut: Bytes of an incomplete record that were truncated at the end of the last segment.
    """

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int,
        write: Callable[[int, Sequence[bytes]], int] = os.writev,
        sync: Callable[[int], None] = files.sync,
    ) -> None:
        """Lock the folder, creating it if it is missing, and open its segments.

        Args:
            folder: The log's folder.
            segment_bytes: Size in bytes at which a new segment begins.
            write: Writes buffers to a file descriptor and returns the number of bytes written.
            sync: Makes the content of a file descriptor durable.

        Raises:
            OSError: Another process appends to the log, or the folder cannot be written.
        """
        self.folder = folder
        self._segment_bytes = segment_bytes
        self._write, self._sync = write, sync
        self._current: _OpenSegment | None = None
        self._open: dict[int, _OpenSegment] = {}
        self._newest = 0
        self._needed_from = 0
        self._lock = ExitStack()
        self._directory = -1
        self._open_folder()
        self.cut = cut_tail(folder)
        for number in list(segment_sizes(folder))[:_MOST_OPEN]:
            path = segment_path(folder, number)
            self._keep(_OpenSegment.of(number, os.open(path, _READ), path))

    @property
    def end(self) -> Position:
        """The position after the last record appended by this writer."""
        segment = self._current
        return Position(segment.number, segment.end) if segment else Position()

    def close(self) -> None:
        """Close all files and release the lock."""
        for number in list(self._open):
            self._release(number)
        self._current = None
        os.close(self._directory)
        self._lock.close()

    def append(self, buffers: Sequence[bytes]) -> Position:
        """Append records, as the buffers of their headers and payloads; durable after `sync`.

        Returns:
            The position of the first record.

        Raises:
            OSError: The records cannot be written; nothing of them stays.
        """
        segment = self._current
        if segment is None or segment.end >= self._segment_bytes:
            segment = self._begin_segment()
        start = segment.end
        try:
            for first in range(0, len(buffers), _MOST_BUFFERS):
                self._write_all(segment.fd, buffers[first : first + _MOST_BUFFERS])
        except OSError:
            try:
                os.ftruncate(segment.fd, start)
            except OSError:
                self._current = None
            raise
        segment.end += sum(map(len, buffers))
        return Position(segment.number, start)

    def sync(self) -> None:
        """Wait until everything appended is durable, in the file at the segment's path.

        Raises:
            SegmentMoved: The file was moved or deleted; `restore` may bring it back.
            OSError: The disk failed, or the file was truncated.
        """
        segment = self._current
        if segment is None or segment.durable == segment.end:
            return
        end = segment.end
        self._sync(segment.fd)
        self.verify()
        if os.fstat(segment.fd).st_size < end:
            raise OSError(0, f"{segment_path(self.folder, segment.number)} was cut")
        segment.durable = max(segment.durable, end)

    def discard_unsynced(self) -> None:
        """Drop the records appended since the last sync, and leave the segment.

        Call this after a failed sync, if the records do not count as appended.
        """
        segment, self._current = self._current, None
        if segment is not None:
            segment.end = segment.durable
            with suppress(OSError):
                if os.fstat(segment.fd).st_size > segment.end:
                    os.ftruncate(segment.fd, segment.end)

    def read(self, position: Position, size: int) -> bytes:
        """Return bytes of the log.

        Raises:
            OSError: They cannot be read.
        """
        with self._descriptor(position.segment) as fd:
            return os.pread(fd, size, position.offset)

    def scan(self, number: int) -> Iterator[tuple[int, RecordHeader, bytes]]:
        """Scan a segment of this log; see `segments.scan`."""
        with self._descriptor(number) as fd:
            yield from scan(fd)

    def remove(self, number: int) -> None:
        """Remove a segment whose records are no longer needed."""
        if self._current is not None and self._current.number == number:
            self._current = None
        if number in self._open:
            self._release(number)
        segment_path(self.folder, number).unlink(missing_ok=True)

    def release_before(self, segment: int) -> None:
        """Stop guarding the segments before one: their records are stored elsewhere."""
        self._needed_from = max(self._needed_from, segment)
        for number in [number for number in self._open if number < segment]:
            if self._current is None or number != self._current.number:
                self._release(number)

    def verify(self) -> None:
        """Check that the paths still lead to the open files.

        Raises:
            SegmentMoved: A path leads to another file, or to none.
            OSError: The paths cannot be checked.
        """
        segment = self._current
        if segment is None:
            if not _leads_to(self.folder, self._identity):
                raise _moved(self.folder)
        elif not _leads_to(segment.place, segment.identity):
            raise _moved(segment_path(self.folder, segment.number))

    def missing(self) -> list[int]:
        """The guarded segments that are not at their paths."""
        return [
            number
            for number, segment in self._open.items()
            if number >= self._needed_from
            and not _leads_to(segment_path(self.folder, number), segment.identity)
        ]

    def restore(self) -> list[int]:
        """Rewrite deleted segments from their open files, and return their numbers.

        Raises:
            SegmentMoved: A segment or the folder was moved, not deleted: it must be put back.
            OSError: A segment cannot be written.
        """
        lost = [self._open[number] for number in self.missing()]
        moved = [segment for segment in lost if os.fstat(segment.fd).st_nlink]
        if moved:
            raise _moved(segment_path(self.folder, moved[0].number))
        if not _leads_to(self.folder, self._identity):
            if not lost and os.fstat(self._directory).st_nlink:
                raise _moved(self.folder)
            self._open_folder()
        for segment in lost:
            self._rewrite(segment)
        return [segment.number for segment in lost]

    @contextmanager
    def _descriptor(self, number: int) -> Iterator[int]:
        """Return a descriptor of a segment; a closed segment is opened for this use only."""
        if number in self._open:
            yield self._open[number].fd
            return
        fd = os.open(segment_path(self.folder, number), _READ)
        try:
            yield fd
        finally:
            os.close(fd)

    def _open_folder(self) -> None:
        files.make_folder(self.folder)
        lock = ExitStack()
        try:
            lock.enter_context(files.exclusive_lock(self.folder / "lock"))
        except BlockingIOError:
            raise OSError(
                0, "another oteval serve uses it; stop that, or give another --db"
            ) from None
        directory = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._lock.close()
        if self._directory >= 0:
            os.close(self._directory)
        self._lock, self._directory = lock, directory
        status = os.fstat(directory)
        self._identity = (status.st_dev, status.st_ino)

    def _begin_segment(self) -> _OpenSegment:
        """Begin the next segment.

        Raises:
            OSError: The segment cannot be made durable; nothing of it stays.
        """
        self.sync()
        self._current = None
        self.verify()
        newest = max([self._newest, self._needed_from, *segment_sizes(self.folder)])
        number = newest + 1 if newest else first_number(time.time_ns())
        path = segment_path(self.folder, number)
        fd = os.open(path, _APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            self._write_all(fd, [MAGIC])
            self._sync(fd)
            os.fsync(self._directory)
        except OSError:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        self._current = self._keep(_OpenSegment.of(number, fd, path))
        return self._current

    def _write_all(self, fd: int, buffers: Sequence[bytes]) -> None:
        left = list(buffers)
        while left:
            written = self._write(fd, left)
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = left[0][written:]

    def _keep(self, segment: _OpenSegment) -> _OpenSegment:
        self._open[segment.number] = segment
        self._newest = max(self._newest, segment.number)
        if len(self._open) > _MOST_OPEN:
            self._release(next(iter(self._open)))
        return segment

    def _release(self, number: int) -> None:
        os.close(self._open.pop(number).fd)

    def _rewrite(self, segment: _OpenSegment) -> None:
        """Write a deleted segment again, whole or not at all."""
        path = segment_path(self.folder, segment.number)
        partial = path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        fd = os.open(partial, _APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            for at in range(0, segment.end, _COPY_BYTES):
                size = min(_COPY_BYTES, segment.end - at)
                self._write_all(fd, [os.pread(segment.fd, size, at)])
            self._sync(fd)
            partial.replace(path)
            os.fsync(self._directory)
        except OSError:
            os.close(fd)
            partial.unlink(missing_ok=True)
            raise
        os.close(segment.fd)
        written = _OpenSegment.of(segment.number, fd, path)
        segment.fd, segment.identity, segment.durable = fd, written.identity, segment.end


def _moved(path: Path) -> SegmentMoved:
    return SegmentMoved(
        0,
        f"{path} was moved, deleted or replaced; put it back, or start the server again to go "
        "on without it",
    )


def _leads_to(path: Path | str, identity: tuple[int, int]) -> bool:
    try:
        status = os.stat(path)  # noqa: PTH116  faster than with a Path
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (status.st_dev, status.st_ino) == identity
