"""Decoding the parts of a big file in several processes, each a plain child of this one.

A child is started as ``python -m oteval.decoding``: not by `multiprocessing`, which would run the
caller's main module again, and beside `pipeline` rather than in it, to start fast. It is told a
part on its standard input, a line of JSON, and answers on its standard output with a line of JSON
followed by two Arrow streams.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import pyarrow as pa

from . import machine
from .errors import InputError
from .ingest import Part, Problem, read_part
from .store.rows import log_table, span_table
from .text import counted

__all__ = ["DecodedPart", "decode_part", "decode_parts"]

_CHUNK = 1024
# More would decode faster than one process inserts.
_MAX_CHILDREN = 4


@dataclass
class DecodedPart:
    """A part of a file as rows of the store.

    Attributes:
        spans: The spans, numbered from 0.
        logs: The log records, numbered from 0.
        problems: What was not read; lines count from the part's first.
        lines: How many lines the part has.
    """

    spans: pa.Table
    logs: pa.Table
    problems: list[Problem] = field(default_factory=list)
    lines: int = 0


def decode_part(path: str | Path, part: Part) -> DecodedPart:
    """Return a part of a file as rows of the store."""
    spans, logs = [span_table((), 0)], [log_table((), 0)]
    problems: list[Problem] = []
    lines = 0
    for batch, lines in read_part(path, part, chunk=_CHUNK):  # noqa: B007  the last one counts
        problems += batch.problems
        if batch.runs:
            reason = f"{counted(len(batch.runs), 'exported run')} among OTLP requests; left out"
            problems.append(Problem(str(path), None, f"{reason}: load them from their own file"))
        if batch.spans:
            spans.append(span_table(batch.spans, 0))
        if batch.logs:
            logs.append(log_table(batch.logs, 0))
    return DecodedPart(pa.concat_tables(spans), pa.concat_tables(logs), problems, lines)


class _Child:
    """Decodes in a process of its own."""

    def __init__(self) -> None:
        # The child finds the package where this process has it, wherever that is.
        root = str(Path(__file__).parents[1])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "oteval.decoding"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pipesize=1 << 20,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )

    def decode(self, path: str, part: Part) -> DecodedPart:
        into, out = self._process.stdin, self._process.stdout
        assert into is not None
        assert out is not None
        try:
            into.write(json.dumps([path, *part]).encode() + b"\n")
            into.flush()
            return _receive(out, path)
        except (OSError, ValueError, pa.ArrowInvalid) as error:
            raise InputError(f"{path}: a decoding process ended unexpectedly: {error}") from error

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self._process.wait()


def _receive(out: IO[bytes], path: str) -> DecodedPart:
    head = json.loads(out.readline())
    tables = [
        pa.ipc.open_stream(pa.py_buffer(_exactly(out, size))).read_all() for size in head["sizes"]
    ]
    problems = [Problem(path, line, reason) for line, reason in head["problems"]]
    return DecodedPart(tables[0], tables[1], problems, head["lines"])


def _exactly(out: IO[bytes], size: int) -> bytes:
    data = out.read(size)
    if len(data) < size:
        raise ValueError("its answer is cut")
    return data


def _send(out: IO[bytes], found: DecodedPart) -> None:
    streams = []
    for table in (found.spans, found.logs):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        streams.append(sink.getvalue())
    problems = [[problem.line, problem.reason] for problem in found.problems]
    sizes = [stream.size for stream in streams]
    head = {"lines": found.lines, "problems": problems, "sizes": sizes}
    out.write(json.dumps(head).encode() + b"\n")
    for stream in streams:
        out.write(stream)
    out.flush()


def processors() -> int:
    """Return how many processes to decode in."""
    return min(machine.processors(), _MAX_CHILDREN)


def decode_parts(path: str, parts: Sequence[Part]) -> Iterator[tuple[Part, DecodedPart]]:
    """Decode the parts of a file on all processors, and yield them in the file's order.

    Args:
        path: The file.
        parts: Its parts.

    Yields:
        Each part as rows; the lines of its problems count from the file's first.

    Raises:
        InputError: A decoding process ended before its time.
    """
    children = [_Child() for _ in range(processors())]
    free: SimpleQueue[_Child] = SimpleQueue()
    for child in children:
        free.put(child)

    def decode(part: Part) -> DecodedPart:
        child = free.get()
        try:
            return child.decode(path, part)
        finally:
            free.put(child)

    executor = ThreadPoolExecutor(len(children))
    try:
        lines = 0
        for part, found in _in_order(executor, decode, parts, ahead=2 * len(children)):
            for index, problem in enumerate(found.problems):
                if problem.line is not None:
                    found.problems[index] = Problem(path, problem.line + lines, problem.reason)
            lines += found.lines
            yield part, found
    finally:
        executor.shutdown(cancel_futures=True)
        for child in children:
            child.close()


def _in_order(
    executor: ThreadPoolExecutor,
    decode: Callable[[Part], DecodedPart],
    parts: Sequence[Part],
    *,
    ahead: int,
) -> Iterator[tuple[Part, DecodedPart]]:
    """Yield parts with their results in order, a few decoded ahead of the one that is yielded."""
    queued: deque[tuple[Part, Future[DecodedPart]]] = deque()
    waiting = iter(parts)
    while True:
        while len(queued) < ahead and (part := next(waiting, None)) is not None:
            queued.append((part, executor.submit(decode, part)))
        if not queued:
            return
        done, future = queued.popleft()
        yield done, future.result()


def main() -> None:
    """Decode the parts named on standard input until it ends."""
    # Ctrl-C is for the parent, which then closes the streams.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(100_000, 20, 100)
    with suppress(BrokenPipeError):
        for line in sys.stdin.buffer:
            path, start, end = json.loads(line)
            _send(sys.stdout.buffer, decode_part(path, Part(start, end)))


if __name__ == "__main__":
    main()
