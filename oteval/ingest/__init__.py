"""Bytes to spans and log records.

- `trace_files` reads a file of any format, with `compression`, `json_documents` (and
  `incremental_json` for large and damaged documents), `protobuf_stream` and `parquet`; `file_parts`
  cuts a large file to be read in parallel.
- `containers` recognises a JSON document by its keys. Its formats are `jaeger`, `clickhouse`,
  `console_exporter`, `exported_runs`, and OTLP in `otlp`.
- `sdk_objects` converts spans and log records of the Python SDK without encoding them.
- `receiver` accepts OTLP over the network, and `spool` keeps the requests on disk.

Nothing is stored here. A span that occurs twice is returned twice; the store drops duplicates.
Everything that cannot be read is reported, never skipped silently.
"""

from __future__ import annotations

from .file_parts import FilePart, read_part, split_file
from .otlp import (
    Decoded,
    decode_json,
    decode_protobuf,
    decode_protobuf_logs,
    decode_protobuf_traces,
    parse_json,
)
from .parquet import Table
from .trace_files import Batch, Problem, file_size, read

__all__ = [
    "Batch",
    "Decoded",
    "FilePart",
    "Problem",
    "Table",
    "decode_json",
    "decode_protobuf",
    "decode_protobuf_logs",
    "decode_protobuf_traces",
    "file_size",
    "parse_json",
    "read",
    "read_part",
    "split_file",
]
