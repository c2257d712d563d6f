"""Following a spool: whole records from a position on, while another process appends."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from .spool import (
    HEADER,
    MAGIC,
    Position,
    Record,
    next_mark,
    segment_path,
    segments,
    unpacked_head,
)

__all__ = ["SpoolReader"]

_FIRST = len(MAGIC)
_BEGIN = Position()


class SpoolReader:
    """Reads a spool's records in their order.

    Attributes:
        position: Where it is; what comes next begins there or later.
        lost: How many bytes were no whole record and were passed over.
    """

    def __init__(self, folder: str | Path, position: Position = _BEGIN) -> None:
        self._folder = Path(folder)
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

    def read(self, limit: int) -> list[Record]:
        """Return the next records, none where there are no more yet.

        Args:
            limit: About how many bytes they may have together; there is one at least.

        Raises:
            OSError: A segment cannot be read.
        """
        found: list[Record] = []
        size = 0
        while size < limit and (record := self._next()) is not None:
            found.append(record)
            size += len(record.payload)
        return found

    def _next(self) -> Record | None:
        while True:
            record = self._here(is_last=True)
            if record is not None:
                return record
            number = self.position.segment
            later = next((n for n in segments(self._folder) if n > number), None)
            if later is None:
                return None
            # Only now it is sure that the segment is complete; it may have grown meanwhile.
            record = self._here(is_last=False)
            if record is not None:
                return record
            self.position = Position(later, _FIRST)

    def _here(self, *, is_last: bool) -> Record | None:
        """Return the segment's next record; None at its end.

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
            end = offset + HEADER + head.length if head else size + 1
            if head is not None and end <= size:
                payload = os.pread(self._fd, head.length, offset + HEADER)
                if zlib.crc32(payload) == head.crc:
                    self.position = Position(number, end)
                    return Record(head.kind, head.encoding, head.time_ns, payload, self.position)
                after = end
            else:
                if size <= offset or (is_last and (head is not None or size < offset + HEADER)):
                    return None
                after = next_mark(self._fd, offset + 1, size)
                if is_last and after == size:
                    return None
            self.lost += after - offset
            offset = after
            self.position = Position(number, offset)

    def _opened(self, number: int) -> bool:
        if self._open_number == number and self._fd >= 0:
            return True
        self.close()
        try:
            self._fd = os.open(segment_path(self._folder, number), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        self._open_number = number
        return True
