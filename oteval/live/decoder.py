"""Spooled requests as rows of the store: ``python -m oteval.live.decoder FOLDER``.

Decoding takes most of the time between a request and its rows, and the interpreter's lock would
keep scoring from running meanwhile. So it is done by children of the process that stores. Each
line of a child's standard input names a stretch of the spool; its standard output has the
stretch's rows in chunks, each a line of JSON and two Arrow streams. A full pipe makes it wait.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from .. import machine
from ..errors import OtevalError
from ..files import sync
from ..ingest import (
    Decoded,
    decode_json,
    decode_protobuf_logs,
    decode_protobuf_traces,
    parse_json,
)
from ..ingest.spool_reader import SpoolReader
from ..ingest.spool_segments import Position, Record, SpoolMissing
from ..model import LogRecord
from ..store.rows import log_table, span_table

__all__ = ["Chunk", "decode", "keep", "receive"]

# A transaction of so many rows takes less than a tenth of a second.
ROWS = 8_192
_BYTES = 64 << 20
# Of the machine's memory, what a child may take, and what it may take in any case.
_SHARE, _LEAST = 0.5, 2 << 30
_NO_MEMORY = 70
_PROBLEMS = 20
_MISSING_WAIT = 0.1
_BEGIN = Position()


@dataclass
class Chunk:
    """Some requests as rows.

    Attributes:
        spans: Their spans, not numbered yet.
        logs: Their log records, not numbered yet.
        end: The position after them.
        requests: How many they are.
        first_ns: When the first was received.
        lost: Bytes of the spool that were no record any more.
        problems: What was left out of them; the first 20.
        rejected: How many of the requests could not be decoded, and are kept as they came.
    """

    spans: pa.Table
    logs: pa.Table
    end: Position = _BEGIN
    requests: int = 0
    first_ns: int = 0
    lost: int = 0
    problems: list[str] = field(default_factory=list)
    rejected: int = 0

    @classmethod
    def empty(cls) -> Chunk:
        """Return a chunk without rows."""
        return cls(span_table((), 0), log_table((), 0))


def decode(record: Record) -> Decoded:
    """Return what a spooled request holds.

    Raises:
        OtevalError: It holds nothing that can be read.
        ValueError: So, too.
    """
    if record.encoding == "json":
        return decode_json(parse_json(record.payload))
    if record.kind == "traces":
        return decode_protobuf_traces(record.payload)
    return decode_protobuf_logs(record.payload)


class _Gathering:
    """A chunk in the making."""

    def __init__(self, is_own: Callable[[LogRecord], bool], rejected: Path) -> None:
        self._is_own, self._rejected = is_own, rejected
        self._spans, self._logs = [span_table((), 0)], [log_table((), 0)]
        self._chunk = Chunk(self._spans[0], self._logs[0])
        self.rows = self.bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it has as much as one transaction should."""
        return self.rows >= ROWS or self.bytes >= _BYTES

    def add(self, record: Record) -> None:
        chunk = self._chunk
        chunk.first_ns = chunk.first_ns or record.time_ns
        chunk.requests += 1
        try:
            found = decode(record)
        except (OtevalError, ValueError, RecursionError) as error:
            path = keep(record, self._rejected)
            found = Decoded(problems=[f"kept in {path}: {error}"])
            chunk.rejected += 1
        logs = [log for log in found.logs if not self._is_own(log)]
        if found.spans:
            self._spans.append(span_table(found.spans, 0))
            self.bytes += self._spans[-1].nbytes
        if logs:
            self._logs.append(log_table(logs, 0))
            self.bytes += self._logs[-1].nbytes
        self.rows += len(found.spans) + len(logs)
        chunk.problems += found.problems[: _PROBLEMS - len(chunk.problems)]

    def chunk(self, end: Position, lost: int) -> Chunk:
        chunk = self._chunk
        chunk.spans, chunk.logs = pa.concat_tables(self._spans), pa.concat_tables(self._logs)
        chunk.end, chunk.lost = end, lost
        return chunk


def keep(record: Record, folder: Path) -> Path:
    """Keep a request that was acknowledged but cannot be decoded; return its durable file."""
    folder.mkdir(exist_ok=True, mode=0o700)
    name = f"{record.end.segment}-{record.end.offset}.{record.kind}.{record.encoding}"
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(folder / name, flags, 0o600), "wb") as file:
        file.write(record.payload)
        file.flush()
        sync(file.fileno())
    return folder / name


def _chunks(
    folder: Path, start: Position, end: Position, is_own: Callable[[LogRecord], bool]
) -> Iterator[Chunk]:
    """Yield the rows of a stretch; the last chunk ends where it does."""
    reader = SpoolReader(folder, start)
    told = 0
    gathering = _Gathering(is_own, folder / "rejected")
    for record in _records(reader, end):
        gathering.add(record)
        if gathering.is_full and record.end < end:
            yield gathering.chunk(record.end, reader.lost - told)
            told = reader.lost
            gathering = _Gathering(is_own, folder / "rejected")
    yield gathering.chunk(end, reader.lost - told)
    reader.close()


def _records(reader: SpoolReader, end: Position) -> Iterator[Record]:
    """Yield the records up to a position, waiting for segments that are not there."""
    while True:
        try:
            yield from reader.records(end)
            return
        except SpoolMissing:
            time.sleep(_MISSING_WAIT)


def _send(out: IO[bytes], chunk: Chunk) -> None:
    head: dict[str, Any] = {
        "end": list(chunk.end),
        "requests": chunk.requests,
        "first_ns": chunk.first_ns,
        "lost": chunk.lost,
        "problems": chunk.problems,
        "rejected": chunk.rejected,
    }
    out.write(json.dumps(head).encode() + b"\n")
    for table in (chunk.spans, chunk.logs):
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
    out.flush()


def receive(out: IO[bytes]) -> Chunk:
    """Return the next chunk of a child's output.

    Raises:
        EOFError: It has ended.
    """
    line = out.readline()
    if not line.endswith(b"\n"):
        raise EOFError("the decoding process has ended")
    head = json.loads(line)
    try:
        spans, logs = (pa.ipc.open_stream(out).read_all() for _ in range(2))
    except (pa.ArrowInvalid, OSError):
        raise EOFError("the decoding process ended in the middle") from None
    return Chunk(spans, logs, Position(*head.pop("end")), **head)


def _limit_memory() -> None:
    """Have this process fail for lack of memory, before others do."""
    limit = max(int(_SHARE * machine.memory()), _LEAST)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def main(arguments: list[str]) -> None:
    """Decode what standard input names, until it ends."""
    from ..attach import is_own

    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    gc.set_threshold(100_000, 20, 100)
    _limit_memory()
    folder = Path(arguments[0])
    for line in sys.stdin:
        start, end = (Position(*place) for place in json.loads(line))
        for chunk in _chunks(folder, start, end, is_own):
            _send(sys.stdout.buffer, chunk)


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        try:
            main(sys.argv[1:])
        except MemoryError:
            # Which request it was, the parent finds out by giving them one by one.
            os._exit(_NO_MEMORY)
