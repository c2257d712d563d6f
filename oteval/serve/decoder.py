"""Have spooled requests decoded to rows of the store, in child processes of the storage process.

Decoding takes most of the time between a request and its rows, and would block scoring if it ran in
the same interpreter. So it runs in a child (`decoder_child`); in a burst, it runs in two.
`SpoolDecoder` is the side of the parent.

A child that ends or falls silent is replaced, and its requests are decoded again one by one. A
request that ends its child twice on its own is set aside in ``rejected/``, so that it does not
block other requests.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from ..base import machine
from ..base.child_process import ChildProcess, read_tables, write_tables
from ..base.durable_log import LogReader, Position, Record, RecordRange, SegmentMissing
from ..base.files import sync
from ..store import log_table, span_table

__all__ = ["READY", "DecodedChunk", "SpoolDecoder", "keep_rejected"]

_log = logging.getLogger(__name__)

# Bytes of the spool in one stretch. A second child starts when so many were received before the
# age when requests are decoded anyway: its start takes as long as decoding two stretches.
_STRETCH_SIZE = _BURST = 16 << 20
_MAX_CHILDREN = min(2, machine.processors())
_STRETCHES_PER_CHILD = 2  # the stretch that it decodes, and the next
_IDLE_POLL = 0.02  # seconds
# Seconds without a burst after which the second child ends, which frees its memory.
_BURST_TIMEOUT = 30.0
# Seconds of silence after which a child is replaced. A single request gets more, by its size.
SILENCE_TIMEOUT = 30.0
_ALONE_FACTOR, _ALONE_SECONDS_PER_MB = 4, 2.0
# How often a request may end its child while it is decoded on its own.
_MAX_ATTEMPTS = 2
# How often children are replaced in a row before anything is decoded.
_MAX_RESTARTS = 8
READY = b"\n"
"""The first output of a child, when it has imported everything."""


@dataclass
class DecodedChunk:
    """Some requests as rows.

    Attributes:
        spans: Their spans, not numbered yet.
        logs: Their log records, not numbered yet.
        end: The position in the spool after them.
        requests: The number of requests.
        first_ns: When the first request was received.
        lost: Bytes of the spool that were damaged.
        problems: The parts that were left out; the first 20.
        rejected: The number of requests that could not be decoded and were kept as received.
    """

    spans: pa.Table = field(default_factory=lambda: span_table((), 0))
    logs: pa.Table = field(default_factory=lambda: log_table((), 0))
    end: Position = Position()  # noqa: RUF009  immutable
    requests: int = 0
    first_ns: int = 0
    lost: int = 0
    problems: list[str] = field(default_factory=list)
    rejected: int = 0

    def write(self, out: IO[bytes]) -> None:
        """Write the chunk to a pipe."""
        head: dict[str, Any] = {
            "end": list(self.end),
            "requests": self.requests,
            "first_ns": self.first_ns,
            "lost": self.lost,
            "problems": self.problems,
            "rejected": self.rejected,
        }
        write_tables(out, head, [self.spans, self.logs])

    @classmethod
    def read(cls, stream: IO[bytes]) -> DecodedChunk:
        """Read the next chunk from a pipe.

        Raises:
            EOFError: The child has ended.
        """
        head, (spans, logs) = read_tables(stream, 2)
        return cls(spans, logs, Position(*head.pop("end")), **head)


def keep_rejected(record: Record, folder: Path) -> Path:
    """Write an acknowledged request that cannot be decoded to a durable file; return its path."""
    folder.mkdir(exist_ok=True, mode=0o700)
    name = f"{record.end.segment}-{record.end.offset}.{record.kind}.{record.encoding}"
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(folder / name, flags, 0o600), "wb") as file:
        file.write(record.payload)
        file.flush()
        sync(file.fileno())
    return folder / name


class _DecoderProcess(ChildProcess):
    """A child that decodes stretches."""

    def __init__(self, folder: Path) -> None:
        # NumPy would start a thread for linear algebra on each core, with memory for each.
        single = {"OPENBLAS_NUM_THREADS": "1"}
        super().__init__("oteval.serve.decoder_child", str(folder), environment=single)
        self._is_ready = False

    @property
    def is_ready(self) -> bool:
        """Whether the child has started, or has ended."""
        if not self._is_ready and select.select([self.output], [], [], 0)[0]:
            self._await_start()
        return self._is_ready

    def _await_start(self) -> None:
        if not self._is_ready:
            self.output.read(len(READY))
            self._is_ready = True

    def decode(self, stretch: RecordRange) -> None:
        """Make the child decode a stretch.

        Raises:
            EOFError: The child has ended.
        """
        self.send([stretch.start, stretch.end])

    def next_chunk(self, timeout: float) -> DecodedChunk:
        """The child's next chunk; after `timeout` seconds, kill the child.

        Raises:
            EOFError: The child has ended.
        """
        watchdog = threading.Timer(timeout, self.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            self._await_start()
            return DecodedChunk.read(self.output)
        finally:
            watchdog.cancel()


class SpoolDecoder:
    """Returns the requests of a spool as chunks of rows, in order.

    All methods but `close` are called by one thread.
    """

    def __init__(
        self,
        folder: Path,
        start: Position,
        age: float,
        *,
        lost: Collection[int] = (),
        clock: Callable[[], float] = time.monotonic,
        timeout: float = SILENCE_TIMEOUT,
    ) -> None:
        """Start the first child.

        Args:
            folder: The spool.
            start: The position to begin at.
            age: The seconds after which requests are decoded even if they fill no stretch.
            lost: The segments whose predecessors are known to be missing.
            clock: A monotonic clock (s).
            timeout: The seconds of silence after which a child is replaced.
        """
        self._folder, self._age, self._clock = folder, age, clock
        self._timeout = timeout
        self._spool = LogReader(folder, start, known_gaps=lost)
        self._first_seen: tuple[Position, float] = (start, 0.0)
        self._lock = threading.Lock()
        self._is_closed = False
        self._children = [_DecoderProcess(folder)]
        # The stretches that were sent, each with its child.
        self._assignments: deque[tuple[_DecoderProcess, RecordRange]] = deque()
        self._last_burst = 0.0
        # The position up to which chunks were returned, and the position up to which requests are
        # decoded one by one, because a child ended before it.
        self._decoded = self._suspect_end = start
        self._attempts = self._restarts = 0

    @property
    def pids(self) -> list[int]:
        """The process ids of the children."""
        return [child.pid for child in self._children]

    def next(self) -> DecodedChunk | None:
        """The next chunk; None when there is nothing to decode now.

        Raises:
            EOFError: Children end whatever they decode, or `close` was called.
            SegmentMissing: The next request was acknowledged, and cannot be found.
        """
        if self._decoded < self._suspect_end:
            return self._next_alone()
        try:
            self._assign()
        except SegmentMissing:
            if not self._assignments:
                raise
        except EOFError:
            self._replace_children()
            return None
        if not self._assignments:
            if any(child.has_ended for child in self._children):
                self._replace_children()
                return None
            time.sleep(_IDLE_POLL)
            return None
        child, stretch = self._assignments[0]
        try:
            chunk = child.next_chunk(self._timeout)
        except EOFError:
            self._replace_children()
            return None
        if chunk.end == stretch.end:
            self._assignments.popleft()
        self._decoded = chunk.end
        self._restarts = 0
        return chunk

    def close(self) -> None:
        """End the children; `next` then raises EOFError. Thread-safe."""
        with self._lock:
            self._is_closed = True
            for child in self._children:
                child.kill()

    def release(self) -> None:
        """Close files and pipes, once `next` is not called any more."""
        for child in self._children:
            child.close()
        self._spool.close()

    # -- children that fail

    def _replace_children(self) -> None:
        """Start over, and decode the requests of the current stretch one by one."""
        if self._assignments:
            self._suspect_end = max(self._suspect_end, self._assignments[0][1].end)
            self._attempts = 0
        _log.warning("a decoder process ended or was silent for too long; it is replaced")
        self._restart()

    def _restart(self) -> None:
        """Start one new child, and go back to the last chunk that was returned.

        Raises:
            EOFError: `close` was called, or children end whatever they decode.
        """
        self._restarts += 1
        if self._restarts > _MAX_RESTARTS:
            raise EOFError("decoder processes end as soon as they are started")
        with self._lock:
            for child in self._children:
                child.kill()
                child.close()
            if self._is_closed:
                raise EOFError("the decoder was closed")
            self._children = [_DecoderProcess(self._folder)]
        self._assignments.clear()
        self._spool.position = self._decoded

    def _next_alone(self) -> DecodedChunk | None:
        """The chunk of the next request, decoded on its own."""
        stretch = self._spool.skip(1)
        if stretch is None:
            self._suspect_end = self._decoded
            return None
        child = self._children[0]
        if child.has_ended:
            self._restart()
            return None
        # An empty stretch first: if decoding even that fails, the request is not the cause.
        nothing = stretch._replace(end=stretch.start, size=0)
        try:
            child.decode(nothing)
            child.next_chunk(self._timeout_alone(nothing))
        except EOFError:
            self._restart()
            return None
        try:
            child.decode(stretch)
            chunk = child.next_chunk(self._timeout_alone(stretch))
        except EOFError:
            self._attempts += 1
            self._restart()
            if self._attempts < _MAX_ATTEMPTS:
                return None
            chunk = self._set_aside(stretch)
            self._spool.position = stretch.end
        self._attempts = self._restarts = 0
        self._decoded = chunk.end
        return chunk

    def _timeout_alone(self, stretch: RecordRange) -> float:
        megabytes = stretch.size / (1 << 20)
        return _ALONE_FACTOR * self._timeout + _ALONE_SECONDS_PER_MB * megabytes

    def _set_aside(self, stretch: RecordRange) -> DecodedChunk:
        """Store a request that no child survives, as received; return a chunk without rows."""
        chunk = DecodedChunk()
        reader = LogReader(self._folder, stretch.start)
        for record in reader.records(stretch.end):
            path = keep_rejected(record, self._folder / "rejected")
            chunk.first_ns = record.time_ns
            chunk.requests += 1
            chunk.rejected += 1
            chunk.problems.append(f"kept in {path}: decoding it ended {_MAX_ATTEMPTS} processes")
        chunk.end, chunk.lost = stretch.end, reader.damaged_bytes
        reader.close()
        return chunk

    # -- the work of the children

    def _assign(self) -> None:
        """Send stretches to the children, until each has one to decode and one more."""
        self._adapt_children()
        # Chunks are returned in order, so a child that still starts would delay the others' chunks.
        started = [child for child in self._children if child.is_ready] or self._children[:1]
        while len(self._assignments) < _STRETCHES_PER_CHILD * len(started):
            stretch = self._next_stretch()
            if stretch is None:
                return
            busy = [child for child, _ in self._assignments]
            child = min(started, key=busy.count)
            self._assignments.append((child, stretch))
            child.decode(stretch)

    def _next_stretch(self) -> RecordRange | None:
        """The next stretch, once it is large or old enough."""
        position = self._spool.position
        stretch = self._spool.skip(_STRETCH_SIZE)
        if stretch is None:
            return None
        if stretch.size < _STRETCH_SIZE and self._is_young(stretch.start):
            self._spool.position = position
            return None
        return stretch

    def _is_young(self, start: Position) -> bool:
        """Whether requests at a position were first seen less than `age` seconds ago."""
        # The time of receipt does not help here: somebody may set the time of day.
        now = self._clock()
        if self._first_seen[0] != start or not self._first_seen[1]:
            self._first_seen = (start, now)
        return now - self._first_seen[1] < self._age

    def _adapt_children(self) -> None:
        """Start or end the second child, depending on the backlog."""
        now = time.monotonic()
        if self._spool.unread_bytes() >= _BURST:
            self._last_burst = now
            with self._lock:
                if len(self._children) < _MAX_CHILDREN and not self._is_closed:
                    self._children.append(_DecoderProcess(self._folder))
            return
        is_over = now - self._last_burst > _BURST_TIMEOUT and not self._assignments
        if is_over and len(self._children) > 1:
            child = self._children.pop()
            child.kill()
            child.close()
