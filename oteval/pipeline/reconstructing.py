"""What is in a store into trajectories."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ..errors import NotFound
from ..model import LogRecord, Span, Trajectory
from ..reconstruct import Explanation, failed_trajectory, reconstruct
from ..reconstruct import explain as explain_trace
from ..store import Range, Store
from .memory import rare_cycle_search

__all__ = ["explain", "refresh", "refresh_traces"]

_log = logging.getLogger(__name__)


def refresh(store: Store, on_progress: Callable[[int, int], None] | None = None) -> int:
    """Reconstruct the traces that spans or log records came to since last time.

    Args:
        store: The store.
        on_progress: Called with the number of traces done and to do.

    Returns:
        How many trajectories are new or changed.
    """
    changed, done = 0, 0
    total = store.pending.count() if on_progress else 0
    with rare_cycle_search():
        for page in store.pending.pages():
            changed += _reconstruct_page(store, page)
            done += len(page)
            if on_progress:
                on_progress(done, max(done, total))
    return changed


def refresh_traces(store: Store, trace_ids: Sequence[str]) -> list[str]:
    """Reconstruct some traces with all that hang together with them.

    Args:
        store: The store.
        trace_ids: The traces.

    Returns:
        Every trace that was reconstructed.
    """
    with rare_cycle_search():
        together = _together(store, store.pending.with_conversations(trace_ids))
        store.trajectories.write(together.trajectories, together.trace_ids)
    return together.trace_ids


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
    together = _together(store, store.pending.with_conversations([trace_id]))
    return explain_trace(trace_id, together.spans, together.logs)


def _reconstruct_page(store: Store, page: Sequence[str]) -> int:
    """Reconstruct a page of traces with all that hang together with them."""
    together = _together(store, page)
    return store.trajectories.write(together.trajectories, together.trace_ids)


def _trace_of(store: Store, name: str) -> str:
    found = store.spans.traces_of(name)
    if len(found) > 1:
        raise NotFound(f"{name!r} means several traces: {', '.join(found)}")
    if found:
        return found[0]
    try:
        return store.trajectories.get(name).root_span.trace_id
    except NotFound:
        raise NotFound(
            f"no trace, span or trajectory {name!r}; oteval trajectories lists them"
        ) from None


class _Together(NamedTuple):
    """Traces that can only be reconstructed together, and what they come to."""

    trace_ids: list[str]
    spans: list[Span]
    logs: list[LogRecord]
    trajectories: list[Trajectory]


def _together(store: Store, page: Sequence[str]) -> _Together:
    """Return a page of traces with those that continue them, or tell again what they do.

    Args:
        store: The store.
        page: Whole conversations.
    """
    traces = _reachable(store, page)
    while True:
        traces += _reachable(store, sorted(set(store.pending.told_with(traces)) - set(traces)))
        spans, logs = store.spans.of_traces(traces)
        found = _reconstructed(spans, logs)
        known = set(traces)
        more = _linked(store, found) - known
        again = _recorded_again(store, found) - known
        if not more and not again:
            return _Together(traces, spans, logs, found)
        if again:
            more.update(store.pending.with_conversations(sorted(more | again)))
        added = _reachable(store, sorted(more - known))
        if not added:
            return _Together(traces, spans, logs, found)
        traces += added


def _reachable(store: Store, traces: Iterable[str]) -> list[str]:
    """Return traces less those of which an archived part is not there any more.

    What they were reconstructed to stands: half of their spans would make something worse of it.
    """
    names = list(traces)
    gone = store.spans.unreachable(names)
    if gone:
        _log.warning("%d traces are left as they are: their archive is not there", len(gone))
    return sorted(set(names) - gone) if gone else names


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


def _linked(store: Store, found: Sequence[Trajectory]) -> set[str]:
    """Return the traces that hang together with some trajectories by what they say alone."""
    loose = [t for t in found if not t.conversation_id or t.follows]
    chains = {t.chain for t in loose if t.chain}
    follows = {t.follows for t in loose if t.follows}
    return set(store.pending.linked(sorted(chains - follows), sorted(follows - chains)))


def _recorded_again(store: Store, found: Sequence[Trajectory]) -> set[str]:
    """Return the traces that may tell of the same model calls by another instrumentation."""
    called = [t for t in found if t.call_keys]
    if not called:
        return set()
    times = Range(min(t.start_ns for t in called), max(t.end_ns for t in called))
    keys: dict[bool, set[int]] = {True: set(), False: set()}
    for trajectory in called:
        keys[trajectory.agent == ""].update(trajectory.call_keys)
    return set(store.pending.recorded_again(sorted(keys[False]), sorted(keys[True]), times))
