"""A child process that decodes stretches of the spool to rows of the store.

It reads stretches from its standard input, one JSON line each, and writes their rows in chunks: a
line of JSON and two Arrow streams. `decoder` is the side of the parent.

Most requests are for traces in protobuf. These become columns together, without an object for
each span; the others are decoded one by one.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from ..base import machine
from ..base.child_process import leave_out
from ..base.durable_log import LogReader, Position, Record, SegmentMissing
from ..base.errors import OtevalError
from ..ingest import (
    Decoded,
    RequestSpans,
    decode_json,
    decode_protobuf_logs,
    decode_protobuf_traces,
    parse_json,
    read_columns,
    request_spans,
)
from ..model import LogRecord
from ..store import log_table, span_column_table, span_table
from .decoder import READY, DecodedChunk, keep_rejected

__all__ = ["ROWS", "ChunkBuilder", "decode", "main"]

# A chunk of this many rows or bytes is stored in some tenth of a second. A stretch of spans of
# usual size has fewer rows, and becomes one chunk.
ROWS = 12_288
_CHUNK_BYTES = 64 << 20
# A child may use this share of the machine's memory, and at least this much.
_MEMORY_SHARE, _MIN_MEMORY = 0.5, 2 << 30
_EXIT_NO_MEMORY = 70
_MAX_PROBLEMS = 20
_MISSING_POLL = 0.1  # seconds
# How often requests are read together before all are decoded one by one.
_MAX_ROUNDS = 3


def decode(record: Record) -> Decoded:
    """Decode a spooled request.

    Raises:
        OtevalError: The request is not OTLP.
        ValueError: The request is malformed.
    """
    if record.encoding == "json":
        return decode_json(parse_json(record.payload))
    if record.kind == "traces":
        return decode_protobuf_traces(record.payload)
    return decode_protobuf_logs(record.payload)


class ChunkBuilder:
    """Collects requests until they fill a chunk.

    Args:
        is_own: Whether a log record is one of oteval's scores, which are not stored again.
        rejected: The folder for requests that cannot be decoded.
    """

    def __init__(self, is_own: Callable[[LogRecord], bool], rejected: Path) -> None:
        self._is_own, self._rejected = is_own, rejected
        self._chunk = DecodedChunk()
        self._spans, self._logs = [self._chunk.spans], [self._chunk.logs]
        self._plain: list[tuple[Record, RequestSpans]] = []
        self._rows = self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the chunk has enough rows or bytes."""
        return self._rows >= ROWS or self._bytes >= _CHUNK_BYTES

    def add(self, record: Record) -> None:
        """Add a request."""
        self._chunk.first_ns = self._chunk.first_ns or record.time_ns
        self._chunk.requests += 1
        if (spans := _plain_spans(record)) is None:
            self._add_plain()
            self._add_decoded(record)
            return
        if spans.start:
            self._plain.append((record, spans))
        self._rows += len(spans.start)
        self._bytes += len(record.payload)

    def _add_plain(self) -> None:
        """Add the rows of the plain requests so far."""
        if not self._plain:
            return
        plain, self._plain = self._plain, []
        table, odd = _plain_rows([spans for _, spans in plain])
        # Rows stay together as far as possible: each table becomes a batch in the database's input.
        first = last = 0
        for index, (record, spans) in enumerate(plain):
            if index not in odd:
                last += len(spans.start)
                continue
            self._spans.append(table.slice(first, last - first))
            first = last
            self._rows -= len(spans.start)
            self._bytes -= len(record.payload)
            self._add_decoded(record)
        self._spans.append(table.slice(first))

    def _add_decoded(self, record: Record) -> None:
        chunk = self._chunk
        try:
            decoded = decode(record)
        except (OtevalError, ValueError, RecursionError) as error:
            path = keep_rejected(record, self._rejected)
            decoded = Decoded(problems=[f"kept in {path}: {error}"])
            chunk.rejected += 1
        logs = [log for log in decoded.logs if not self._is_own(log)]
        if decoded.spans:
            self._spans.append(span_table(decoded.spans, 0))
            self._bytes += self._spans[-1].nbytes
        if logs:
            self._logs.append(log_table(logs, 0))
            self._bytes += self._logs[-1].nbytes
        self._rows += len(decoded.spans) + len(logs)
        chunk.problems += decoded.problems[: _MAX_PROBLEMS - len(chunk.problems)]

    def build(self, end: Position, lost: int) -> DecodedChunk:
        """The chunk.

        Args:
            end: The position in the spool after its last request.
            lost: The bytes of the spool that were damaged.
        """
        self._add_plain()
        chunk = self._chunk
        chunk.spans, chunk.logs = pa.concat_tables(self._spans), pa.concat_tables(self._logs)
        chunk.end, chunk.lost = end, lost
        return chunk


def _plain_spans(record: Record) -> RequestSpans | None:
    if record.kind != "traces" or record.encoding == "json":
        return None
    return request_spans(record.payload)


def _plain_rows(requests: Sequence[RequestSpans]) -> tuple[pa.Table, set[int]]:
    """The rows of requests, and the indexes of requests that must be decoded one by one."""
    left = list(range(len(requests)))
    for _ in range(_MAX_ROUNDS):
        columns, odd = read_columns([requests[index] for index in left])
        if columns is not None:
            try:
                return span_column_table(columns), set(range(len(requests))).difference(left)
            except UnicodeDecodeError:
                break
        left = [index for position, index in enumerate(left) if position not in odd]
    return span_table((), 0), set(range(len(requests)))


def _decode_stretch(
    folder: Path, start: Position, end: Position, is_own: Callable[[LogRecord], bool]
) -> Iterator[DecodedChunk]:
    """Yield the chunks of a stretch; the last chunk ends where the stretch does."""
    reader = LogReader(folder, start)
    lost_before = 0
    builder = ChunkBuilder(is_own, folder / "rejected")
    for record in _records(reader, end):
        builder.add(record)
        if builder.is_full and record.end < end:
            yield builder.build(record.end, reader.damaged_bytes - lost_before)
            lost_before = reader.damaged_bytes
            builder = ChunkBuilder(is_own, folder / "rejected")
    yield builder.build(end, reader.damaged_bytes - lost_before)
    reader.close()


def _records(reader: LogReader, end: Position) -> Iterator[Record]:
    """Yield the records up to a position, and wait for segments that are missing."""
    while True:
        try:
            yield from reader.records(end)
            return
        except SegmentMissing:
            time.sleep(_MISSING_POLL)


def _is_own(log: LogRecord) -> bool:
    # A second process starts in a burst, mostly without log records: this import takes 45 ms.
    from ..scoring import is_own

    return is_own(log)


def _limit_memory() -> None:
    """Make this process run out of memory before the machine does."""
    limit = max(int(_MEMORY_SHARE * machine.memory()), _MIN_MEMORY)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def main(arguments: list[str]) -> None:
    """Decode the stretches that standard input names, until it ends."""
    # Arrow would import it for the first array, which takes as long as the start of this process.
    leave_out("pandas")
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    gc.set_threshold(100_000, 20, 100)
    _limit_memory()
    folder = Path(arguments[0])
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    for line in sys.stdin:
        start, end = (Position(*values) for values in json.loads(line))
        for chunk in _decode_stretch(folder, start, end, _is_own):
            chunk.write(sys.stdout.buffer)


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        try:
            main(sys.argv[1:])
        except MemoryError:
            # The parent finds the request that caused it by sending them one by one.
            os._exit(_EXIT_NO_MEMORY)
