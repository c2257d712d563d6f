"""Reconstruct the traces that have ended.

Traces are reconstructed in batches. If a batch fails, its traces are tried one by one. A trace
that keeps failing is recorded as ended without trajectories. Large traces and long conversations
go to a background thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..scoring import RefreshResult, refresh_traces
from ..store import (
    EVERYWHERE,
    MAX_WIDE_RANGES,
    ROW_GROUP,
    CompletedTrace,
    Range,
    Store,
    is_store_failure,
    merge_ranges,
)
from .tracker import ArrivalReader, TraceTracker

__all__ = [
    "BackgroundReconstructor",
    "LargeGroup",
    "Overtaken",
    "ReconstructedTraces",
    "TraceReconstructor",
]

_log = logging.getLogger(__name__)

# A group pauses for this multiple of the time that its reconstruction took.
_PAUSE_FACTOR = 2


class Overtaken(Exception):
    """Traces were reconstructed elsewhere while a group with them ran."""


@dataclass
class LargeGroup:
    """A group of traces to reconstruct together.

    Attributes:
        names: The traces.
        last: The number of the newest row of each trace when the group was queued.
        refreshed: The result, once it is known.
        error: The exception that ended the reconstruction.
        reconstructed_meanwhile: Traces that were reconstructed elsewhere while this group ran.
    """

    names: Sequence[str]
    last: Mapping[str, int]
    refreshed: RefreshResult | None = None
    error: Exception | None = None
    reconstructed_meanwhile: set[str] = field(default_factory=set)

    @property
    def is_overtaken(self) -> bool:
        """Whether some of its traces were reconstructed elsewhere. Open ones run again."""
        if self.refreshed is None:
            return isinstance(self.error, Overtaken)
        return not self.reconstructed_meanwhile.isdisjoint(self.refreshed.trace_ids)


class BackgroundReconstructor:
    """Reconstructs groups of traces in a thread.

    All calls come from the scoring thread, except for calls of `writing`.

    Args:
        refresh: Reconstructs traces; called in the background thread.
        clock: A monotonic clock (s).
    """

    def __init__(
        self,
        refresh: Callable[[Sequence[str]], RefreshResult],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._refresh, self._clock = refresh, clock
        self._queue: deque[LargeGroup] = deque()
        self._members: set[str] = set()
        self._paused_until: dict[str, float] = {}
        self._running: tuple[LargeGroup, threading.Thread, float] | None = None
        self._lock = threading.Lock()

    def __contains__(self, name: str) -> bool:
        """Whether a trace is queued, running or paused."""
        return name in self._members or self._paused_until.get(name, 0.0) > self._clock()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued and nothing runs."""
        return self._running is None and not self._queue

    def submit(self, names: Sequence[str], last: Mapping[str, int]) -> None:
        """Queue a group of traces.

        Args:
            names: The traces.
            last: The number of the newest row of each.
        """
        self._queue.append(LargeGroup(names, last))
        self._members.update(names)
        self._start_next()

    @contextmanager
    def elsewhere(self) -> Iterator[Callable[[Collection[str]], None]]:
        """In a block, let the scoring thread reconstruct traces; the group cannot write meanwhile.

        Yields:
            A function to call with the traces that were reconstructed.
        """

        def note(traces: Collection[str]) -> None:
            if self._running is not None:
                self._running[0].reconstructed_meanwhile.update(traces)

        with self._lock:
            yield note

    @contextmanager
    def writing(self, traces: Collection[str]) -> Iterator[None]:
        """In a block, let the running group write trajectories.

        Raises:
            Overtaken: One of the traces was reconstructed elsewhere while the group ran.
        """
        with self._lock:
            assert self._running is not None
            if not self._running[0].reconstructed_meanwhile.isdisjoint(traces):
                raise Overtaken
            yield

    def take_finished(self) -> LargeGroup | None:
        """Return the group that finished, if one did, and start the next."""
        if self._running is None or self._running[1].is_alive():
            return None
        group, _, started = self._running
        self._running = None
        now = self._clock()
        self._paused_until = {n: until for n, until in self._paused_until.items() if until > now}
        members = [*group.names, *(group.refreshed.trace_ids if group.refreshed else ())]
        until = now + _PAUSE_FACTOR * (now - started)
        self._paused_until.update(dict.fromkeys(members, until))
        self._members.difference_update(group.names)
        self._start_next()
        return group

    def close(self, timeout: float) -> bool:
        """Drop the queue and wait for the running group; return whether it has finished."""
        self._queue.clear()
        if self._running is None:
            return True
        self._running[1].join(timeout)
        return not self._running[1].is_alive()

    def _start_next(self) -> None:
        if self._running is not None or not self._queue:
            return
        group = self._queue.popleft()
        thread = threading.Thread(target=self._run, args=(group,), name="large traces", daemon=True)
        self._running = group, thread, self._clock()
        thread.start()

    def _run(self, group: LargeGroup) -> None:
        try:
            group.refreshed = self._refresh(group.names)
        except Exception as error:
            group.error = error


# Traces in one batch, their rows, and about the bytes of these rows. Every batch has the cost of
# some twenty statements, which equals the cost of reconstructing hundreds of rows.
BATCH, _BATCH_ROWS, _BATCH_BYTES = 2_000, 16_000, 48 << 20
# The rows of the first batch. Each later batch has at most four times the rows of the batch before.
_FIRST_ROWS, _GROWTH = 2_000, 4
# A trace with this many spans is large. So is a conversation with this many traces; below the
# second number of traces a conversation is never checked.
_LARGE_TRACE, _LONG_CONVERSATION, _USUAL_CONVERSATION = 3_000, 600, 8
_CHECK_LARGE_NS = 2_000_000_000
_CLOSE_TIMEOUT = 5.0  # seconds to wait for the background thread at the end of the process
# How often a trace is tried if it fails although others succeed.
_MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class ReconstructedTraces:
    """Traces that have ended and were reconstructed together.

    Attributes:
        traces: The traces.
        refreshed: The result of the reconstruction; None when it failed for good.
        floor: The number up to which every row belongs to a trace that has ended.
        last_row: The number of the newest row that was read from the store.
        is_large: Whether evaluations of other traces go before theirs.
    """

    traces: Sequence[CompletedTrace]
    refreshed: RefreshResult | None
    floor: int
    last_row: int
    is_large: bool = False


class RowLocator:
    """Finds the rows of traces without searching the store.

    The rows of an open trace are the rows that arrived since it is open. For older rows only,
    the store is queried.

    Args:
        store: The store.
        tracker: The open traces, and the traces of the current batch.
        last_row: The number of the newest row that was read; newer rows may belong to any trace.
    """

    def __init__(self, store: Store, tracker: TraceTracker, last_row: int) -> None:
        self._store, self._tracker, self._last_row = store, tracker, last_row
        self._conversations: dict[tuple[str, ...], list[str]] = {}

    def row_ranges(self, traces: Sequence[str]) -> list[Range] | None:
        """The ranges of row numbers; None when they are unknown."""
        ranges = [Range(self._last_row + 1, EVERYWHERE.last)]
        stored_before = []
        for name in traces:
            state = self._tracker.state(name)
            if state is not None:
                ranges.append(Range(state.first, state.last))
            if state is None or not state.is_new:
                stored_before.append(name)
        if stored_before:
            stored = self._store.live.row_ranges(stored_before)
            if stored is None:
                return None
            ranges += stored
        return merge_ranges(ranges, ROW_GROUP, MAX_WIDE_RANGES)

    def archived(self, traces: Sequence[str]) -> list[str]:
        """The traces that may have archived rows."""
        return [name for name in traces if not self._is_new(name)]

    def with_conversations(self, traces: Sequence[str]) -> list[str]:
        """The traces and every trace of their conversations."""
        key = tuple(traces)
        if key not in self._conversations:
            self._conversations[key] = self._find_conversations(traces)
        return self._conversations[key]

    def conversing(self, traces: Sequence[str]) -> list[str]:
        """Return the traces, out of some, that may share a conversation with others."""
        return [n for n in traces if not self._is_new(n) or self._has_conversation(n)]

    def _find_conversations(self, traces: Sequence[str]) -> list[str]:
        candidates = self.conversing(traces)
        if not candidates:
            return sorted(set(traces))
        related_traces = self._store.related.with_conversations(candidates, noted=True)
        return sorted({*traces, *related_traces})

    def _is_new(self, name: str) -> bool:
        state = self._tracker.state(name)
        return state is not None and state.is_new

    def _has_conversation(self, name: str) -> bool:
        state = self._tracker.state(name)
        return state is not None and state.has_conversation


class TraceReconstructor:
    """Takes traces that have ended from the tracker, and reconstructs their trajectories.

    Args:
        store: The store.
        tracker: The open traces.
        arrivals: Knows which rows the tracker has taken in.

    Attributes:
        has_more: Whether the last `run` left traces that have ended.
    """

    def __init__(self, store: Store, tracker: TraceTracker, arrivals: ArrivalReader) -> None:
        self._store, self._tracker, self._arrivals = store, tracker, arrivals
        self.has_more = False
        self._failures: Counter[str] = Counter()
        self._max_rows = _FIRST_ROWS
        self._background_store: Store | None = None
        self._background = BackgroundReconstructor(self._refresh_in_background)

    @property
    def is_idle(self) -> bool:
        """Whether the background thread has nothing to do."""
        return self._background.is_idle

    def run(self, now: int) -> Generator[ReconstructedTraces, None, None]:
        """Reconstruct a batch of traces that have ended, and yield them, usually all at once.

        The caller records their end before it continues. If that fails, it throws its exception
        into the generator. The traces are then open again, and tried one by one unless the store
        has failed.
        """
        self.has_more = False
        yield from self._finish_large(now)
        ended = self._tracker.take_ended(now, BATCH, self._max_rows)
        rows = sum(self._rows(trace.trace_id) for trace in ended)
        is_full = len(ended) == BATCH or rows >= self._max_rows
        try:
            yield from self._run_batch(ended, now)
        except BaseException:
            self._tracker.reopen(ended)
            raise
        self.has_more = is_full

    def close(self) -> None:
        """Wait for the background thread; unfinished work is found again at the next start."""
        if self._background.close(_CLOSE_TIMEOUT) and self._background_store is not None:
            self._background_store.close()

    def _run_batch(
        self, ended: Sequence[CompletedTrace], now: int
    ) -> Iterator[ReconstructedTraces]:
        locator = RowLocator(self._store, self._tracker, self._arrivals.last_row)
        batch = self._queue_large(ended, locator, now)
        if len(batch) == 1:
            yield from self._reconstruct_alone(batch[0], now)
        elif batch:
            try:
                yield from self._reconstruct(batch, now, locator)
            except Exception as error:
                if is_store_failure(error):
                    raise
                self._tracker.reopen(batch)
                for trace in batch:
                    for again in self._tracker.take_ended_among([trace.trace_id], now):
                        yield from self._reconstruct_alone(again, now)

    def _reconstruct(
        self, batch: Sequence[CompletedTrace], now: int, locator: RowLocator | None = None
    ) -> Iterator[ReconstructedTraces]:
        names = [trace.trace_id for trace in batch]
        locator = locator or RowLocator(self._store, self._tracker, self._arrivals.last_row)
        rows = sum(map(self._rows, names))
        with self._background.elsewhere() as note:
            refreshed = refresh_traces(self._store, names, locator)
            note(refreshed.trace_ids)
        width = 1 + refreshed.read_bytes // max(1, rows)
        self._max_rows = max(1, min(_BATCH_ROWS, _GROWTH * self._max_rows, _BATCH_BYTES // width))
        # A conversation is reconstructed as a whole: its other traces need not be done again.
        ended_among = self._tracker.take_ended_among(set(refreshed.trace_ids) - set(names), now)
        yield from self._hand_over([*batch, *ended_among], refreshed)

    def _reconstruct_alone(self, trace: CompletedTrace, now: int) -> Iterator[ReconstructedTraces]:
        """Reconstruct one trace that may be the cause of a failure.

        After the last attempt it is recorded as ended, without trajectories.
        """
        name = trace.trace_id
        try:
            yield from self._reconstruct([trace], now)
        except BaseException as error:
            self._failures[name] += 1
            self._tracker.reopen([trace])
            if not isinstance(error, Exception) or is_store_failure(error):
                raise
            _log.exception("trace %s cannot be reconstructed", name)
            yield from self._give_up_if_exhausted(name, now)

    def _give_up_if_exhausted(self, name: str, now: int) -> Iterator[ReconstructedTraces]:
        if self._failures[name] < _MAX_ATTEMPTS:
            return
        del self._failures[name]
        ended = self._tracker.take_ended_among([name], now)
        failed = [trace._replace(reason="failed") for trace in ended]
        if failed:
            yield from self._hand_over(failed, None)

    def _hand_over(
        self,
        traces: Sequence[CompletedTrace],
        refreshed: RefreshResult | None,
        *,
        is_large: bool = False,
    ) -> Iterator[ReconstructedTraces]:
        """Yield traces to the caller, which records their end; when that fails, reopen them."""
        names = [trace.trace_id for trace in traces]
        last_row = self._arrivals.last_row
        floor = self._tracker.floor(last_row, frozenset(names))
        try:
            yield ReconstructedTraces(traces, refreshed, floor, last_row, is_large)
        except BaseException:
            self._tracker.reopen(traces)
            raise
        self._tracker.confirm(names)
        self._arrivals.mark_completed(names)
        for name in names if self._failures else ():
            del self._failures[name]  # a Counter ignores keys that it does not have

    # -- large traces and long conversations

    def _queue_large(
        self, ended: Sequence[CompletedTrace], locator: RowLocator, now: int
    ) -> list[CompletedTrace]:
        """Queue large traces for the background, and return the others."""
        large: list[CompletedTrace] = []
        small: list[CompletedTrace] = []
        for trace in ended:
            name = trace.trace_id
            if name in self._background:
                large.append(trace)
            elif self._rows(name) >= _LARGE_TRACE:
                large.append(trace)
                self._submit([name])
            else:
                small.append(trace)
        if small:
            small, of_conversations = self._split_by_conversation(small, locator)
            large += of_conversations
        # They stay open, so that they are found again after a crash.
        self._tracker.reopen(large, until=now + _CHECK_LARGE_NS)
        return small

    def _split_by_conversation(
        self, ended: Sequence[CompletedTrace], locator: RowLocator
    ) -> tuple[list[CompletedTrace], list[CompletedTrace]]:
        """Separate the traces of long conversations, at a cost that is low when there are none.

        Returns:
            The other traces, and the traces of long conversations.
        """
        names = [trace.trace_id for trace in ended]
        other_count = len(locator.with_conversations(names)) - len(names)
        if other_count + len(locator.conversing(names)) < _LONG_CONVERSATION:
            return list(ended), []
        long = self._store.related.in_long_conversations(names, _LONG_CONVERSATION)
        _, large = self._queue_long([trace for trace in ended if trace.trace_id in long], locator)
        small = [trace for trace in ended if trace.trace_id not in long]
        names = [trace.trace_id for trace in small]
        # A conversation may be long only through others that it is linked with. Looking these up
        # trace by trace is worth it only when there are suspiciously many.
        suspicious = _LONG_CONVERSATION + _USUAL_CONVERSATION * len(names)
        if len(locator.with_conversations(names)) >= suspicious:
            small, more = self._queue_long(small, locator)
            large += more
        return small, large

    def _queue_long(
        self, ended: Sequence[CompletedTrace], locator: RowLocator
    ) -> tuple[list[CompletedTrace], list[CompletedTrace]]:
        """Look up each trace's conversation, and queue long conversations for the background.

        Returns:
            The traces of short conversations, and the traces of long conversations.
        """
        small: list[CompletedTrace] = []
        large: list[CompletedTrace] = []
        queued: set[str] = set()
        for trace in ended:
            name = trace.trace_id
            if name in queued:
                large.append(trace)
                continue
            conversation = locator.with_conversations([name])
            if len(conversation) < _LONG_CONVERSATION:
                small.append(trace)
                continue
            queued.update(conversation)
            large.append(trace)
            if not any(member in self._background for member in conversation):
                self._submit(conversation)
        return small, large

    def _rows(self, name: str) -> int:
        state = self._tracker.state(name)
        return state.rows if state is not None else 0

    def _submit(self, names: Sequence[str]) -> None:
        """Queue traces for the background thread, which uses another connection."""
        if self._background_store is None:
            self._background_store = self._store.sibling()
        states = {name: self._tracker.state(name) for name in names}
        last: Mapping[str, int] = {name: state.last for name, state in states.items() if state}
        self._background.submit(names, last)

    def _refresh_in_background(self, names: Sequence[str]) -> RefreshResult:
        assert self._background_store is not None
        return refresh_traces(self._background_store, names, writing=self._background.writing)

    def _finish_large(self, now: int) -> Iterator[ReconstructedTraces]:
        """Yield the traces that the background has reconstructed."""
        group = self._background.take_finished()
        if group is None or group.is_overtaken:
            return
        unchanged = []
        for name in group.names:
            state = self._tracker.state(name)
            if state is not None and state.last <= group.last.get(name, 0):
                unchanged.append(name)
        if group.refreshed is not None:
            ended = self._tracker.take_ended_among(unchanged, now)
            yield from self._hand_over(ended, group.refreshed, is_large=True)
            return
        if group.error is not None and is_store_failure(group.error):
            raise group.error
        for name in unchanged:
            self._failures[name] += 1
            _log.error("trace %s cannot be reconstructed", name, exc_info=group.error)
            yield from self._give_up_if_exhausted(name, now)
