"""Bytes to spans and log records: requests in `otlp`, other containers beside it, files in `files`.

Read are OTLP/JSON and OTLP protobuf, Jaeger's JSON, and ClickHouse's tables as JSON or Parquet.
Nothing is stored here, and a span that comes twice is given
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
from .parquet import Table
from .parts import Part, read_part, split

__all__ = [
    "Batch",
    "Decoded",
    "Part",
    "Problem",
    "Table",
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
