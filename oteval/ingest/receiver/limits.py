"""Limits on requests: bytes, decompressed bytes, parts, and requests that arrive at the same time.

- `decompressed` stops as soon as a body exceeds its limit.
- `check_part_count` counts attributes, values and other parts before a request is parsed.
- `Uploads` bounds the memory and the time of all requests that are still arriving.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..compression import ZSTD_MAGIC, LimitExceeded, unzstd
from ..protobuf_stream import read_varint
from ..spool import Encoding, Kind
from .responses import RequestRefused, too_busy

__all__ = [
    "MAX_BYTES",
    "MAX_RECORDS",
    "Upload",
    "Uploads",
    "check_part_count",
    "decompressed",
    "decompressed_grpc",
    "is_compressed",
    "too_large",
    "too_many",
]

MAX_BYTES = 64 << 20
"""The most bytes of a request, as received and decompressed."""
MAX_RECORDS = 250_000
"""The most spans or log records of a request."""
MAX_PARTS = 2_000_000
"""The most parts of a request: spans, log records, attributes, values, events and links. A part
takes 50 to 170 bytes when it is parsed, and a decoded span 1.3 KB: both limits are below 500 MB."""
_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


def too_large(limit: int) -> RequestRefused:
    """The refusal of a request with more bytes than a limit."""
    reason = f"the request has more than {limit >> 20} MiB decompressed; send less at once"
    return RequestRefused(413, "size", reason)


def too_many(name: str, most: int) -> RequestRefused:
    """The refusal of a request with too many parts of one kind."""
    return RequestRefused(
        413, "parts", f"the request has more than {most} {name}; send less at once"
    )


def decompressed(data: bytes, encoding: str, limit: int) -> bytes:
    """The decompressed body.

    Args:
        data: The body.
        encoding: Its content-encoding.
        limit: The most bytes it may decompress to.

    Raises:
        RequestRefused: It is damaged or too large, or the encoding is unknown.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return data
    if encoding in ("gzip", "x-gzip"):
        return _inflated(data, 31, limit)
    if encoding == "deflate":
        return _inflated(data, 15, limit)
    if encoding == "zstd":
        return _unzstd(data, limit)
    raise RequestRefused(
        415, "encoding", f"content-encoding {encoding[:40]!r}: send gzip, zstd or uncompressed"
    )


def _inflated(data: bytes, wbits: int, limit: int) -> bytes:
    out: list[bytes] = []
    size = 0
    try:
        while data:
            member = zlib.decompressobj(wbits=wbits)
            while not member.eof:
                part = member.decompress(data, min(_CHUNK, limit - size + 1))
                data = member.unconsumed_tail
                size += len(part)
                if size > limit:
                    raise too_large(limit)
                out.append(part)
                if not part and not data:
                    raise RequestRefused(400, "compression", "the compressed body ends early")
            data = member.unused_data
    except zlib.error as error:
        reason = f"the compressed body is damaged: {error}"
        raise RequestRefused(400, "compression", reason) from None
    return b"".join(out)


def _unzstd(data: bytes, limit: int) -> bytes:
    try:
        return unzstd(data, limit)
    except LimitExceeded:
        raise too_large(limit) from None
    except ValueError as error:
        raise RequestRefused(400, "compression", str(error)) from None


def decompressed_grpc(data: bytes, limit: int) -> bytes:
    """A gRPC message decompressed.

    gRPC's own decompression has no limit, so the server turns it off and receives messages as sent.
    The first bytes of gzip and zstd never begin an OTLP request: they are invalid tags.

    Raises:
        RequestRefused: It is damaged or too large.
    """
    if data.startswith(_GZIP_MAGIC):
        return decompressed(data, "gzip", limit)
    if data.startswith(ZSTD_MAGIC):
        return decompressed(data, "zstd", limit)
    return data


def is_compressed(data: bytes) -> bool:
    """Whether a gRPC message is compressed."""
    return data.startswith((_GZIP_MAGIC, ZSTD_MAGIC))


# A part takes a hundred times more memory parsed than the two bytes of an empty part on the wire,
# and repeated parts compress to almost nothing. So parts are counted before the request is parsed.
# The first count is an upper bound. It takes microseconds, and real requests do not exceed it. If a
# request does, its parts are counted one by one.

# An unterminated string extends to the end of the body. Searching for its end from every quotation
# mark would take quadratic time, hence the possessive quantifiers and `\Z`.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
# JSON has about two braces, brackets or commas for each part.
_MAX_TOKENS = 2 * MAX_PARTS
_CONTROLS = bytes(range(32))


def check_part_count(kind: Kind, encoding: Encoding, body: bytes) -> None:
    """Refuse a request with too many parts to be parsed.

    Raises:
        RequestRefused: It has more than `MAX_PARTS`.
    """
    if encoding == "json":
        is_many = (
            len(body) > _MAX_TOKENS
            and _tokens(body) > _MAX_TOKENS
            and _tokens(_STRING.sub(b"", body)) > _MAX_TOKENS
        )
    else:
        is_many = _most_parts(body) > MAX_PARTS and _has_too_many_parts(kind, body)
    if is_many:
        raise too_many("attributes and other parts", MAX_PARTS)


def _tokens(body: bytes) -> int:
    return body.count(b"{") + body.count(b"[") + body.count(b",")


def _most_parts(body: bytes) -> int:
    """An upper bound for the number of parts of a protobuf request.

    The length prefix of a part below 32 bytes is a control character. A part with children has a
    child whose tag is a control character. Text contains hardly any control characters.
    """
    if len(body) // 2 <= MAX_PARTS:
        return len(body) // 2
    controls = len(body) - len(body.translate(None, _CONTROLS))
    return 2 * controls + len(body) // 32


_Fields = dict[int, str]
# For each message, the numbers of the fields that contain messages.
_COMMON: dict[str, _Fields] = {
    "resource": {1: "attribute", 3: "leaf"},
    "scope": {3: "attribute"},
    "attribute": {2: "value"},
    "value": {5: "list", 6: "map"},
    "list": {1: "value"},
    "map": {1: "attribute"},
    "leaf": {3: "leaf", 4: "leaf"},
}
_MESSAGES: dict[Kind, dict[str, _Fields]] = {
    "traces": _COMMON
    | {
        "request": {1: "group"},
        "group": {1: "resource", 2: "scoped"},
        "scoped": {1: "scope", 2: "span"},
        "span": {9: "attribute", 11: "event", 13: "link", 15: "leaf"},
        "event": {3: "attribute"},
        "link": {4: "attribute"},
    },
    "logs": _COMMON
    | {
        "request": {1: "group"},
        "group": {1: "resource", 2: "scoped"},
        "scoped": {1: "scope", 2: "record"},
        "record": {5: "value", 6: "attribute"},
    },
}
_FIXED_WIDTHS = {1: 8, 5: 4}


def _has_too_many_parts(kind: Kind, body: bytes) -> bool:
    """Count the parts of a protobuf request on the wire, without allocating them.

    If a message is malformed, its parts count up to the fault; the parser then refuses it.
    """
    messages = _MESSAGES[kind]
    waiting = [(0, len(body), "request")]
    count = 0
    while waiting:
        at, end, name = waiting.pop()
        fields = messages.get(name, {})
        while at < end:
            tag, at = read_varint(body, at)
            wire = tag & 7 if tag is not None else -1
            if wire == 2:
                size, at = read_varint(body, at)
                if size is None:
                    break
                if (child := fields.get(tag >> 3 if tag else 0)) is not None:
                    count += 1
                    if size:
                        waiting.append((at, min(end, at + size), child))
                at += size
            elif wire == 0:
                _, at = read_varint(body, at)
            elif wire in _FIXED_WIDTHS:
                at += _FIXED_WIDTHS[wire]
            else:
                break  # groups, which OTLP does not use, or a truncated tag
            if count > MAX_PARTS:
                return True
    return False


# Every request has this time (s) before a faster request can displace it.
_GRACE = 1.0


class Upload:
    """A request that is still arriving.

    Attributes:
        size: The number of bytes received so far.
    """

    def __init__(self, uploads: Uploads, start: float, timeout: asyncio.Timeout) -> None:
        self.size = 0
        self._uploads = uploads
        self._start = start
        self._timeout = timeout
        self._is_displaced = False

    def add(self, size: int) -> None:
        """Count bytes that have arrived.

        Raises:
            RequestRefused: All requests together have too many, and none can be displaced.
        """
        self.size += size
        self._uploads.reserve(size, self)

    def rate(self, now: float) -> float:
        """The bytes received per second."""
        return self.size / max(now - self._start, 1e-9)

    def can_be_displaced(self, now: float) -> bool:
        """Whether its grace period is over."""
        return now - self._start > _GRACE

    def displace(self, now: float) -> None:
        """End the request with a response that asks the sender to retry."""
        self._is_displaced = True
        if not self._timeout.expired():
            self._timeout.reschedule(now)

    def refusal(self) -> RequestRefused:
        """The response to a request that was displaced or did not arrive in time."""
        if self._is_displaced:
            return too_busy("too much is being received at once", "busy")
        return RequestRefused(408, "slow", "the request did not arrive in time")


class Uploads:
    """The requests that arrive in one event loop, within limits they share.

    Bytes count once they have arrived, not when they are announced. When a limit is reached, the
    request that arrives most slowly is displaced, so that stalled senders block nobody.
    """

    def __init__(self, *, max_bytes: int, max_count: int, timeout: float) -> None:
        """Set the limits.

        Args:
            max_bytes: The most bytes of all requests that were received and not processed yet.
            max_count: The most requests that arrive at once.
            timeout: A request must arrive within this time (s).
        """
        self._max_bytes, self._max_count, self._timeout = max_bytes, max_count, timeout
        self._bytes = 0
        self._arriving: dict[Upload, None] = {}

    @asynccontextmanager
    async def receive(self) -> AsyncIterator[Upload]:
        """Count a request until the block ends, and its bytes until `done`.

        Raises:
            RequestRefused: It takes too long, or was displaced by another request.
        """
        loop = asyncio.get_running_loop()
        if len(self._arriving) >= self._max_count:
            self._displace_slowest(loop.time(), None)
        upload: Upload | None = None
        try:
            async with asyncio.timeout(self._timeout) as timeout:
                upload = Upload(self, loop.time(), timeout)
                self._arriving[upload] = None
                yield upload
        except TimeoutError:
            assert upload is not None
            self.done(upload)
            raise upload.refusal() from None
        finally:
            if upload is not None:
                self._arriving.pop(upload, None)

    def reserve(self, size: int, upload: Upload) -> None:
        """Count bytes of a request, and displace other requests if there are too many.

        Raises:
            RequestRefused: There are too many, and other requests cannot be displaced.
        """
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._displace_slowest(asyncio.get_running_loop().time(), upload)

    def done(self, upload: Upload) -> None:
        """Release the bytes of a request."""
        self._bytes -= upload.size
        upload.size = 0

    def _displace_slowest(self, now: float, newest: Upload | None) -> None:
        displaceable = [
            arrival
            for arrival in self._arriving
            if arrival is not newest and arrival.can_be_displaced(now)
        ]
        if not displaceable:
            raise too_busy("too much is being received at once", "busy")
        slowest = min(displaceable, key=lambda arrival: arrival.rate(now))
        del self._arriving[slowest]
        self.done(slowest)
        slowest.displace(now)
