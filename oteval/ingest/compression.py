"""Reading a file's bytes, decompressed as its first bytes say: gzip, zstd or as they are.

Several gzip members or zstd frames one after the other are one stream. A compressed stream that
is cut or damaged gives what could be decompressed; `Source.fault` then says what is wrong.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from itertools import chain
from typing import Any, BinaryIO, Protocol, cast

__all__ = ["ZSTD_MAGIC", "Readable", "Source", "unzstd"]

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 18
# What a damaged zstd stream may lose of the data before the damage.
_ZSTD_CHUNK = 1 << 14


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most so many bytes, b"" at the end."""
        ...


class Source:
    """The decompressed bytes of a binary file, in chunks.

    Attributes:
        fault: What is wrong with the compressed stream, or "".
        decompressed: How many bytes were returned so far.
    """

    def __init__(self, file: Readable) -> None:
        self.fault = ""
        self.decompressed = 0
        self._raw = _Counted(file)
        self._is_compressed = False
        self._chunks = self._open()

    @property
    def bytes_read(self) -> int:
        """How many bytes of the file itself, compressed or not, were read so far."""
        return self._raw.count

    def original(self) -> BinaryIO | None:
        """Return the file at its beginning; None where it is compressed or cannot seek."""
        return None if self._is_compressed else self._raw.rewound()

    def note(self, part: float, size: int) -> None:
        """Note how much was read of the file by others.

        Args:
            part: Which part of it.
            size: Its bytes.
        """
        self._raw.count = max(self._raw.count, min(int(part * size), size))

    def read(self) -> bytes:
        """Return the next chunk, b"" at the end.

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
                if member.eof:  # zeros are padding, all else must be another member
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
                if error.errno is not None:  # the file's own trouble, not the stream's
                    raise
                cut = "ends early" if "runcated" in str(error) else f"is damaged ({error})"
                self.fault = f"the zstd stream {cut}"


def unzstd(data: bytes, limit: int) -> bytes:
    """Return the content of a whole zstd frame.

    Args:
        data: The frame.
        limit: The most bytes that the content may have.

    Raises:
        ValueError: The frame is damaged, or holds more than the limit.
    """
    import pyarrow as pa

    content = bytearray()
    try:
        with _zstd_stream(pa.BufferReader(data)) as stream:
            while part := stream.read(_CHUNK):
                content += part
                if len(content) > limit:
                    raise ValueError(f"more than {limit >> 20} MiB in a compressed message")
    except OSError as error:
        raise ValueError(f"damaged zstd data: {error}") from None
    return bytes(content)


class _Counted:
    """A file that counts the bytes read from it, in the form pyarrow takes."""

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
        """Leave the file open; who opened it closes it."""

    def put_back(self, data: bytes) -> None:
        self._first = data

    def rewound(self) -> BinaryIO | None:
        """Return the file itself at its beginning, None where it cannot seek."""
        file = self._file
        if not isinstance(file, io.BufferedIOBase) or not file.seekable():
            return None
        file.seek(0)
        return cast("BinaryIO", file)


def _is_skippable(head: bytes) -> bool:
    """Whether a zstd frame begins that only carries an application's own data."""
    return len(head) >= 4 and 0x50 <= head[0] <= 0x5F and head[1:4] == b"\x2a\x4d\x18"


def _zstd_stream(file: Any) -> Any:
    import pyarrow as pa  # takes 0.1 s, which who reads no zstd need not wait for

    if isinstance(file, _Counted):
        file = pa.PythonFile(file, mode="r")
    return pa.CompressedInputStream(file, "zstd")


def _salvaged(member: Any, data: bytes) -> bytes:
    """Return what a member gives before the byte at which it turns out to be damaged."""
    out = bytearray()
    try:
        for index in range(len(data)):
            out += member.decompress(data[index : index + 1])
    except zlib.error:
        pass
    return bytes(out)


def _plain(error: zlib.error) -> str:
    return str(error).rpartition(": ")[2]
