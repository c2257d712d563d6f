"""From the spool into the store: rows and position in one transaction, then the segments go."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Full, Queue

from ..attach import Forwarder
from ..durable_log import (
    LogReader,
    Position,
    Record,
    SegmentMissing,
    missing_segments,
    remove_before,
    segment_path,
    segment_sizes,
)
from ..store import Store
from .decoder import DecodedChunk, SpoolDecoder
from .room import shortage

__all__ = ["Figures", "Writer"]

_log = logging.getLogger(__name__)
AGE = 0.5
_ROOM_WAIT = 0.1
_MISSING_WAIT = 0.2
_LOOK_BACK = 1.0
# Bytes a span from which rows count as wide, and how many times the memory they need.
_WIDE, _TIMES = 64 << 10, 4


@dataclass
class Figures:
    """What the writer did since it began.

    Attributes:
        spans: Spans stored.
        logs: Log records stored.
        duplicates: Spans and log records that the store had already.
        requests: Requests taken from the spool.
        lost_bytes: Bytes of the spool that were no record any more.
        rejected: Requests that could not be decoded and are kept as they came.
        commits: Transactions.
        slowest_commit: Seconds that the slowest took.
        last_ns: When the last was.
        lag: Seconds between the receipt of the oldest request of the last one and its commit.
    """

    spans: int = 0
    logs: int = 0
    duplicates: int = 0
    requests: int = 0
    lost_bytes: int = 0
    rejected: int = 0
    commits: int = 0
    slowest_commit: float = 0.0
    last_ns: int = 0
    lag: float = 0.0


class Writer:
    """Stores what is spooled, in a thread of its own.

    Attributes:
        figures: What it did.
        error: Why it has stopped, None while it goes on.
        problem: What it waits for, "" while it does not.
        position: Up to where the spool is stored.
        stored: The position that the store had at the start.
        losses: What was missing of the spool at the start: acknowledged, and not to be had.
    """

    def __init__(
        self,
        store: Store,
        folder: Path,
        on_stored: Callable[[Sequence[str]], None],
        forward: Forwarder | None = None,
        age: float = AGE,
    ) -> None:
        """Begin.

        Args:
            store: Where to; the writer's alone.
            folder: The spool.
            on_stored: Told of the traces that something was stored of.
            forward: What sends on the requests, in their order.
            age: After how many seconds what has come is stored, however little.
        """
        self.figures = Figures()
        self.error: BaseException | None = None
        self.problem = ""
        self.stored = Position(*store.spooled.position())
        missing = missing_segments(folder, self.stored)
        self.losses = list(missing.values())
        for loss in self.losses:
            _log.error("lost: %s", loss)
        self.position = _begin(folder, self.stored)
        if self.position != self.stored and forward is not None and missing:
            forward.rewind()
        self._first = self.position.segment
        self._looked_back = time.monotonic()
        self._store, self._folder = store, folder
        self._on_stored, self._forward, self._age = on_stored, forward, age
        self._is_wide = False
        self._missing = ""
        self._raw = LogReader(folder, self.position)
        self._left = LogReader(folder)
        self._chunks: Queue[DecodedChunk] = Queue(1)
        self._closing = threading.Event()
        self._decoder = SpoolDecoder(folder, self.position, age, lost=missing)
        self._threads = [
            threading.Thread(target=self._fetch, name="fetch", daemon=True),
            threading.Thread(target=self._run, name="writer", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def decoder_pids(self) -> list[int]:
        """The processes that decode."""
        return self._decoder.pids

    def left(self) -> int:
        """Return how many bytes of the spool are not stored."""
        self._left.position = self.position
        return self._left.unread_bytes()

    def missing(self) -> str:
        """Return which acknowledged requests cannot be found, "" while all can."""
        if self._missing:
            return self._missing
        path = segment_path(self._folder, self.position.segment)
        if not self.position.segment or path.exists():
            return ""
        return f"{path} is missing; nothing is stored until it is back"

    def close(self) -> None:
        """Finish the transaction under way, and end."""
        self._closing.set()
        self._decoder.close()
        for thread in self._threads:
            thread.join()
        self._decoder.release()
        self._raw.close()

    def _fetch(self) -> None:
        """Take chunks from what decodes, one ahead of the transaction."""
        while not self._closing.is_set():
            try:
                chunk = self._decoder.next()
                self._missing = ""
                if chunk is None:
                    self._look_back()
                    continue
            except SegmentMissing as error:
                self._wait_for(error)
                continue
            except (EOFError, ValueError) as error:
                if not self._closing.is_set():
                    self.error = self.error or error
                return
            while not self._closing.is_set():
                try:
                    self._chunks.put(chunk, timeout=0.2)
                    break
                except Full:
                    continue

    def _wait_for(self, missing: SegmentMissing) -> None:
        if not self._missing:
            _log.error("nothing is stored: %s", missing)
        self._missing = str(missing)
        self._closing.wait(_MISSING_WAIT)

    def _look_back(self) -> None:
        """Have the process begin anew where segments appear that are before its first.

        Raises:
            ValueError: There are some.
        """
        if time.monotonic() - self._looked_back < _LOOK_BACK:
            return
        self._looked_back = time.monotonic()
        if self._first and any(number < self._first for number in segment_sizes(self._folder)):
            raise ValueError(f"{self._folder}: older segments came back; they are stored now")

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                chunk = self._chunks.get(timeout=0.1)
            except Empty:
                continue
            try:
                self._take(chunk)
            except Exception as error:
                self.error = error
                return

    def _has_room(self) -> bool:
        """Wait until there is room on the disk; False when closing."""
        while problem := shortage(self._store.path):
            if not self.problem:
                _log.error("nothing is stored: %s", problem)
            self.problem = problem
            if self._closing.wait(_ROOM_WAIT):
                return False
        if self.problem:
            _log.info("there is room again: storing goes on")
        self.problem = ""
        return True

    def _take(self, chunk: DecodedChunk) -> None:
        if not self._has_room():
            return
        if self._forward is not None and not self._forwarded(chunk.end, self._forward):
            return
        if not self._is_wide and chunk.spans.nbytes > _WIDE * max(1, chunk.spans.num_rows):
            # A checkpoint that lacks memory, while such rows are read, would end this process.
            self._is_wide = True
            self._store.give_memory(_TIMES)
        batch = self._store.spans.batch()
        batch.add_table(chunk.spans)
        begun = time.perf_counter()
        spans, logs = self._store.spooled.commit(batch, chunk.logs, chunk.end)
        took = time.perf_counter() - begun
        self.position = chunk.end
        now = time.time_ns()
        traces = set(chunk.spans["trace_id"].unique().to_pylist())
        traces.update(chunk.logs["trace_id"].unique().to_pylist())
        self._on_stored(sorted(filter(None, traces)))
        remove_before(self._folder, chunk.end.segment, self._first)
        self.figures.spans += spans.stored
        self.figures.logs += logs.stored
        self.figures.duplicates += spans.duplicate + logs.duplicate
        self._count(chunk, took, now)

    def _count(self, chunk: DecodedChunk, took: float, now: int) -> None:
        figures = self.figures
        figures.requests += chunk.requests
        figures.lost_bytes += chunk.lost
        figures.rejected += chunk.rejected
        figures.commits += 1
        figures.slowest_commit = max(figures.slowest_commit, took)
        figures.last_ns = now
        figures.lag = max(0.0, (now - chunk.first_ns) / 1e9)
        if chunk.lost:
            _log.error("%d bytes of the spool were damaged and are lost", chunk.lost)
        for problem in chunk.problems:
            _log.warning("left out: %s", problem)

    def _forwarded(self, end: Position, forward: Forwarder) -> bool:
        """Hand the requests up to a position to what sends them on; False when closing."""
        for record in self._records(end):
            while not forward.has_room():
                if self._closing.wait(_ROOM_WAIT):
                    return False
            forward.take(record.kind, record.encoding, record.payload, record.end)
        forward.sync()
        return self._raw.position >= end

    def _records(self, end: Position) -> Iterator[Record]:
        """Yield the requests up to a position, waiting for segments that are not there."""
        while not self._closing.is_set():
            try:
                yield from self._raw.records(end)
                return
            except SegmentMissing as error:
                self._wait_for(error)


def _begin(folder: Path, stored: Position) -> Position:
    """Return where to begin: at a stored position, or at the first segment that there is.

    Segments before the position are there after a crash, which came before they were removed, and
    when they were lost once and put back. What of them is stored already is stored once.
    """
    first = next(iter(segment_sizes(folder)), 0)
    if not stored.segment or stored.segment == first:
        return stored
    return Position(first, 0)
