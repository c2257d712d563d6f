"""What is in a store into trajectories."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

from ..errors import NotFound, TooLarge
from ..model import LogRecord, Span, Trajectory
from ..reconstruct import Explanation, failed_trajectory, reconstruct
from ..reconstruct import explain as explain_trace
from ..store import LooseRun, Range, ReadLimit, Store, merge_ranges
from ..text import listed
from .memory import rare_cycle_search

__all__ = ["Places", "Refreshed", "explain", "refresh", "refresh_traces"]

# How long after a model asked for a tool it may start, where both are traces of their own.
_TOOL_WAIT_NS = 60 * 10**9
_log = logging.getLogger(__name__)


class Places(Protocol):
    """Where the rows of traces are, so that not all of a store is looked through for them."""

    def numbers(self, traces: Sequence[str], /) -> list[Range] | None:
        """Return between which numbers they are in the database, None where that is not known."""

    def archived(self, traces: Sequence[str]) -> list[str]:
        """Return those of some traces that may be in the archive."""

    def with_conversations(self, traces: Sequence[str]) -> list[str]:
        """Return traces and all others that share conversations with them, also by others."""


class _Anywhere:
    """Nothing is known of where rows are."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def numbers(self, _traces: Sequence[str]) -> list[Range] | None:
        return None

    def archived(self, traces: Sequence[str]) -> list[str]:
        return list(traces)

    def with_conversations(self, traces: Sequence[str]) -> list[str]:
        return self._store.related.with_conversations(traces)


class Refreshed(NamedTuple):
    """What was reconstructed.

    Attributes:
        trace_ids: Every trace.
        times: The times (ns) in which their spans begin.
        fresh: The trajectories of which there is a new revision.
        plain: The traces without any agent: nothing but requests and database calls.
    """

    trace_ids: list[str]
    times: list[Range]
    fresh: list[str]
    plain: Sequence[str] = ()


def refresh(
    store: Store,
    on_progress: Callable[[int, int], None] | None = None,
    on_plain: Callable[[Sequence[str]], None] | None = None,
) -> int:
    """Reconstruct the traces that spans or log records came to since last time.

    Args:
        store: The store.
        on_progress: Called with the number of traces done and to do.
        on_plain: Called with the traces of each page that hold nothing but requests and database
            calls, and so give no trajectory.

    Returns:
        How many trajectories are new or changed.
    """
    changed, done = 0, 0
    total = store.pending.count() if on_progress else 0
    with rare_cycle_search():
        for page in store.pending.pages():
            found = _refreshed(store, page, page, _Anywhere(store))
            changed += len(found.fresh)
            if on_plain and found.plain:
                on_plain(found.plain)
            done += len(page)
            if on_progress:
                on_progress(done, max(done, total))
    return changed


def refresh_traces(
    store: Store, trace_ids: Sequence[str], places: Places | None = None
) -> Refreshed:
    """Reconstruct some traces with all that hang together with them.

    Args:
        store: The store.
        trace_ids: The traces.
        places: Where their rows are, as far as the caller knows.
    """
    places = places or _Anywhere(store)
    with rare_cycle_search():
        return _refreshed(store, trace_ids, places.with_conversations(trace_ids), places)


def explain(store: Store, name: str) -> Explanation:
    """Return what became of each span of a trace.

    Args:
        store: The store, its trajectories up to date.
        name: A trace's, span's or trajectory's id, or the beginning of a trace's or trajectory's.

    Raises:
        NotFound: Nothing has the id, or several begin with it.
        ArchiveMissing: The trace was archived, and the archive is not there.
    """
    trace_id = _trace_of(store, name)
    if store.spans.unreachable([trace_id]):
        store.spans.of_traces([trace_id])  # raises, and names the file
    places = _Anywhere(store)
    loaded, _ = _together(store, places.with_conversations([trace_id]), places)
    return explain_trace(trace_id, loaded.spans, loaded.logs)


def _refreshed(
    store: Store, asked: Sequence[str], page: Sequence[str], places: Places
) -> Refreshed:
    """Reconstruct a page of traces with all that hang together with them.

    What is too large together is halved, conversations whole; where one of these is too large by
    itself, what stands for the traces that were asked for says so.

    Args:
        store: The store.
        asked: The traces.
        page: The traces with their conversations.
        places: Where their rows are.
    """
    try:
        loaded, found = _together(store, page, places)
    except TooLarge as error:
        talks = _talks(page, places)
        if len(talks) == 1:
            return _given_up(store, asked, str(error))
        wanted, middle = set(asked), len(talks) // 2
        halves = [sorted(chain(*talks[:middle])), sorted(chain(*talks[middle:]))]
        parts = [_refreshed(store, sorted(wanted.intersection(h)), h, places) for h in halves]
        return Refreshed(
            sorted({name for part in parts for name in part.trace_ids}),
            merge_ranges(time for part in parts for time in part.times),
            [name for part in parts for name in part.fresh],
            [name for part in parts for name in part.plain],
        )
    fresh = store.trajectories.write(found, loaded.trace_ids, loaded.times)
    told = {name for one in found for name in (one.root_span.trace_id, *one.trace_ids)}
    plain = dict.fromkeys(s.trace_id for s in loaded.spans if s.trace_id not in told)
    return Refreshed(loaded.trace_ids, loaded.times, fresh, list(plain))


def _talks(page: Sequence[str], places: Places) -> list[list[str]]:
    """Return traces by conversation, those that share one also by way of others together."""
    found: list[list[str]] = []
    known: set[str] = set()
    for name in page:
        if name not in known:
            found.append(places.with_conversations([name]))
            known.update(found[-1])
    return found


def _given_up(store: Store, traces: Sequence[str], reason: str) -> Refreshed:
    """Store what stands for traces that are not reconstructed."""
    _log.warning("not reconstructed: %s: %s", ", ".join(traces[:5]), reason)
    spans = store.spans.first_of_traces(traces)
    found = [failed_trajectory([span], reason, "too_large") for span in spans]
    fresh = store.trajectories.write(found, [span.trace_id for span in spans])
    return Refreshed(list(traces), _times(spans), fresh)


def _trace_of(store: Store, name: str) -> str:
    """Return the trace that an id, or the beginning of one, of a run, trace or span means."""
    traces = store.spans.traces_of(name)
    if traces == [name]:
        return name
    runs = store.trajectories.of(store.trajectories.beginning(name)[:6]).values()
    found = dict.fromkeys([*traces, *(run.root_span.trace_id for run in runs)])
    if not found:
        raise NotFound(f"no trace, span or trajectory {name!r}; oteval trajectories lists them")
    if len(found) > 1:
        raise NotFound(f"{name!r} means several traces: {listed(list(found))}")
    return next(iter(found))


def _together(
    store: Store, page: Sequence[str], places: Places
) -> tuple[_Loaded, list[Trajectory]]:
    """Return a page of traces with all that hang together with them, and what they come to.

    Args:
        store: The store.
        page: Whole conversations.
        places: Where their rows are.
    """
    loaded = _Loaded(store, places)
    loaded.add(page)
    while True:
        loaded.add_talks(store.related.by_runs(loaded.trace_ids, loaded.times))
        found = _reconstructed(loaded.spans, loaded.logs)
        if not loaded.add_talks(_linked(store, loaded, found) | _recorded_again(store, found)):
            return loaded, found


class _Loaded:
    """Traces with their spans and log records, each read once, and the times (ns) of the spans."""

    def __init__(self, store: Store, places: Places) -> None:
        self._store, self._places = store, places
        self._allowance = ReadLimit(store.spans.max_bytes)
        self.trace_ids: list[str] = []
        self.spans: list[Span] = []
        self.logs: list[LogRecord] = []
        self.times: list[Range] = []

    def add(self, traces: Iterable[str]) -> bool:
        """Read those of some traces that are new and can be; return whether there were any."""
        added = self._reachable(sorted(set(traces) - set(self.trace_ids)))
        if added:
            archived = self._places.archived(added)
            spans, logs = self._store.spans.of_traces(
                added, self._places.numbers(added), archived, self._allowance
            )
            self.trace_ids += added
            self.spans += spans
            self.logs += logs
            self.times = _times(self.spans)
        return bool(added)

    def add_talks(self, traces: Iterable[str]) -> bool:
        """Read those of some traces that are new, with all of their conversations; as `add`."""
        new = set(traces) - set(self.trace_ids)
        return bool(new) and self.add(self._places.with_conversations(sorted(new)))

    def _reachable(self, names: list[str]) -> list[str]:
        """Return traces less those of which an archived part is not there any more.

        What they were reconstructed to stands: half of their spans would make something worse of
        it.
        """
        gone = self._store.spans.unreachable(self._places.archived(names))
        if gone:
            _log.warning("%d traces are left as they are: their archive is not there", len(gone))
        return sorted(set(names) - gone) if gone else names


def _times(spans: Iterable[Span]) -> list[Range]:
    """Return the times (ns) in which the spans of traces begin, each trace whole.

    Every run that is rooted in one of them has a span of it, and so overlaps one of these times.
    """
    found: dict[str, Range] = {}
    for span in spans:
        first, last = found.get(span.trace_id, (span.start_ns, span.start_ns))
        found[span.trace_id] = Range(min(first, span.start_ns), max(last, span.start_ns))
    return merge_ranges(found.values())


def _reconstructed(spans: Sequence[Span], logs: Sequence[LogRecord]) -> list[Trajectory]:
    """Reconstruct traces together; where that fails, each by itself, and say which one failed.

    A trace that oteval cannot cope with must not keep all others out of reach.
    """
    try:
        return reconstruct(spans, logs)
    except Exception:
        by_trace: dict[str, list[Span]] = {}
        for span in spans:
            by_trace.setdefault(span.trace_id, []).append(span)
        if len(by_trace) == 1:
            return [failed_trajectory(spans, traceback.format_exc(limit=-1).splitlines()[-1])]
        found: list[Trajectory] = []
        for trace_id, members in by_trace.items():
            found += _reconstructed(members, [log for log in logs if log.trace_id == trace_id])
        return found


def _linked(store: Store, loaded: _Loaded, found: Sequence[Trajectory]) -> set[str]:
    """Return the traces that hang together with some others by what they say alone."""
    runs = [
        LooseRun(one.service, one.chain, one.follows, one.start_ns)
        for one in found
        if not one.conversation_id and (one.chain or one.follows)
    ]
    return set(store.related.by_messages(runs, loaded.trace_ids, loaded.times))


def _recorded_again(store: Store, found: Sequence[Trajectory]) -> set[str]:
    """Return the traces that may tell of the same model calls by another instrumentation."""
    called = [t for t in found if t.call_keys]
    if not called:
        return set()
    # Two recordings of a call overlap, and so do the runs that they are in; a tool in a trace of
    # its own runs soon after the call that asked for it.
    times = merge_ranges(Range(t.start_ns - _TOOL_WAIT_NS, t.end_ns + _TOOL_WAIT_NS) for t in found)
    keys: dict[bool, set[int]] = {True: set(), False: set()}
    for trajectory in called:
        keys[trajectory.agent == ""].update(trajectory.call_keys)
    return set(store.related.by_calls(sorted(keys[False]), sorted(keys[True]), times))
