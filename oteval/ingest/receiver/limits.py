"""What a request may cost: bytes, and bytes once decompressed."""

from __future__ import annotations

import zlib

from ..compression import ZSTD_MAGIC, unzstd
from .answers import Refused

__all__ = ["MAX_BYTES", "decompressed", "is_compressed", "plain_grpc", "too_large"]

MAX_BYTES = 64 << 20
"""The most bytes of a request, as it comes and decompressed."""
_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


def too_large(limit: int) -> Refused:
    """Return the refusal of a request with more bytes than a limit."""
    return Refused(
        413, "size", f"the request has more than {limit >> 20} MiB decompressed; send less at once"
    )


def decompressed(data: bytes, encoding: str, limit: int) -> bytes:
    """Return the content of a compressed body; stops as soon as it passes the limit.

    Args:
        data: The body.
        encoding: Its content-encoding.
        limit: The most bytes it may hold.

    Raises:
        Refused: It is damaged, too large, or compressed in an unknown way.
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
    raise Refused(
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
                    raise Refused(400, "compression", "the compressed body ends early")
            data = member.unused_data
    except zlib.error as error:
        raise Refused(400, "compression", f"the compressed body is damaged: {error}") from None
    return b"".join(out)


def _unzstd(data: bytes, limit: int) -> bytes:
    try:
        return unzstd(data, limit)
    except ValueError as error:
        if "more than" in str(error):
            raise too_large(limit) from None
        raise Refused(400, "compression", str(error)) from None


def plain_grpc(data: bytes, limit: int) -> bytes:
    """Return a gRPC message decompressed.

    gRPC's own decompression has no limit, so it is off and a message comes as it was sent. No OTLP
    request begins with what gzip or zstd begin with: their first byte is no valid field.
    """
    if data.startswith(_GZIP_MAGIC):
        return decompressed(data, "gzip", limit)
    if data.startswith(ZSTD_MAGIC):
        return decompressed(data, "zstd", limit)
    return data


def is_compressed(data: bytes) -> bool:
    """Return whether a gRPC message is compressed."""
    return data.startswith((_GZIP_MAGIC, ZSTD_MAGIC))
