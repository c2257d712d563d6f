"""AWS's event streams, which Bedrock uses for its answers: binary messages with headers.

Each message is its length, the length of its headers and a checksum of the two, then the headers,
the payload, and a checksum of everything. Headers are written here as texts only, as Bedrock does.

https://docs.aws.amazon.com/transcribe/latest/dg/streaming-setting-up.html
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...base.jsontext import dumps, loads

__all__ = ["StreamMessage", "encoded", "is_aws_event_stream", "read_messages"]

_PRELUDE = struct.Struct(">III")
_CHECKSUM = struct.Struct(">I")
_SHORT = struct.Struct(">H")
_TEXT = 7
# The size of the other types' values. Values with a length in front are texts and bytes.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_BYTES = 6


class StreamMessage(NamedTuple):
    """One message of a stream.

    Attributes:
        name: The name of the event or of the exception, or "".
        is_error: Whether it reports an exception.
        fields: The JSON object in its payload.
    """

    name: str
    is_error: bool
    fields: Mapping[str, Any]


def is_aws_event_stream(body: bytes) -> bool:
    """Whether a body begins with a message of such a stream."""
    if len(body) < _PRELUDE.size:
        return False
    _, _, checksum = _PRELUDE.unpack_from(body)
    return bool(zlib.crc32(body[:8]) == checksum)


def read_messages(body: bytes) -> Iterator[StreamMessage]:
    """Yield the messages of a stream, up to a message that the end of the body cuts."""
    start = 0
    while is_aws_event_stream(body[start : start + _PRELUDE.size]):
        length, header_length, _ = _PRELUDE.unpack_from(body, start)
        payload_at = start + _PRELUDE.size + header_length
        end = start + length
        if end > len(body) or payload_at > end - _CHECKSUM.size:
            return
        headers = dict(_headers(body[start + _PRELUDE.size : payload_at]))
        is_error = headers.get(":message-type") in ("exception", "error")
        name = headers.get(":exception-type" if is_error else ":event-type", "")
        yield StreamMessage(name, is_error, _object(body[payload_at : end - _CHECKSUM.size]))
        start = end


def encoded(name: str, fields: Mapping[str, Any]) -> bytes:
    """The message of an event with a JSON payload."""
    headers = b"".join(
        bytes([len(key)]) + key.encode() + bytes([_TEXT]) + _SHORT.pack(len(text)) + text.encode()
        for key, text in (
            (":event-type", name),
            (":content-type", "application/json"),
            (":message-type", "event"),
        )
    )
    payload = dumps(fields).encode()
    length = _PRELUDE.size + len(headers) + len(payload) + _CHECKSUM.size
    lengths = struct.pack(">II", length, len(headers))
    message = lengths + _CHECKSUM.pack(zlib.crc32(lengths)) + headers + payload
    return message + _CHECKSUM.pack(zlib.crc32(message))


def _headers(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the headers that are texts."""
    at = 0
    while at < len(data):
        size = data[at]
        name = data[at + 1 : at + 1 + size].decode("utf-8", "replace")
        at += 1 + size
        kind = data[at] if at < len(data) else 0
        at += 1
        if kind not in (_TEXT, _BYTES):
            at += _SIZES.get(kind, len(data))
            continue
        if at + _SHORT.size > len(data):
            return
        (size,) = _SHORT.unpack_from(data, at)
        at += _SHORT.size
        if kind == _TEXT:
            yield name, data[at : at + size].decode("utf-8", "replace")
        at += size


def _object(payload: bytes) -> Mapping[str, Any]:
    try:
        fields = loads(payload)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
