"""Requests that are almost valid: mutations of the requests of exporters."""

from __future__ import annotations

import base64
import random

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from oteval.base.jsontext import dumps

# More is refused for its size, which says nothing of what is in it.
_MOST = 2 << 20


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def nested(depth: int, inner: bytes = b"\x0a\x01x") -> bytes:
    """Return a request whose one attribute is lists in lists, so many levels deep."""
    value = inner
    for _ in range(depth):
        value = _field(5, _field(1, value))  # AnyValue.array_value.values
    attribute = _field(1, b"deep") + _field(2, value)
    span = _field(1, b"t" * 16) + _field(2, b"s" * 8) + _field(9, attribute)
    return _field(1, _field(2, _field(2, span)))


def json_request(request: ExportTraceServiceRequest) -> bytes:
    """Return a request as OTLP/JSON, whose ids are hexadecimal."""
    document = MessageToDict(request)
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64decode(span[key]).hex()
    return dumps(document).encode()


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return a request with one to four things wrong with it, or none."""
    for _ in range(chance.randrange(5)):
        data = chance.choice(_WAYS)(data, chance)
    return data[:_MOST]


def _flip(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data or b"\0")
    for _ in range(chance.randint(1, 8)):
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _drop(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + data[at + chance.randint(1, 20) :]


def _double(data: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(len(data) + 1)
    end = chance.randint(begin, len(data))
    return data[:end] + data[begin:end] * chance.randint(1, 50) + data[end:]


def _insert(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    odd = (
        b"\xff" * 10,  # a count without end
        _varint((1 << 63) - 1),
        b"\x0a" + _varint(1 << 31),  # a length of 2 GB
        _field(1000, b"unknown"),
        b"\x0b" * 200,  # groups in groups
        b"[" * 2000,
        b'{"a":' * 2000,
        b"9" * 400,
        b"1e999",
        b"NaN",
        b"\\ud800",
        b"\x00",
    )
    return data[:at] + chance.choice(odd) + data[at:]


def _nest(data: bytes, chance: random.Random) -> bytes:
    if data.startswith(b"{"):
        depth = chance.choice((50, 500, 5000))
        value = b'{"arrayValue":{"values":[' * depth + b"{}" + b"]}}" * depth
        return data.replace(b'"stringValue":"shop"', b'"x":%s' % value[1:-1], 1)
    return data + nested(chance.choice((20, 500, 20_000)))


_WAYS = (_flip, _flip, _cut, _drop, _double, _insert, _nest)
