"""Read the bytes of a file by line, size or chunk, decompressed from gzip or zstd.

Consecutive gzip members or zstd frames are one stream. If a stream is truncated or damaged, the
data before the damage is returned, and `Source.fault` has the reason.

Lines end with a newline and are numbered from 1. The carriage return of a Windows line end stays
in the line; readers strip it.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, BinaryIO, Protocol, cast

__all__ = [
    "ZSTD_MAGIC",
    "ByteStream",
    "LimitExceeded",
    "Readable",
    "Source",
    "unzstd",
]

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 18
# The most data (bytes) before the damage of a zstd stream that may be lost.
_ZSTD_CHUNK = 1 << 14


class LimitExceeded(ValueError):
    """Data decompresses to more bytes than allowed."""


class Readable(Protocol):
    """A source of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most `size` bytes, b"" at the end."""
        ...


class Source:
    """The decompressed bytes of a file, in chunks.

    Attributes:
        fault: The damage to the compressed stream, or "".
        decompressed: The number of bytes returned so far.
    """

    def __init__(self, file: Readable) -> None:
        self.fault = ""
        self.decompressed = 0
        self._raw = _Counted(file)
        self._is_compressed = False
        self._chunks = self._open()

    @property
    def bytes_read(self) -> int:
        """The number of bytes of the file itself, compressed or not, that were read so far."""
        return self._raw.count

    def original(self) -> BinaryIO | None:
        """The file, rewound; None if it is compressed or not seekable."""
        return None if self._is_compressed else self._raw.rewound()

    def set_progress(self, fraction: float, size: int) -> None:
        """Update `bytes_read` for a file that is read through `original`.

        Args:
            fraction: The fraction of the file that was read.
            size: The size of the file in bytes.
        """
        self._raw.count = max(self._raw.count, min(int(fraction * size), size))

    def read(self) -> bytes:
        """The next chunk, b"" at the end.

        Raises:
            OSError: The file cannot be read.
        """
        for data in self._chunks:
            if data:
                self.decompressed += len(data)
                return data
        return b""

    def _open(self) -> Iterator[bytes]:
        head = b""
        while len(head) < 4 and (more := self._raw.read(_CHUNK)):
            head += more
        if head.startswith(_GZIP_MAGIC):
            self._is_compressed = True
            yield from self._gunzip(head)
        elif head.startswith(ZSTD_MAGIC) or _is_skippable(head):
            self._is_compressed = True
            self._raw.put_back(head)
            yield from self._unzstd()
        elif head:
            yield head
            while data := self._raw.read(_CHUNK):
                yield data

    def _gunzip(self, head: bytes) -> Iterator[bytes]:
        member = zlib.decompressobj(wbits=31)
        for data in chain([head], iter(lambda: self._raw.read(_CHUNK), b"")):
            while data:
                if member.eof:  # zeros are padding; anything else must be another member
                    data = data.lstrip(b"\0")
                    if not data:
                        break
                    member = zlib.decompressobj(wbits=31)
                before = member.copy()
                try:
                    out = member.decompress(data, _CHUNK)
                except zlib.error as error:
                    self.fault = f"the gzip stream is damaged ({_plain(error)})"
                    yield _salvaged(before, data)
                    return
                yield out
                data = member.unused_data if member.eof else member.unconsumed_tail
        if not member.eof:
            self.fault = "the gzip stream ends early"
            yield member.flush()

    def _unzstd(self) -> Iterator[bytes]:
        with _zstd_stream(self._raw) as stream:
            try:
                while data := stream.read(_ZSTD_CHUNK):
                    yield data
            except OSError as error:
                if error.errno is not None:  # an error of the file, not of the stream
                    raise
                cut = "ends early" if "runcated" in str(error) else f"is damaged ({error})"
                self.fault = f"the zstd stream {cut}"


def unzstd(data: bytes, limit: int) -> bytes:
    """Decompress a whole zstd frame.

    Args:
        data: The frame.
        limit: The most bytes it may decompress to.

    Raises:
        LimitExceeded: The data is larger than the limit.
        ValueError: The frame is damaged.
    """
    import pyarrow as pa

    content = bytearray()
    try:
        with _zstd_stream(pa.BufferReader(data)) as stream:
            while part := stream.read(_CHUNK):
                content += part
                if len(content) > limit:
                    raise LimitExceeded(f"more than {limit >> 20} MiB in a compressed message")
    except OSError as error:
        raise ValueError(f"damaged zstd data: {error}") from None
    return bytes(content)


class _Counted:
    """A file object, as pyarrow expects it, that counts the bytes read from it."""

    closed = False

    def __init__(self, file: Readable) -> None:
        self.count = 0
        self._file = file
        self._first = b""

    def read(self, size: int) -> bytes:
        if self._first:
            data, self._first = self._first[:size], self._first[size:]
            return data
        data = self._file.read(size)
        self.count += len(data)
        return data

    def close(self) -> None:
        """Leave the file open; its owner closes it."""

    def put_back(self, data: bytes) -> None:
        self._first = data

    def rewound(self) -> BinaryIO | None:
        """The file itself, rewound; None if it is not seekable."""
        file = self._file
        if not isinstance(file, io.BufferedIOBase) or not file.seekable():
            return None
        file.seek(0)
        return cast("BinaryIO", file)


def _is_skippable(head: bytes) -> bool:
    """Whether the bytes begin a skippable zstd frame, which carries application data."""
    return len(head) >= 4 and 0x50 <= head[0] <= 0x5F and head[1:4] == b"\x2a\x4d\x18"


def _zstd_stream(file: Any) -> Any:
    import pyarrow as pa  # takes 0.1 s, and only readers of zstd need it

    if isinstance(file, _Counted):
        file = pa.PythonFile(file, mode="r")
    return pa.CompressedInputStream(file, "zstd")


def _salvaged(member: Any, data: bytes) -> bytes:
    """The data that a gzip member decompresses to before its first damaged byte."""
    out = bytearray()
    try:
        for index in range(len(data)):
            out += member.decompress(data[index : index + 1])
    except zlib.error:
        pass
    return bytes(out)


def _plain(error: zlib.error) -> str:
    return str(error).rpartition(": ")[2]


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
