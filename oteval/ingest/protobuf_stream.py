"""Read OTLP protobuf files message by message.

A file is one message, or a stream of messages. In a stream, the length of each message precedes it
in 4 big-endian bytes, as the Collector's file exporter writes it. With compression, the exporter
compresses each message separately; a compressed message may also be JSON. A file has no header that
shows its kind, so `is_stream` and `is_message` examine its first bytes.

A single message is read entry by entry: concatenated protobuf messages are one message with the
entries of all. If a message is truncated, its complete spans are kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from oteval.base.errors import InputError

from . import otlp
from .compression import ZSTD_MAGIC, ByteStream, unzstd
from .otlp import Decoded, decode_json, parse_json

__all__ = ["MAX_MESSAGE", "is_message", "is_stream", "read_message", "read_stream", "read_varint"]

MAX_MESSAGE = 256 << 20
_ENTRY = 0x0A  # resource_spans or resource_logs
_SCOPES = 0x12  # scope_spans or scope_logs
_SCHEMA_URL = 0x1A
_EMPTY_ENTRY = b"\x0a\0"
_OUTER = (_ENTRY, _SCOPES)


def is_stream(head: bytes) -> bool:
    """Whether a file that begins with `head` is a stream of messages with their lengths."""
    while head.startswith(bytes(4)):  # messages without any content
        head = head[4:]
    size = int.from_bytes(head[:4], "big")
    message = head[4 : 4 + size]
    return size <= MAX_MESSAGE and (message.startswith(ZSTD_MAGIC) or is_message(message, size))


def is_message(head: bytes, size: int = MAX_MESSAGE) -> bool:
    """Whether `head` begins an OTLP message of at most `size` bytes.

    The message, its first entry and the first field of the entry must each begin with a tag that
    OTLP allows there. The entry and the field must also fit into the part around them.
    """
    while head.startswith(_EMPTY_ENTRY) and head != _EMPTY_ENTRY:
        head, size = head[2:], size - 2
    at, end = 0, size
    allowed = bytes([_ENTRY])
    for _ in range(3):
        if at >= min(end, len(head)):
            return at > 0
        tag = head[at]
        if tag not in allowed:
            return False
        length, at = read_varint(head, at + 1)
        if length is None:
            return len(head) > 1
        if at + length > end:
            return False
        end = at + length
        if tag == _SCHEMA_URL:
            return True
        # An entry has a resource, scopes and a schema URL, which contain attributes or records.
        allowed = bytes([_ENTRY, _SCOPES, _SCHEMA_URL])
    return True


def read_stream(stream: ByteStream) -> Iterator[Decoded | str]:
    """Yield the content of each message of a stream, and a line for each unreadable message."""
    while prefix := stream.take(4):
        offset = stream.offset - len(prefix)
        size = int.from_bytes(prefix, "big")
        if len(prefix) < 4:
            yield f"the file ends within a message's length at byte {offset}"
            return
        if size > MAX_MESSAGE:
            yield f"a message of {size} bytes at byte {offset} is too long; the rest is skipped"
            return
        data = stream.take(size)
        if len(data) < size:
            yield from _truncated(data, f"the message at byte {offset} is cut")
            return
        try:
            yield _decode(data)
        except ValueError as error:
            yield f"the message at byte {offset} cannot be read ({error}); message skipped"


def read_message(stream: ByteStream) -> Iterator[Decoded | str]:
    """Yield the content of one message entry by entry, and a line for each unreadable entry."""
    while tag := stream.take(1):
        offset = stream.offset - 1
        prefix = stream.head(10)
        size, used = read_varint(prefix, 0)
        if tag[0] != _ENTRY:
            yield f"no OTLP entry begins at byte {offset}; the rest is skipped"
            return
        if size is None or size > MAX_MESSAGE:
            yield f"the entry at byte {offset} is cut or too long; the rest is skipped"
            return
        data = tag + stream.take(used + size)
        if len(data) < 1 + used + size:
            yield from _truncated(data, f"the message is cut in the entry at byte {offset}")
            return
        try:
            yield otlp.decode_protobuf(data)
        except InputError as error:
            yield f"the entry at byte {offset} cannot be read ({error}); entry skipped"


def _decode(data: bytes) -> Decoded:
    if data.startswith(ZSTD_MAGIC):
        data = unzstd(data, MAX_MESSAGE)
    if data.startswith(b"{"):
        return decode_json(parse_json(data))
    return otlp.decode_protobuf(data)


def _truncated(data: bytes, source: str) -> Iterator[Decoded | str]:
    """Yield the complete spans of a truncated message, and a line that reports it."""
    try:
        decoded = otlp.decode_protobuf(_complete_part(data, _OUTER))
    except InputError:
        decoded = Decoded()
    yield decoded
    count = len(decoded.spans) + len(decoded.logs)
    yield f"{source}; {count} spans and log records before the cut are kept"


def _complete_part(data: bytes, path: tuple[int, ...]) -> bytes:
    """A truncated message without its incomplete fields.

    Args:
        data: The beginning of the message.
        path: The tags of nested fields. An incomplete field on the path is shortened and kept.
    """
    at = 0
    while at < len(data):
        start = at
        tag, at = read_varint(data, at)
        end = None if tag is None else _field_end(data, at, tag & 7)
        if end is not None and end <= len(data):
            at = end
            continue
        if end is not None and path and tag == path[0]:
            content = _complete_part(data[read_varint(data, at)[1] :], path[1:])
            return data[: start + 1] + _varint_bytes(len(content)) + content
        return data[:start]
    return data


def _field_end(data: bytes, at: int, wire_type: int) -> int | None:
    """The end of the field with its content at `at`; None if it is not known."""
    if wire_type in (0, 2):
        value, after = read_varint(data, at)
        return None if value is None else after + (value if wire_type == 2 else 0)
    return at + {1: 8, 5: 4}.get(wire_type, len(data) + 1)


def read_varint(data: bytes, at: int) -> tuple[int | None, int]:
    """The number at `at`, None if it is truncated or too long, and the index after it."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            return None, at
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return None, at


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
