"""A stream of bytes to read by line, by size or by chunk; bytes can be put back into it.

Lines end with a newline and are numbered from 1. The carriage return of a Windows line end stays
in the line; readers strip it.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["ByteStream"]


class ByteStream:
    """A stream over a function that returns chunks.

    Args:
        read: Returns the next chunk, b"" at the end.

    Attributes:
        line: The number of the line of the next byte, as long as only lines are read.
        offset: The number of bytes read so far.
    """

    def __init__(self, read: Callable[[], bytes]) -> None:
        self.line = 1
        self.offset = 0
        self._read = read
        self._buffer = b""
        self._at = 0

    def head(self, size: int) -> bytes:
        """The next `size` bytes, or fewer at the end, without consuming them."""
        if self._at + size > len(self._buffer):
            self.put_back(self.take(size))
        return self._buffer[self._at : self._at + size]

    def take(self, size: int) -> bytes:
        """The next `size` bytes, or fewer at the end."""
        parts = []
        missing = size
        while missing > 0 and self._fill():
            part = self._buffer[self._at : self._at + missing]
            self._advance(len(part))
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def chunk(self) -> bytes:
        """The rest of the current chunk or the next one, b"" at the end."""
        if not self._fill():
            return b""
        data = self._buffer[self._at :]
        self._advance(len(data))
        return data

    def next_line(self, limit: int) -> bytes:
        """The next line with its newline, b"" at the end.

        Args:
            limit: A line of at least this many bytes is returned in parts: this call returns about
                the first `limit` bytes without a newline, and the next call continues from there.
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
        """Put bytes back, to be read next."""
        self._buffer = data + self._buffer[self._at :] if data else self._buffer[self._at :]
        self._at = 0
        self.offset -= len(data)

    def _advance(self, size: int) -> None:
        self._at += size
        self.offset += size

    def _fill(self) -> bool:
        """Fill the buffer if it is empty; return False at the end."""
        if self._at >= len(self._buffer):
            self._buffer = self._read()
            self._at = 0
        return bool(self._buffer)
