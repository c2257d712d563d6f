"""Following a spool: whole records from a position on, while another process appends.

A file that is not there is never taken for the end: what cannot be found is an error, and reading
goes on from the same position once it is back.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from .spool_segments import (
    HEADER,
    MAGIC,
    Head,
    Position,
    Record,
    SpoolMissing,
    is_gap,
    next_mark,
    segment_path,
    segments,
    unpacked_head,
)

__all__ = ["SpoolReader", "Stretch"]

_FIRST = len(MAGIC)
_BEGIN = Position()


class Stretch(NamedTuple):
    """A part of a spool that holds whole records.

    Attributes:
        start: Where it begins.
        end: The position after its last record.
        time_ns: When its first record was received.
        size: How many bytes its payloads have together.
    """

    start: Position
    end: Position
    time_ns: int
    size: int


class SpoolReader:
    """Reads a spool's records in their order.

    Attributes:
        position: Where it is; what comes next begins there or later.
        lost: How many bytes were no whole record and were passed over.
    """

    def __init__(
        self,
        folder: str | Path,
        position: Position = _BEGIN,
        *,
        lost: Collection[int] | None = None,
    ) -> None:
        """Begin at a position; nothing need be there yet.

        Args:
            folder: The spool.
            position: Where to begin; its segment must be there, unless it is the very beginning.
            lost: Segments before which some are known to be missing; other gaps between segments
                are errors. None where nobody looks for gaps.
        """
        self._folder = Path(folder)
        self._lost = lost
        self.position = position
        self.lost = 0
        self._fd = -1
        self._open_number = -1

    def close(self) -> None:
        """Close what is open."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def left(self) -> int:
        """Return how many bytes are still to be read."""
        number, offset = self.position
        known = segments(self._folder)
        later = sum(size - _FIRST for other, size in known.items() if other > number)
        return max(0, later + max(0, known.get(number, 0) - max(offset, _FIRST)))

    def records(self, end: Position | None = None) -> Iterator[Record]:
        """Yield the next records.

        Args:
            end: Where to stop, the end of a record; None to stop where there are no more yet.

        Raises:
            OSError: A segment cannot be read.
            SpoolMissing: A segment is not there; the position is before what it holds.
        """
        while end is None or self.position < end:
            head = self._next()
            if head is None:
                return
            if (record := self._record(head)) is not None:
                yield record

    def skip(self, limit: int) -> Stretch | None:
        """Pass over the next records without reading them.

        Args:
            limit: About how many bytes they may have together; there is one at least.

        Returns:
            Where they are; None where there are no more yet.

        Raises:
            OSError: A segment cannot be read.
            SpoolMissing: A segment is not there; the position is before what it holds.
        """
        start = end = self.position
        first, size = None, 0
        try:
            while size < limit and (head := self._next()) is not None:
                first = first or head
                size, end = size + head.length, self.position
        except SpoolMissing:
            if first is None:
                self.position = start
                raise
        # What is no record belongs to the stretch of the record after it.
        self.position = end
        return Stretch(start, end, first.time_ns, size) if first else None

    def _record(self, head: Head) -> Record | None:
        """Return the record that ends at the position; None where it is damaged."""
        payload = os.pread(self._fd, head.length, self.position.offset - head.length)
        if zlib.crc32(payload) != head.crc:
            self.lost += HEADER + head.length
            return None
        return Record(head.kind, head.encoding, head.time_ns, payload, self.position)

    def _next(self) -> Head | None:
        """Go to the end of the next record that is there as a whole; None where there is none."""
        while True:
            head = self._here(is_last=True)
            if head is not None:
                return head
            number = self.position.segment
            later = next((n for n in segments(self._folder) if n > number), None)
            if later is None:
                return None
            # Only now it is sure that the segment is complete; it may have grown meanwhile.
            head = self._here(is_last=False)
            if head is not None:
                return head
            if self._lost is not None and later not in self._lost and is_gap(number, later):
                raise SpoolMissing(
                    f"{self._folder}: {segment_path(self._folder, number + 1).name} is missing"
                )
            self.position = Position(later, _FIRST)

    def _here(self, *, is_last: bool) -> Head | None:
        """Go to the end of the segment's next record; None where it has no more.

        Args:
            is_last: Whether more may come, so that what is not whole yet is waited for.
        """
        number, offset = self.position
        if not self._opened(number):
            return None
        offset = max(offset, _FIRST)
        while True:
            # The size first: what is below it is there, what comes later is not judged yet.
            size = os.fstat(self._fd).st_size
            head = unpacked_head(os.pread(self._fd, min(HEADER, max(0, size - offset)), offset))
            if head is not None and (end := offset + HEADER + head.length) <= size:
                self.position = Position(number, end)
                return head
            if size <= offset or (is_last and (head is not None or size < offset + HEADER)):
                if self._is_in_place():
                    return None
                # It was deleted and written again, or moved: what is appended is elsewhere.
                self.close()
                if not self._opened(number):
                    return None
                continue
            after = next_mark(self._fd, offset + 1, size)
            if is_last and after == size:
                return None
            self.lost += after - offset
            offset = after
            self.position = Position(number, offset)

    def _opened(self, number: int) -> bool:
        """Open a segment; False for that before the first, which no folder has.

        Raises:
            SpoolMissing: It is not there.
        """
        if self._open_number == number and self._fd >= 0:
            return True
        self.close()
        path = segment_path(self._folder, number)
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            if number == 0:
                return False
            raise SpoolMissing(f"{path} is missing; what it holds is not stored") from None
        self._open_number = number
        return True

    def _is_in_place(self) -> bool:
        """Return whether the open segment's path leads to it."""
        try:
            found = segment_path(self._folder, self._open_number).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        own = os.fstat(self._fd)
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)
