"""A durable log of OTLP requests: records appended to numbered segment files in one folder.

`LogWriter` appends; only one process may have a writer at a time. `LogReader` follows the log from
any process. A record is durable after `LogWriter.sync`. Every record has a checksum: a record that
a crash cut short or the disk damaged is skipped, and the records after it are still read. The spool
of received requests and the queue of requests to export are both such logs.
"""

from __future__ import annotations

from .reader import LogReader, RecordRange
from .segments import (
    HEADER_BYTES,
    MAGIC,
    Encoding,
    Kind,
    Position,
    Record,
    SegmentMissing,
    missing_segments,
    pack_header,
    remove_before,
    scan,
    segment_path,
    segment_sizes,
)
from .writer import LogWriter, SegmentMoved

__all__ = [
    "HEADER_BYTES",
    "MAGIC",
    "Encoding",
    "Kind",
    "LogReader",
    "LogWriter",
    "Position",
    "Record",
    "RecordRange",
    "SegmentMissing",
    "SegmentMoved",
    "missing_segments",
    "pack_header",
    "remove_before",
    "scan",
    "segment_path",
    "segment_sizes",
]
