"""Spooled requests as rows of the store, in a process of its own.

Decoding takes most of the time between a request and its rows, and the interpreter's lock would
keep scoring from running meanwhile. A child, ``python -m oteval.live.decoder``, follows the spool
from a position on and writes chunks to its standard output: a line of JSON, then two Arrow
streams. A full pipe makes it wait.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from ..errors import OtevalError
from ..ingest import (
    Decoded,
    decode_json,
    decode_protobuf_logs,
    decode_protobuf_traces,
    parse_json,
)
from ..ingest.spool import Position, Record
from ..ingest.spool_reader import SpoolReader
from ..model import LogRecord
from ..store.rows import log_table, span_table

__all__ = ["Chunk", "Decoder", "decode"]

# As many rows as a row group of the store has.
ROWS = 16_384
BYTES = 64 << 20
# So many bytes are read of the spool at once.
_READ = 4 << 20
_IDLE = 0.02
_PROBLEMS = 20


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
    """

    spans: pa.Table
    logs: pa.Table
    end: Position
    requests: int = 0
    first_ns: int = 0
    lost: int = 0
    problems: list[str] = field(default_factory=list)


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

    def __init__(self, is_own: Callable[[LogRecord], bool]) -> None:
        self._is_own = is_own
        self._spans = [span_table((), 0)]
        self._logs = [log_table((), 0)]
        self._rows = self._bytes = 0
        self._chunk = Chunk(self._spans[0], self._logs[0], Position())
        self._begun = 0.0

    def add(self, record: Record, rejected: Path) -> None:
        chunk = self._chunk
        if not chunk.requests:
            chunk.first_ns = record.time_ns
            self._begun = time.monotonic()
        chunk.requests += 1
        chunk.end = record.end
        self._bytes += len(record.payload)
        try:
            found = decode(record)
        except (OtevalError, ValueError, RecursionError) as error:
            _keep(record, rejected)
            found = Decoded(problems=[f"kept in {rejected}: {error}"])
        logs = [log for log in found.logs if not self._is_own(log)]
        if found.spans:
            self._spans.append(span_table(found.spans, 0))
        if logs:
            self._logs.append(log_table(logs, 0))
        self._rows += len(found.spans) + len(logs)
        chunk.problems += found.problems[: _PROBLEMS - len(chunk.problems)]

    def is_due(self, age: float) -> bool:
        if not self._chunk.requests:
            return False
        return self._rows >= ROWS or self._bytes >= BYTES or time.monotonic() - self._begun >= age

    def take(self, lost: int) -> Chunk:
        chunk = self._chunk
        chunk.spans, chunk.logs = pa.concat_tables(self._spans), pa.concat_tables(self._logs)
        chunk.lost = lost
        self.__init__(self._is_own)  # type: ignore[misc]
        return chunk


def _keep(record: Record, folder: Path) -> None:
    """Keep a request that was acknowledged but cannot be read."""
    folder.mkdir(exist_ok=True, mode=0o700)
    name = f"{record.end.segment}-{record.end.offset}.{record.kind}.{record.encoding}"
    (folder / name).write_bytes(record.payload)


class Decoder:
    """The child, as its parent has it."""

    def __init__(self, folder: Path, start: Position, age: float) -> None:
        """Start decoding.

        Args:
            folder: The spool.
            start: Where to begin.
            age: After how many seconds a chunk is given, however small.
        """
        root = str(Path(__file__).parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(  # noqa: S603  none of it comes from outside
            [sys.executable, "-m", "oteval.live.decoder", str(folder), *map(str, start), str(age)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pipesize=1 << 20,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def next(self) -> Chunk:
        """Return the next chunk, when there is one.

        Raises:
            EOFError: The process has ended.
        """
        out = self._process.stdout
        assert out is not None
        line = out.readline()
        if not line.endswith(b"\n"):
            raise EOFError(f"the decoding process ended with status {self._process.wait()}")
        head = json.loads(line)
        spans, logs = (_received(out, size) for size in head.pop("sizes"))
        return Chunk(spans, logs, Position(*head.pop("end")), **head)

    def close(self) -> None:
        """End the process; `next` then raises EOFError."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def release(self) -> None:
        """Close what is left of it, when nobody waits for `next` any more."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def _received(out: IO[bytes], size: int) -> pa.Table:
    data = out.read(size)
    if len(data) < size:
        raise EOFError("the decoding process ended in the middle")
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def _send(out: IO[bytes], chunk: Chunk) -> None:
    streams = []
    for table in (chunk.spans, chunk.logs):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        streams.append(sink.getvalue())
    head: dict[str, Any] = {
        "end": list(chunk.end),
        "requests": chunk.requests,
        "first_ns": chunk.first_ns,
        "lost": chunk.lost,
        "problems": chunk.problems,
        "sizes": [stream.size for stream in streams],
    }
    out.write(json.dumps(head).encode() + b"\n")
    for stream in streams:
        out.write(stream)
    out.flush()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main(arguments: list[str]) -> None:
    """Follow the spool until the parent has had enough."""
    from ..attach import is_own

    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    gc.set_threshold(100_000, 20, 100)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    folder, age = Path(arguments[0]), float(arguments[3])
    reader = SpoolReader(folder, Position(int(arguments[1]), int(arguments[2])))
    gathering = _Gathering(is_own)
    told = 0
    while True:
        records = reader.read(_READ)
        for record in records:
            gathering.add(record, folder / "rejected")
            if gathering.is_due(age):
                _send(sys.stdout.buffer, gathering.take(reader.lost - told))
                told = reader.lost
        if not records:
            if gathering.is_due(age):
                _send(sys.stdout.buffer, gathering.take(reader.lost - told))
                told = reader.lost
            time.sleep(_IDLE)


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main(sys.argv[1:])
