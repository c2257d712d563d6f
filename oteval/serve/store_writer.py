"""Move requests from the spool to the forwarder and, decoded, to the store.

Rows and the position in the spool are committed in one transaction. After it, the segments of the
spool are deleted. So every acknowledged request is stored exactly once, whenever the process
is killed. Requests go to the forwarder before the commit, and a full forwarder delays storing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Full, Queue

from ..base.durable_log import (
    LogReader,
    Position,
    Record,
    SegmentMissing,
    missing_segments,
    remove_before,
    segment_path,
    segment_sizes,
)
from ..store import WIDE_MEMORY_FACTOR, Store
from .decoder import DecodedChunk, SpoolDecoder
from .publish.forwarder import Forwarder
from .upkeep import DiskSpaceGate

__all__ = ["StoreWriter", "WriterStatistics"]

_log = logging.getLogger(__name__)
AGE = 0.5
_FORWARD_POLL = 0.1
_MISSING_POLL = 0.2
_LOOK_BACK_INTERVAL = 1.0


@dataclass
class WriterStatistics:
    """Counts since the writer was started.

    Attributes:
        spans: Spans stored.
        logs: Log records stored.
        duplicates: Spans and log records that the store had already.
        requests: Requests taken from the spool.
        lost_bytes: Bytes of the spool that were damaged.
        rejected: Requests that could not be decoded and were kept as received.
        commits: Transactions.
        slowest_commit: The duration of the slowest transaction (s).
        last_ns: The time of the last transaction.
        lag: The seconds between the receipt of the oldest request in the last transaction and its
            commit.
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


class StoreWriter:
    """Stores the spooled requests, in a thread.

    Attributes:
        statistics: Counts since it was started.
        error: The exception that stopped it; None while it runs.
        position: The position up to which the spool is stored.
        stored: The position that the store had at the start.
        losses: Acknowledged requests that were missing from the spool at the start.
    """

    def __init__(
        self,
        store: Store,
        folder: Path,
        on_stored: Callable[[Sequence[str]], None],
        forward: Forwarder | None = None,
        age: float = AGE,
    ) -> None:
        """Start the threads.

        Args:
            store: The store, which no other thread may use.
            folder: The spool.
            on_stored: Called with the traces whose rows were stored.
            forward: The forwarder, which gets the requests in order.
            age: The seconds after which requests are stored however few they are.
        """
        self.statistics = WriterStatistics()
        self.error: BaseException | None = None
        self.stored = Position(*store.spans.spool_position())
        missing = missing_segments(folder, self.stored)
        self.losses = list(missing.values())
        for loss in self.losses:
            _log.error("lost: %s", loss)
        self.position = _start_position(folder, self.stored)
        if self.position != self.stored and forward is not None and missing:
            forward.reset_position()
        self._first_segment = self.position.segment
        self._looked_back = time.monotonic()
        self._store, self._folder = store, folder
        self._on_stored, self._forward = on_stored, forward
        self._has_wide_rows = False
        self._missing = ""
        self._reader = LogReader(folder, self.position)
        self._backlog = LogReader(folder)
        self._chunks: Queue[DecodedChunk] = Queue(1)
        self._closing = threading.Event()
        self._disk_space = DiskSpaceGate(store.path, self._closing)
        self._decoder = SpoolDecoder(folder, self.position, age, lost=missing)
        self._threads = [
            threading.Thread(target=self._fetch, name="fetch", daemon=True),
            threading.Thread(target=self._run, name="writer", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def problem(self) -> str:
        """The reason why it waits; "" while it does not."""
        return self._disk_space.problem

    @property
    def decoder_pids(self) -> list[int]:
        """The process ids of the decoders."""
        return self._decoder.pids

    def left(self) -> int:
        """How many bytes of the spool are not stored."""
        self._backlog.position = self.position
        return self._backlog.unread_bytes()

    def missing(self) -> str:
        """Which acknowledged requests cannot be found; "" while there are none."""
        if self._missing:
            return self._missing
        path = segment_path(self._folder, self.position.segment)
        if not self.position.segment or path.exists():
            return ""
        return f"{path} is missing; nothing is stored until it is back"

    def close(self) -> None:
        """Finish the current transaction, and end."""
        self._closing.set()
        self._decoder.close()
        for thread in self._threads:
            thread.join()
        self._decoder.release()
        self._reader.close()

    def _fetch(self) -> None:
        """Get chunks from the decoder, one ahead of the transaction."""
        while not self._closing.is_set():
            try:
                chunk = self._decoder.next()
                self._missing = ""
                if chunk is None:
                    self._look_back()
                    continue
            except SegmentMissing as error:
                self._wait_for_segment(error)
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

    def _wait_for_segment(self, missing: SegmentMissing) -> None:
        if not self._missing:
            _log.error("nothing is stored: %s", missing)
        self._missing = str(missing)
        self._closing.wait(_MISSING_POLL)

    def _look_back(self) -> None:
        """Look for segments older than the first segment, which somebody may have put back.

        Raises:
            ValueError: There are some. The process then starts again, and stores them.
        """
        if time.monotonic() - self._looked_back < _LOOK_BACK_INTERVAL:
            return
        self._looked_back = time.monotonic()
        first = self._first_segment
        if first and any(number < first for number in segment_sizes(self._folder)):
            raise ValueError(f"{self._folder}: older segments came back; they are stored now")

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                chunk = self._chunks.get(timeout=0.1)
            except Empty:
                continue
            try:
                self._store_chunk(chunk)
            except Exception as error:
                self.error = error
                return

    def _store_chunk(self, chunk: DecodedChunk) -> None:
        if not self._disk_space.wait():
            return
        if self._forward is not None and not self._hand_to_forwarder(chunk.end, self._forward):
            return
        batch = self._store.spans.batch()
        batch.add_table(chunk.spans)
        if batch.is_wide and not self._has_wide_rows:
            self._has_wide_rows = True
            self._store.raise_memory_limit(WIDE_MEMORY_FACTOR)
        begun = time.perf_counter()
        spans, logs = self._store.spans.commit_from_spool(batch, chunk.logs, chunk.end)
        seconds = time.perf_counter() - begun
        self.position = chunk.end
        now = time.time_ns()
        self.statistics.spans += spans.stored
        self.statistics.logs += logs.stored
        self.statistics.duplicates += spans.duplicate + logs.duplicate
        self._count(chunk, seconds, now)
        traces = set(chunk.spans["trace_id"].unique().to_pylist())
        traces.update(chunk.logs["trace_id"].unique().to_pylist())
        self._on_stored(sorted(filter(None, traces)))
        remove_before(self._folder, chunk.end.segment, self._first_segment)

    def _count(self, chunk: DecodedChunk, seconds: float, now: int) -> None:
        statistics = self.statistics
        statistics.requests += chunk.requests
        statistics.lost_bytes += chunk.lost
        statistics.rejected += chunk.rejected
        statistics.commits += 1
        statistics.slowest_commit = max(statistics.slowest_commit, seconds)
        statistics.last_ns = now
        statistics.lag = max(0.0, (now - chunk.first_ns) / 1e9)
        if chunk.lost:
            _log.error("%d bytes of the spool were damaged and are lost", chunk.lost)
        for problem in chunk.problems:
            _log.warning("left out: %s", problem)

    def _hand_to_forwarder(self, end: Position, forward: Forwarder) -> bool:
        """Hand the requests up to a position to the forwarder; return False when closing."""
        for record in self._records(end):
            while not forward.has_room():
                if self._closing.wait(_FORWARD_POLL):
                    return False
            forward.take(record.kind, record.encoding, record.payload, record.end)
        forward.sync()
        return self._reader.position >= end

    def _records(self, end: Position) -> Iterator[Record]:
        """Yield the requests up to a position, and wait for segments that are missing."""
        while not self._closing.is_set():
            try:
                yield from self._reader.records(end)
                return
            except SegmentMissing as error:
                self._wait_for_segment(error)


def _start_position(folder: Path, stored: Position) -> Position:
    """Where to begin: at the stored position, or at the first segment.

    There are segments before the position after a crash between commit and deletion, and when lost
    segments were put back. If the store already has some of their rows, these are not stored again.
    """
    first = next(iter(segment_sizes(folder)), 0)
    if not stored.segment or stored.segment == first:
        return stored
    return Position(first, 0)
