"""Requests on disk: those that wait to be exported, and those that an endpoint refused for good.

The waiting requests are appended, read in any order, and removed once sent. They are records of a
durable log. Each is preceded by its position in the source (the spool), so that a restarted process
knows how far it has read. Next to each segment, a ``.done`` file lists the parts of requests that
were sent. A segment is removed with its last request. A part that was sent but not yet listed is
sent again after a crash.

A refused request is a file, named by the time of the refusal and the signal, and is sent again on
demand. Only `resend` deletes files, once the endpoint has accepted them. To give them up, delete
the files.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...base.clients.otlp_client import ExportResult, OtlpClient
from ...base.durable_log import (
    HEADER_BYTES,
    Encoding,
    Kind,
    LogWriter,
    Position,
    Record,
    pack_header,
    segment_sizes,
)
from ...base.files import make_folder, open_private

__all__ = [
    "REFUSED_FOLDER",
    "QueuedRequest",
    "RefusedRequests",
    "RequestLog",
    "resend",
]

_SEGMENT_BYTES = 32 << 20
_SOURCE = struct.Struct("<QQ")  # the position in the source: segment, offset
_DONE = struct.Struct("<Q16s")  # where the request begins, the part

# The format of queues before they were durable logs: still read, no longer written.
_OLD_SUFFIX = ".held"
_OLD_HEADER = struct.Struct("<8sQQ")  # magic, position in the source
_OLD_RECORD = struct.Struct("<IIQQQBB")  # length, CRC, received, position, kind, encoding
_OLD_MAGIC = b"oteval-1"
_OLD_KINDS: tuple[Kind, ...] = ("traces", "logs")
_OLD_ENCODINGS: tuple[Encoding, ...] = ("protobuf", "json")


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """A request in the log.

    Attributes:
        segment: The number of its segment.
        at: Where its record begins in the segment.
        payload_at: Where its body begins in the segment.
        size: Bytes of its body.
        received_ns: When it was received.
        kind: The signal, ``traces`` or ``logs``.
        encoding: ``protobuf`` or ``json``.
        unsent: The number of its parts that are not sent.
        sent_parts: The parts that were already sent when the log was opened.
    """

    segment: int
    at: int
    payload_at: int
    size: int
    received_ns: int
    kind: Kind
    encoding: Encoding
    unsent: int = 0
    sent_parts: frozenset[bytes] = frozenset()


@dataclass(eq=False, slots=True)
class _RequestSegment:
    """A segment: its size, its unsent requests, and open files that are not part of the log.

    Attributes:
        done_path: The list of parts that were sent.
        size: Bytes in the segment.
        requests: The requests that are not completely sent.
        done_fd: The open list, -1 until a part is added.
        old_path: The file of a segment in the old format.
        old_fd: The open file of a segment in the old format.
    """

    done_path: Path
    size: int = 0
    requests: set[QueuedRequest] = field(default_factory=set)
    done_fd: int = -1
    old_path: Path | None = None
    old_fd: int = -1

    def close(self) -> None:
        for fd in (self.done_fd, self.old_fd):
            if fd >= 0:
                os.close(fd)


class RequestLog:
    """The requests of one export queue. Not thread-safe, except for `sync`.

    Args:
        folder: The folder of the log; created if it is missing.
        segment_bytes: Bytes of a segment; at this size, a new segment begins.

    Attributes:
        position: The position that the source was read up to.

    Raises:
        OSError: Another process uses the folder, or it cannot be read or written.
    """

    def __init__(self, folder: Path, segment_bytes: int = _SEGMENT_BYTES) -> None:
        self._folder = folder
        self._log = LogWriter(folder, segment_bytes=segment_bytes)
        self._segments: dict[int, _RequestSegment] = {}
        self.position = Position()
        for path in sorted(folder.glob(f"*{_OLD_SUFFIX}")):
            self._index_old(path)
        for number, size in segment_sizes(folder).items():
            self._index(number, size)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(segment.size for segment in self._segments.values())

    def requests(self) -> list[QueuedRequest]:
        """The requests in order; some of their parts may already be sent."""
        queued = [
            queued_request
            for segment in self._segments.values()
            for queued_request in segment.requests
        ]
        return sorted(queued, key=lambda request: (request.segment, request.at))

    def append(
        self,
        kind: Kind,
        encoding: Encoding,
        body: bytes,
        received_ns: int,
        position: Position = Position(),  # noqa: B008
    ) -> QueuedRequest:
        """Append a request; it is durable after `sync`.

        Args:
            kind: The signal.
            encoding: The encoding of the body.
            body: The request body.
            received_ns: When the request was received.
            position: Where it ends in the source.

        Raises:
            OSError: The request cannot be written; nothing of it stays.
        """
        position = max(position, self.position)
        record = Record(kind, encoding, received_ns, _SOURCE.pack(*position) + body)
        start = self._log.append([pack_header(record), record.payload])
        is_new = start.segment not in self._segments
        segment = self._segment(start.segment)
        payload_at = start.offset + HEADER_BYTES + _SOURCE.size
        segment.size = payload_at + len(body)
        self.position = position
        request = QueuedRequest(
            *(start.segment, start.offset, payload_at, len(body)), received_ns, kind, encoding
        )
        segment.requests.add(request)
        if is_new:
            self._remove_sent()
        return request

    def sync(self) -> None:
        """Wait until everything appended is durable.

        Raises:
            SegmentMoved: The file was moved or deleted; `restore` may bring it back.
            OSError: The disk failed.
        """
        self._log.sync()

    def restore(self) -> None:
        """Rewrite deleted segments.

        Raises:
            OSError: A segment was moved away, or cannot be written.
        """
        self._log.restore()

    def read(self, request: QueuedRequest) -> bytes:
        """The body of a request.

        Raises:
            OSError: It cannot be read.
        """
        segment = self._segments[request.segment]
        if segment.old_fd >= 0:
            return os.pread(segment.old_fd, request.size, request.payload_at)
        return self._log.read(Position(request.segment, request.payload_at), request.size)

    def mark_sent(self, request: QueuedRequest, part: bytes, *, is_last: bool) -> None:
        """Note that a part of a request was sent; a segment is removed with its last request."""
        segment = self._segments[request.segment]
        # If the disk is full, the part is sent again after a restart.
        with suppress(OSError):
            if segment.done_fd < 0:
                flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                segment.done_fd = os.open(segment.done_path, flags, 0o600)
            os.write(segment.done_fd, _DONE.pack(request.at, part))
        if is_last:
            segment.requests.discard(request)
            self._remove_sent()

    def close(self) -> None:
        """Close the files."""
        for segment in self._segments.values():
            segment.close()
        self._segments.clear()
        self._log.close()

    def _segment(self, number: int) -> _RequestSegment:
        if number not in self._segments:
            done_path = self._folder / f"{number:020d}.done"
            self._segments[number] = _RequestSegment(done_path)
        return self._segments[number]

    def _remove_sent(self) -> None:
        """Remove the segments that are completely sent, but not the newest: it has the position."""
        newest = max(self._segments)
        sent = [n for n, segment in self._segments.items() if not segment.requests and n < newest]
        if not sent:
            return
        try:
            self._log.sync()
        except OSError:
            return  # the position in the newest segment may be lost; try again later
        for number in sent:
            segment = self._segments.pop(number)
            segment.close()
            if segment.old_path is not None:
                segment.old_path.unlink(missing_ok=True)
            else:
                self._log.remove(number)
            segment.done_path.unlink(missing_ok=True)

    def _index(self, number: int, size: int) -> None:
        segment = self._segment(number)
        segment.size = size
        parts = _sent_parts(segment.done_path)
        for at, header, payload in self._log.scan(number):
            if len(payload) < _SOURCE.size:
                continue
            self.position = max(self.position, Position(*_SOURCE.unpack_from(payload)))
            request = QueuedRequest(
                *(number, at, at + HEADER_BYTES + _SOURCE.size, len(payload) - _SOURCE.size),
                *(header.time_ns, header.kind, header.encoding),
                sent_parts=frozenset(parts.get(at, ())),
            )
            segment.requests.add(request)

    def _index_old(self, path: Path) -> None:
        number = int(path.stem)
        segment = _RequestSegment(path.with_suffix(".done"), size=path.stat().st_size)
        segment.old_path = path
        segment.old_fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._segments[number] = segment
        header = os.pread(segment.old_fd, _OLD_HEADER.size, 0)
        if len(header) < _OLD_HEADER.size or not header.startswith(_OLD_MAGIC):
            return
        _, *position = _OLD_HEADER.unpack(header)
        self.position = max(self.position, Position(*position))
        parts = _sent_parts(segment.done_path)
        for request, end in _scan_old(number, segment.old_fd):
            request.sent_parts = frozenset(parts.get(request.at, ()))
            segment.requests.add(request)
            self.position = max(self.position, end)


def _scan_old(number: int, fd: int) -> Iterator[tuple[QueuedRequest, Position]]:
    """Yield the requests of a segment in the old format, each with its position in the source."""
    at = _OLD_HEADER.size
    while True:
        header = os.pread(fd, _OLD_RECORD.size, at)
        if len(header) < _OLD_RECORD.size:
            return
        size, crc, received_ns, first, second, kind, encoding = _OLD_RECORD.unpack(header)
        body_at = at + _OLD_RECORD.size
        body = os.pread(fd, size, body_at)
        bare = _OLD_RECORD.pack(size, 0, received_ns, first, second, kind, encoding)
        if len(body) < size or crc != zlib.crc32(body, zlib.crc32(bare)):
            return
        yield (
            QueuedRequest(
                *(number, at, body_at, size, received_ns),
                *(_OLD_KINDS[kind], _OLD_ENCODINGS[encoding]),
            ),
            Position(first, second),
        )
        at = body_at + size


def _sent_parts(path: Path) -> dict[int, set[bytes]]:
    """Read a list of parts that were sent, and cut an incomplete entry off its end."""
    parts_by_offset: dict[int, set[bytes]] = {}
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return parts_by_offset
    complete = len(data) // _DONE.size * _DONE.size
    if complete < len(data):
        os.truncate(path, complete)
    for at, part in _DONE.iter_unpack(data[:complete]):
        parts_by_offset.setdefault(at, set()).add(part)
    return parts_by_offset


# The folder next to the queue.
REFUSED_FOLDER = "refused"
_SUFFIXES = {"protobuf": "pb", "json": "json"}
_ENCODINGS = {f".{suffix}": encoding for encoding, suffix in _SUFFIXES.items()}
# Seconds between two looks at the folder, which may contain many files.
_LOOK_EVERY = 5.0


class RefusedRequests:
    """The requests that one endpoint refused.

    Args:
        folder: The folder of the files; created with the first of them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._looked = 0.0
        self._kept = (0, 0)

    def keep(self, signal: str, encoding: str, body: bytes) -> Path:
        """Write a request to a file, and return its path.

        Raises:
            OSError: The file cannot be written.
        """
        make_folder(self._folder)
        path = self._folder / f"{time.time_ns():020d}-{signal}.{_SUFFIXES[encoding]}"
        partial = path.with_suffix(".new")
        with open_private(partial) as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        self._kept = (self._kept[0] + 1, self._kept[1] + len(body))
        return path

    def kept(self) -> tuple[int, int]:
        """The number of requests and their bytes, at most some seconds old."""
        now = time.monotonic()
        if not self._looked or now - self._looked > _LOOK_EVERY:
            self._looked = now
            sizes = [path.stat().st_size for path in _files(self._folder)]
            self._kept = (len(sizes), sum(sizes))
        return self._kept


def resend(folder: Path, client: OtlpClient) -> Iterator[tuple[Path, ExportResult]]:
    """Send the requests in a folder, oldest first, and delete each that is accepted.

    Args:
        folder: The folder.
        client: The endpoint.

    Yields:
        Each file with its result, until the endpoint turns out to be away or busy.
    """
    for path in _files(folder):
        signal = path.stem.partition("-")[2]
        result = client.export(signal, path.read_bytes(), _ENCODINGS[path.suffix])
        if result.is_accepted:
            path.unlink(missing_ok=True)
        yield path, result
        if not result.is_accepted and not result.is_refused:
            return


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix in _ENCODINGS)
