"""A stream of bytes that can be read by line, by count or by chunk, and put back.

Lines end with a newline and are numbered from 1; a Windows line end is a newline after a
carriage return, which readers strip.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Tape"]


class Tape:
    """The bytes that `read` returns chunk by chunk, until it returns b"".

    Attributes:
        line: The number of the line in which the next byte is, as long as only lines are read.
        offset: How many bytes were taken so far.
    """

    def __init__(self, read: Callable[[], bytes]) -> None:
        self.line = 1
        self.offset = 0
        self._read = read
        self._buffer = b""
        self._at = 0

    def head(self, size: int) -> bytes:
        """Return the next `size` bytes, or less at the end, without taking them."""
        if self._at + size > len(self._buffer):
            self.put_back(self.take(size))
        return self._buffer[self._at : self._at + size]

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes, or less at the end."""
        parts = []
        missing = size
        while missing > 0 and self._fill():
            part = self._buffer[self._at : self._at + missing]
            self._advance(len(part))
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def chunk(self) -> bytes:
        """Return some more bytes, b"" at the end."""
        if not self._fill():
            return b""
        data = self._buffer[self._at :]
        self._advance(len(data))
        return data

    def next_line(self, limit: int) -> bytes:
        """Return the next line with its newline, b"" at the end.

        Args:
            limit: Of a line with more bytes, about the first `limit` are returned, without a
                newline; the next call goes on from there.
        """
        parts = []
        size = 0
        while size < limit and self._fill():
            end = self._buffer.find(b"\n", self._at) + 1
            part = self._buffer[self._at : end or len(self._buffer)]
            self._advance(len(part))
            parts.append(part)
            size += len(part)
            if end:
                self.line += 1
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def put_back(self, data: bytes) -> None:
        """Make `data` what is read next."""
        self._buffer = data + self._buffer[self._at :] if data else self._buffer[self._at :]
        self._at = 0
        self.offset -= len(data)

    def _advance(self, size: int) -> None:
        self._at += size
        self.offset += size

    def _fill(self) -> bool:
        """Make sure that a byte is at hand; False at the end."""
        if self._at >= len(self._buffer):
            self._buffer = self._read()
            self._at = 0
        return bool(self._buffer)
