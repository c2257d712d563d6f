"""OTLP bytes to spans and log records: requests in `otlp`, files in `files`.

Read are OTLP/JSON and OTLP protobuf. Nothing is stored here, and a span that comes twice is given
twice; the store drops duplicates. What cannot be read is told, never passed over in silence.
"""

from __future__ import annotations

from .files import Batch, Problem, read, size
from .otlp import (
    Decoded,
    decode_json,
    decode_protobuf,
    decode_protobuf_logs,
    decode_protobuf_traces,
    parse_json,
)
from .parts import Part, read_part, split

__all__ = [
    "Batch",
    "Decoded",
    "Part",
    "Problem",
    "decode_json",
    "decode_protobuf",
    "decode_protobuf_logs",
    "decode_protobuf_traces",
    "parse_json",
    "read",
    "read_part",
    "size",
    "split",
]
