"""Processes that decode the parts of a large file in parallel.

A decoder is a child process: ``python -m oteval.scoring.decoder_process``. It imports only the
stages that it needs, so it starts fast. It reads each part as a line of JSON on standard input, and
writes a line of JSON and two Arrow streams to standard output.
"""

from __future__ import annotations

import gc
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import IO

import pyarrow as pa

from ..base import machine
from ..base.child_process import ChildProcess, read_tables, write_tables
from ..base.errors import InputError
from ..base.text import counted
from ..ingest import FilePart, Problem, read_part
from ..store import log_table, span_table

__all__ = ["DecodedPart", "answer", "decode_part", "decode_parts"]

_CHUNK = 1024
# More processes would decode faster than one process inserts.
_MAX_DECODERS = 4


@dataclass
class DecodedPart:
    """A part of a file as rows of the store.

    Attributes:
        spans: The spans, numbered from 0.
        logs: The log records, numbered from 0.
        problems: The places that could not be read; lines count from the beginning of the part.
        lines: The number of lines of the part.
    """

    spans: pa.Table
    logs: pa.Table
    problems: list[Problem] = field(default_factory=list)
    lines: int = 0


def decode_part(path: str | Path, part: FilePart) -> DecodedPart:
    """Decode a part of a file to rows of the store, in this process."""
    spans, logs = [span_table((), 0)], [log_table((), 0)]
    problems: list[Problem] = []
    lines = 0
    for batch, lines in read_part(path, part, chunk=_CHUNK):  # noqa: B007  the last value is used
        problems += batch.problems
        if batch.runs:
            runs = counted(len(batch.runs), "exported run")
            reason = f"{runs} among OTLP requests; left out: load them from a separate file"
            problems.append(Problem(str(path), None, reason))
        if batch.spans:
            spans.append(span_table(batch.spans, 0))
        if batch.logs:
            logs.append(log_table(batch.logs, 0))
    return DecodedPart(pa.concat_tables(spans), pa.concat_tables(logs), problems, lines)


def _decode_in(child: ChildProcess, path: str, part: FilePart) -> DecodedPart:
    """Decode a part of a file in a child process.

    Raises:
        InputError: The process ended unexpectedly.
    """
    try:
        child.send([path, *part])
        head, (spans, logs) = read_tables(child.output, 2)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{path}: a decoding process ended unexpectedly: {error}") from error
    problems = [Problem(path, line, reason) for line, reason in head["problems"]]
    return DecodedPart(spans, logs, problems, head["lines"])


def answer(requests: Iterable[bytes], out: IO[bytes]) -> None:
    """Decode the parts that lines of JSON name, and write their rows.

    Args:
        requests: The lines.
        out: Receives the answers.
    """
    # Decoding makes millions of objects, and few of them form cycles: searching for cycles takes a
    # third of the time. So garbage is collected after each part, when few objects are left.
    gc.disable()
    gc.freeze()
    for line in requests:
        path, start, end = json.loads(line)
        _send(out, decode_part(path, FilePart(start, end)))
        gc.collect()


def _send(out: IO[bytes], decoded: DecodedPart) -> None:
    problems = [[problem.line, problem.reason] for problem in decoded.problems]
    write_tables(out, {"lines": decoded.lines, "problems": problems}, [decoded.spans, decoded.logs])


def decode_parts(path: str, parts: Sequence[FilePart]) -> Iterator[tuple[FilePart, DecodedPart]]:
    """Decode the parts of a file on several processors, and yield them in order.

    Args:
        path: The file.
        parts: Its parts.

    Yields:
        Each part with its rows. The lines of problems count from the beginning of the file.

    Raises:
        InputError: A decoding process ended unexpectedly.
    """
    count = min(machine.processors(), _MAX_DECODERS)
    children = [ChildProcess("oteval.scoring.decoder_process") for _ in range(count)]
    free: SimpleQueue[ChildProcess] = SimpleQueue()
    for child in children:
        free.put(child)

    def decode(part: FilePart) -> DecodedPart:
        child = free.get()
        try:
            return _decode_in(child, path, part)
        finally:
            free.put(child)

    executor = ThreadPoolExecutor(len(children))
    try:
        lines = 0
        for part, decoded in _in_order(executor, decode, parts, ahead=2 * len(children)):
            for index, problem in enumerate(decoded.problems):
                if problem.line is not None:
                    decoded.problems[index] = Problem(path, problem.line + lines, problem.reason)
            lines += decoded.lines
            yield part, decoded
    finally:
        executor.shutdown(cancel_futures=True)
        for child in children:
            child.close()


def _in_order(
    executor: ThreadPoolExecutor,
    decode: Callable[[FilePart], DecodedPart],
    parts: Sequence[FilePart],
    *,
    ahead: int,
) -> Iterator[tuple[FilePart, DecodedPart]]:
    """Yield parts with their results in order, and decode up to `ahead` parts in advance."""
    queued: deque[tuple[FilePart, Future[DecodedPart]]] = deque()
    waiting = iter(parts)
    while True:
        while len(queued) < ahead and (part := next(waiting, None)) is not None:
            queued.append((part, executor.submit(decode, part)))
        if not queued:
            return
        done, future = queued.popleft()
        yield done, future.result()
