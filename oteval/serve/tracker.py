"""Decide when a trace has ended.

A trace is *open* from its first span on. It has ended when its root span has arrived and nothing
followed for ``quiet`` seconds, when nothing arrived for ``idle`` seconds, or when it is ``max_age``
seconds old. A span that arrives later opens the trace again. The trace then ends after another
quiet time, because its root is known to have arrived.

`TraceTracker` keeps the open traces and does no I/O. `ArrivalReader` feeds it from the store.
"""

from __future__ import annotations

import hashlib
import heapq
import threading
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from ..scoring import Completion
from ..store import CompletedTrace, Store, TraceArrival

__all__ = [
    "ArrivalReader",
    "HashSet",
    "OpenTrace",
    "TraceTracker",
]

_NS = 1_000_000_000

_MAX_UNSORTED = 16_384
_LOW_HALF = slice(8, 16)


def _hash(text: str) -> int:
    """The same number as ``md5_number_lower`` in SQL."""
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest[_LOW_HALF], "little")


class HashSet:
    """An append-only set of strings, stored as hashes.

    New hashes go to a small unsorted set, which is merged into sorted runs of decreasing length.

    Args:
        hashes: The initial hashes, sorted.
    """

    def __init__(self, hashes: pa.Array | None = None) -> None:
        self._unsorted: set[int] = set()
        self._runs: list[memoryview] = []
        if hashes is not None and len(hashes):
            self._runs.append(_buffer_of(hashes))

    def __len__(self) -> int:
        """The number of entries; a string that was added twice may count twice."""
        return len(self._unsorted) + sum(len(run) for run in self._runs)

    def __contains__(self, text: str) -> bool:
        """Whether a string, or another one with the same hash, was added."""
        key = _hash(text)
        return key in self._unsorted or any(_is_in_run(run, key) for run in self._runs)

    def add(self, texts: Iterable[str]) -> None:
        """Add strings."""
        self._unsorted.update(map(_hash, texts))
        if len(self._unsorted) >= _MAX_UNSORTED:
            self._merge()

    def _merge(self) -> None:
        """Turn the unsorted hashes into a run, and merge it with runs of similar length."""
        hashes = pa.array(sorted(self._unsorted), pa.uint64())
        self._unsorted.clear()
        while self._runs and len(self._runs[-1]) < 2 * len(hashes):
            older = pa.array(self._runs.pop(), pa.uint64())
            hashes = pa.concat_arrays([older, hashes]).unique().sort()
        self._runs.append(_buffer_of(hashes))


def _buffer_of(hashes: pa.Array) -> memoryview:
    """An array's values without copying them."""
    values = memoryview(hashes.buffers()[1]).cast("B").cast("Q")
    return values[hashes.offset : hashes.offset + len(hashes)]


def _is_in_run(run: memoryview, key: int) -> bool:
    index = bisect_left(run, key)
    return index < len(run) and run[index] == key


# The heap may have this many stale entries before it is rebuilt.
_MAX_STALE = 10_000


@dataclass(slots=True)
class OpenTrace:
    """A trace that has not ended.

    Attributes:
        first_ns: When its first row arrived (ns).
        last_ns: When its newest row arrived (ns).
        has_root: Whether its root span has arrived.
        first: The number of the first row that arrived since it was opened.
        last: The number of the newest row.
        is_new: Whether all of its rows arrived since it was opened.
        has_conversation: Whether one of its spans names a conversation.
        check_ns: When to check next whether it has ended (ns).
        rows: How many rows arrived since it was opened.
    """

    first_ns: int
    last_ns: int
    has_root: bool
    first: int
    last: int
    is_new: bool = False
    has_conversation: bool = False
    check_ns: int = 1 << 63
    rows: int = 0


class TraceTracker:
    """The open traces, and the ended traces that are not recorded in the store yet.

    `take_ended` hands out traces that have ended. For each, the caller later calls either
    `confirm`, when the store has recorded it, or `reopen`, when that failed.
    """

    def __init__(self, completion: Completion) -> None:
        self._completion = completion
        self._open: dict[str, OpenTrace] = {}
        self._ended: dict[str, OpenTrace] = {}
        # By time; traces of the same time are in the order of their storage.
        self._heap: list[tuple[int, int, str]] = []

    def __len__(self) -> int:
        """The number of open traces."""
        return len(self._open)

    def __contains__(self, trace_id: str) -> bool:
        """Whether a trace is open."""
        return trace_id in self._open

    def state(self, trace_id: str) -> OpenTrace | None:
        """The state of a trace that is open, or was taken and is not confirmed."""
        return self._ended.get(trace_id) or self._open.get(trace_id)

    def configure(self, completion: Completion) -> None:
        """Apply another configuration, also to the traces that are already open."""
        if completion != self._completion:
            self._completion = completion
            self._rebuild_heap()

    def add(
        self,
        arrivals: Iterable[TraceArrival],
        now: int,
        completed_before: Collection[str] = (),
        times: Mapping[str, int] | None = None,
        new: Collection[str] = (),
    ) -> None:
        """Take in the spans and log records that arrived.

        Args:
            arrivals: The arrivals, by trace.
            now: The time (ns).
            completed_before: The traces among them that had ended once before.
            times: When rows of a trace were stored (ns), where that is known more precisely.
            new: The traces among them that had no row in the store before.
        """
        for arrival in arrivals:
            name = arrival.trace_id
            time_ns = min(now, times.get(name, now)) if times else now
            state = self._open.get(name)
            if state is None:
                state = OpenTrace(
                    first_ns=time_ns,
                    last_ns=time_ns,
                    has_root=False,
                    first=arrival.first,
                    last=arrival.last,
                    is_new=name in new,
                )
                self._open[name] = state
            # If somebody sets a clock back, the trace must not look quiet for longer than it was.
            state.last_ns = max(state.last_ns, time_ns)
            state.first = min(state.first, arrival.first)
            state.last = max(state.last, arrival.last)
            state.has_root |= arrival.has_root or name in completed_before
            state.has_conversation |= bool(arrival.conversations)
            state.rows += arrival.rows
            end_ns, _ = self._end_of(state)
            # An entry that comes up too early is pushed again with its new time.
            if end_ns < state.check_ns:
                self._schedule_check(name, state, end_ns)
        if len(self._heap) > 2 * len(self._open) + _MAX_STALE:
            self._rebuild_heap()

    def take_ended(self, now: int, limit: int, max_rows: int | None = None) -> list[CompletedTrace]:
        """Return traces that have ended, the earliest first, and close them.

        Args:
            now: The time (ns).
            limit: At most this many traces.
            max_rows: No trace is added once they have this many rows.
        """
        completed: list[CompletedTrace] = []
        rows = 0
        while self._heap and self._heap[0][0] <= now and len(completed) < limit:
            if max_rows is not None and rows >= max_rows:
                break
            _, _, name = heapq.heappop(self._heap)
            state = self._open.get(name)
            if state is None:
                continue
            end_ns, reason = self._end_of(state)
            if end_ns > now:
                self._schedule_check(name, state, end_ns)
            else:
                completed.append(self._take(name, state, reason))
                rows += state.rows
        return completed

    def take_ended_among(self, names: Iterable[str], now: int) -> list[CompletedTrace]:
        """Return the traces, out of some, that have ended; like `take_ended`."""
        completed: list[CompletedTrace] = []
        for name in names:
            state = self._open.get(name)
            if state is None:
                continue
            end_ns, reason = self._end_of(state)
            if end_ns <= now:
                completed.append(self._take(name, state, reason))
        return sorted(completed, key=lambda trace: trace.first or 0)

    def confirm(self, names: Iterable[str]) -> None:
        """Forget traces that were taken, now that the store has recorded their end."""
        for name in names:
            self._ended.pop(name, None)

    def reopen(self, traces: Iterable[CompletedTrace], until: int | None = None) -> None:
        """Make traces that were taken open again.

        Args:
            traces: The traces.
            until: When to take them again (ns); by default as soon as they have ended.
        """
        for trace in traces:
            name = trace.trace_id
            state_before = self._ended.pop(name, None)
            if state_before is None:
                continue
            state = self._open.setdefault(name, state_before)
            self._schedule_check(name, state, self._end_of(state)[0] if until is None else until)

    def floor(self, newest: int, ended: Collection[str] = ()) -> int:
        """The number up to which every row belongs to a trace that has ended.

        Args:
            newest: The number of the newest row that was taken in.
            ended: Traces that were taken and are about to be recorded in the store.
        """
        waiting = (state for name, state in self._ended.items() if name not in ended)
        first_rows = (state.first for state in chain(self._open.values(), waiting))
        return min(first_rows, default=newest + 1) - 1

    def oldest_ns(self) -> int | None:
        """When the first row of the open traces arrived (ns); None when none is open."""
        return min((state.first_ns for state in self._open.values()), default=None)

    def _take(self, name: str, state: OpenTrace, reason: str) -> CompletedTrace:
        del self._open[name]
        self._ended[name] = state
        return CompletedTrace(name, state.last, reason, state.first)

    def _schedule_check(self, name: str, state: OpenTrace, time_ns: int) -> None:
        state.check_ns = time_ns
        heapq.heappush(self._heap, (time_ns, state.first, name))

    def _rebuild_heap(self) -> None:
        """Put exactly one entry for each open trace into the heap, at the time when it ends."""
        for state in self._open.values():
            state.check_ns = self._end_of(state)[0]
        self._heap = [(state.check_ns, state.first, name) for name, state in self._open.items()]
        heapq.heapify(self._heap)

    def _end_of(self, state: OpenTrace) -> tuple[int, str]:
        """When a trace ends if nothing more arrives (ns), and the reason."""
        completion = self._completion
        end = min(
            (state.last_ns + round(completion.idle * _NS), "idle"),
            (state.first_ns + round(completion.max_age * _NS), "max_age"),
        )
        if state.has_root:
            end = min(end, (state.last_ns + round(completion.quiet * _NS), "quiet"))
        return end


class ArrivalReader:
    """Reads the rows that were stored since the last time, and adds them to a tracker.

    Attributes:
        last_row: The number of the newest row that was read.
    """

    def __init__(self, store: Store, tracker: TraceTracker) -> None:
        self._store, self._tracker = store, tracker
        self.last_row = store.live.floor()
        self._completed = HashSet(store.live.trace_keys())
        self._lock = threading.Lock()
        self._stored_ns: dict[str, int] = {}
        # Rows that were stored before this process began are read as well.
        self._has_news = True

    def notify(self, trace_ids: Iterable[str], now: int) -> None:
        """Announce that rows of traces were stored at `now` (ns). Thread-safe."""
        with self._lock:
            self._has_news = True
            for name in trace_ids:
                self._stored_ns[name] = now

    def read(self, now: int) -> None:
        """Add the rows that were stored since the last call to the tracker."""
        with self._lock:
            if not self._has_news:
                return
            stored_ns, self._stored_ns, self._has_news = self._stored_ns, {}, False
        arrivals = self._store.live.arrivals(self.last_row)
        if not arrivals:
            return
        # Log records that belong to no trace have an empty id.
        traces = [arrival for arrival in arrivals if arrival.trace_id]
        # Conversations are recorded before the tracker knows the traces, so before one can end.
        self._store.live.note_conversations(traces)
        opened = [arrival for arrival in traces if arrival.trace_id not in self._tracker]
        new = {arrival.trace_id for arrival in opened if arrival.trace_id not in self._completed}
        uncertain = [
            arrival.trace_id
            for arrival in opened
            if not arrival.has_root and arrival.trace_id not in new
        ]
        completed_traces = self._store.live.completed_among(uncertain) if uncertain else frozenset()
        self._tracker.add(traces, now, completed_traces, stored_ns, new)
        self.last_row = max(arrival.last for arrival in arrivals)

    def mark_completed(self, trace_ids: Iterable[str]) -> None:
        """Remember that traces have ended: rows that arrive later are not their first rows."""
        self._completed.add(trace_ids)
