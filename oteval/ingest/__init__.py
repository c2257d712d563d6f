"""Bytes to spans and log records.

- `trace_files` reads a file of any format, with `compression`, `json_documents` (and
  `incremental_json` for large and damaged documents), `protobuf_stream` and `parquet`. It cuts a
  large file to be read in parallel.
- `containers` recognises a JSON document by its keys. Its formats are `jaeger`, `clickhouse`,
  `console_exporter`, `exported_runs`, and OTLP in `otlp`.
- `sdk_objects` converts spans and log records of the Python SDK without encoding them.
- `receiver` accepts OTLP over the network, and `spool` keeps the requests on disk.

Nothing is stored here. A span that occurs twice is returned twice; the store drops duplicates.
Everything that cannot be read is reported, never skipped silently.
"""

import lazy_loader

# Only readers of protobuf import it.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
