"""The reading side of a log: whole records from a position on, while another process appends.

A missing file is never taken for the end of the log. It raises `SegmentMissing`, and reading
continues from the same position once the file is back.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from .segments import (
    HEADER_BYTES,
    MAGIC,
    Position,
    Record,
    RecordHeader,
    SegmentMissing,
    is_gap,
    next_header,
    segment_path,
    segment_sizes,
    unpack_header,
)

__all__ = ["LogReader", "RecordRange"]

_FIRST = len(MAGIC)
_BEGIN = Position()


class RecordRange(NamedTuple):
    """A part of a log that consists of whole records.

    Attributes:
        start: Where the range begins.
        end: The position after its last record.
        time_ns: When its first record was received.
        size: Bytes of all its payloads.
    """

    start: Position
    end: Position
    time_ns: int
    size: int


class LogReader:
    """Reads the records of a log in order.

    Attributes:
        position: The next record begins here or later. May be assigned.
        damaged_bytes: Bytes that belong to no intact record and were skipped.
    """

    def __init__(
        self,
        folder: str | Path,
        position: Position = _BEGIN,
        *,
        known_gaps: Collection[int] | None = None,
    ) -> None:
        """Start at a position. The folder need not exist yet.

        Args:
            folder: The log's folder.
            position: Where to start. Its segment must exist, unless it is the very beginning.
            known_gaps: Segments that are known to follow a gap. Any other gap in the numbers raises
                `SegmentMissing`. None accepts all gaps.
        """
        self._folder = Path(folder)
        self._known_gaps = known_gaps
        self.position = position
        self.damaged_bytes = 0
        self._fd = -1
        self._open_number = -1

    def close(self) -> None:
        """Close the open segment."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def unread_bytes(self) -> int:
        """The number of bytes that are still unread."""
        number, offset = self.position
        sizes = segment_sizes(self._folder)
        later = sum(size - _FIRST for segment, size in sizes.items() if segment > number)
        return max(0, later + max(0, sizes.get(number, 0) - max(offset, _FIRST)))

    def records(self, end: Position | None = None) -> Iterator[Record]:
        """Yield the next records.

        Args:
            end: Where to stop, the end of a record; None to stop at the end of the log.

        Raises:
            OSError: A segment cannot be read.
            SegmentMissing: A segment is missing; `position` stays before its records.
        """
        while end is None or self.position < end:
            header = self._next()
            if header is None:
                return
            if (record := self._record(header)) is not None:
                yield record

    def skip(self, limit: int) -> RecordRange | None:
        """Move past the next records without reading their payloads.

        Args:
            limit: The payload bytes to stop at; at least one record is skipped.

        Returns:
            The range of the skipped records; None at the end of the log.

        Raises:
            OSError: A segment cannot be read.
            SegmentMissing: A segment is missing; `position` stays before its records.
        """
        start = end = self.position
        first, size = None, 0
        try:
            while size < limit and (header := self._next()) is not None:
                first = first or header
                size, end = size + header.length, self.position
        except SegmentMissing:
            if first is None:
                self.position = start
                raise
        # Damaged bytes belong to the range of the record after them.
        self.position = end
        return RecordRange(start, end, first.time_ns, size) if first else None

    def _record(self, header: RecordHeader) -> Record | None:
        """The record that ends at the position; None if it is damaged."""
        payload = os.pread(self._fd, header.length, self.position.offset - header.length)
        if zlib.crc32(payload) != header.crc:
            self.damaged_bytes += HEADER_BYTES + header.length
            return None
        return Record(header.kind, header.encoding, header.time_ns, payload, self.position)

    def _next(self) -> RecordHeader | None:
        """Move to the end of the next complete record; None at the end of the log."""
        while True:
            header = self._next_in_segment(is_last=True)
            if header is not None:
                return header
            number = self.position.segment
            later = next((n for n in segment_sizes(self._folder) if n > number), None)
            if later is None:
                return None
            # A later segment exists, so this segment is complete; it may have grown since.
            header = self._next_in_segment(is_last=False)
            if header is not None:
                return header
            is_known = self._known_gaps is None or later in self._known_gaps
            if not is_known and is_gap(number, later):
                raise SegmentMissing(
                    f"{self._folder}: {segment_path(self._folder, number + 1).name} is missing"
                )
            self.position = Position(later, _FIRST)

    def _next_in_segment(self, *, is_last: bool) -> RecordHeader | None:
        """Move to the end of the segment's next record; None if there is none.

        Args:
            is_last: Whether the segment may still grow, so that an incomplete record at its end
                is waited for.
        """
        number, offset = self.position
        if not self._open_segment(number):
            return None
        offset = max(offset, _FIRST)
        while True:
            # The size comes first: everything below it is written, later bytes may be incomplete.
            size = os.fstat(self._fd).st_size
            data = os.pread(self._fd, min(HEADER_BYTES, max(0, size - offset)), offset)
            header = unpack_header(data)
            if header is not None and (end := offset + HEADER_BYTES + header.length) <= size:
                self.position = Position(number, end)
                return header
            is_incomplete = header is not None or size < offset + HEADER_BYTES
            if size <= offset or (is_last and is_incomplete):
                if self._is_in_place():
                    return None
                # The file was deleted and rewritten, or moved; new records are in another file.
                self.close()
                if not self._open_segment(number):
                    return None
                continue
            after = next_header(self._fd, offset + 1, size)
            if is_last and after == size:
                return None
            self.damaged_bytes += after - offset
            offset = after
            self.position = Position(number, offset)

    def _open_segment(self, number: int) -> bool:
        """Open a segment; return False for number 0, the place before the first segment.

        Raises:
            SegmentMissing: The segment is missing.
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
            raise SegmentMissing(f"{path} is missing; the requests in it are not stored") from None
        self._open_number = number
        return True

    def _is_in_place(self) -> bool:
        """Whether the open segment's path still leads to its file."""
        try:
            status = segment_path(self._folder, self._open_number).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        own = os.fstat(self._fd)
        return (status.st_dev, status.st_ino) == (own.st_dev, own.st_ino)
