"""Reconstruct the trajectories of stored traces, and store them.

Traces that belong together are reconstructed together: the traces of a conversation, and traces
that `Store.related` finds by their contents. Related traces are only known once the first are
reconstructed, so traces are added until nothing new is found.
"""

from __future__ import annotations

import logging
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import NamedTuple, Protocol

import pyarrow as pa

from ..base.errors import NotFound, TooLarge
from ..base.machine import infrequent_gc
from ..base.text import listed
from ..model import FOLLOWS_ANSWER, LogRecord, Span, Trajectory
from ..reconstruct import (
    Explanation,
    SpanAccount,
    explain as explain_trace,
    failed_trajectory,
    reconstruct,
)
from ..store import EVERYWHERE, ONE_THREAD_ROW, LooseRun, Range, ReadLimit, Store, merge_ranges

__all__ = [
    "Explanation",
    "RefreshResult",
    "SpanAccount",
    "TraceLocator",
    "explain",
    "reconstruct_all",
    "refresh",
    "refresh_traces",
]

# The longest time between a model call and the tool run that it requested, in a separate trace.
_TOOL_WAIT_NS = 60 * 10**9
# The traces on the first page; the factor by which a page may be larger than the previous page; the
# approximate bytes of rows of later pages. To reconstruct them takes some three times as much.
_FIRST_PAGE, _GROWTH = 16, 4
_PAGE_BYTES = 48 << 20
# Traces were stored together if at least one of this many rows between their first and last is
# theirs.
_TOGETHER = 2
_log = logging.getLogger(__name__)


class TraceLocator(Protocol):
    """Knows where the rows of traces are, so that the whole store need not be searched."""

    def row_ranges(self, traces: Sequence[str], /) -> list[Range] | None:
        """The ranges of row numbers of traces, or None if they are unknown."""

    def archived(self, traces: Sequence[str]) -> list[str]:
        """The traces that may have archived rows."""

    def with_conversations(self, traces: Sequence[str]) -> list[str]:
        """Return traces and all others that share conversations, also through third traces."""


class _StoreSearch:
    """A `TraceLocator` that knows nothing, so that the store is searched."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def row_ranges(self, _traces: Sequence[str]) -> list[Range] | None:
        return None

    def archived(self, traces: Sequence[str]) -> list[str]:
        return list(traces)

    def with_conversations(self, traces: Sequence[str]) -> list[str]:
        return self._store.related.with_conversations(traces)


class RefreshResult(NamedTuple):
    """The traces that were reconstructed.

    Attributes:
        trace_ids: All of the traces.
        times: The ranges of time (ns) that contain their spans' starts.
        changed: The ids of trajectories that are new or have a new revision.
        without_agent: The traces without a run: they contain neither an agent nor a model call.
        read_bytes: The bytes of the rows that were read.
        read_rows: The number of these rows.
        rows: The rows of the new and changed trajectories; None if they were not kept.
    """

    trace_ids: list[str]
    times: list[Range]
    changed: list[str]
    without_agent: Sequence[str] = ()
    read_bytes: int = 0
    read_rows: int = 0
    rows: pa.Table | None = None


Writing = Callable[[Sequence[str]], AbstractContextManager[None]]
"""Returns the context for writing the trajectories of some traces."""


def _freely(_traces: Sequence[str]) -> AbstractContextManager[None]:
    return nullcontext()


class _PageSize:
    """How many traces are reconstructed together, by the bytes of earlier traces.

    Attributes:
        has_wide_rows: Whether the rows of the next page may be wide.
    """

    def __init__(self) -> None:
        self._size = _FIRST_PAGE
        self.has_wide_rows = True

    def __call__(self) -> int:
        """The size of the next page."""
        return self._size

    def note(self, result: RefreshResult) -> None:
        """Note the size of a page."""
        width = 1 + result.read_bytes // max(1, len(result.trace_ids))
        self._size = max(1, min(_GROWTH * self._size, _PAGE_BYTES // width))
        self.has_wide_rows = result.read_bytes >= ONE_THREAD_ROW * result.read_rows


def refresh(
    store: Store,
    on_progress: Callable[[int, int], None] | None = None,
    on_without_agent: Callable[[Sequence[str]], None] | None = None,
) -> int:
    """Reconstruct the traces that have new spans or log records since the last time.

    Args:
        store: The store.
        on_progress: Called with the number of traces done and the number of all.
        on_without_agent: Called for each page with the traces without a run, which become no
            trajectory.

    Returns:
        The number of trajectories that are new or changed.
    """
    changed, done = 0, 0
    total = store.pending.count() if on_progress else 0
    with infrequent_gc():
        size = _PageSize()
        for page in store.pending.pages(limit=size):
            with store.one_thread() if size.has_wide_rows else nullcontext():
                result = _refresh_page(store, page, page, _StoreSearch(store))
            size.note(result)
            changed += len(result.changed)
            if on_without_agent and result.without_agent:
                on_without_agent(result.without_agent)
            done += len(page)
            if on_progress:
                on_progress(done, max(done, total))
    return changed


def refresh_traces(
    store: Store,
    trace_ids: Sequence[str],
    locator: TraceLocator | None = None,
    writing: Writing = _freely,
) -> RefreshResult:
    """Reconstruct some traces and all traces that belong to them.

    Args:
        store: The store.
        trace_ids: The traces.
        locator: Knows where their rows are. By default the store is searched.
        writing: Returns the context for writing the trajectories.
    """
    locator = locator or _StoreSearch(store)
    with infrequent_gc():
        page = locator.with_conversations(trace_ids)
        return _refresh_page(store, trace_ids, page, locator, writing)


def explain(store: Store, name: str) -> Explanation:
    """How each span of a trace is used in the reconstruction.

    Args:
        store: The store, with its trajectories up to date.
        name: The id of a trace, span or trajectory, or the beginning of a trace's or trajectory's
            id.

    Raises:
        NotFound: No id begins with the name, or the ids of several traces do.
        ArchiveMissing: The trace is archived in a missing file.
    """
    trace_id = _resolve_trace(store, name)
    if store.spans.unreachable([trace_id]):
        store.spans.of_traces([trace_id])  # raises the error that names the file
    search = _StoreSearch(store)
    loaded, _ = _reconstruct_together(store, search.with_conversations([trace_id]), search)
    return explain_trace(trace_id, loaded.spans, loaded.logs)


def _resolve_trace(store: Store, name: str) -> str:
    """The id of the only trace that a name of a run, trace or span means."""
    traces = store.spans.find_traces(name)
    if traces == [name]:
        return name
    runs = store.trajectories.of(store.trajectories.ids_with_prefix(name)[:6]).values()
    trace_ids = dict.fromkeys([*traces, *(run.root_span.trace_id for run in runs)])
    if not trace_ids:
        raise NotFound(f"no trace, span or trajectory {name!r}; oteval trajectories lists them")
    if len(trace_ids) > 1:
        raise NotFound(f"{name!r} means several traces: {listed(list(trace_ids))}")
    return next(iter(trace_ids))


def _refresh_page(
    store: Store,
    requested: Sequence[str],
    page: Sequence[str],
    locator: TraceLocator,
    writing: Writing = _freely,
) -> RefreshResult:
    """Reconstruct a page of traces and all traces that belong to them, and store the trajectories.

    A page that is too large is halved between conversations. A conversation that is too large by
    itself gets a placeholder for each requested trace.

    Args:
        store: The store.
        requested: The requested traces.
        page: These traces with their conversations.
        locator: Knows where their rows are.
        writing: Returns the context for writing the trajectories.
    """
    try:
        loaded, trajectories = _reconstruct_together(store, page, locator)
    except TooLarge as error:
        conversations = _by_conversation(page, locator)
        if len(conversations) == 1:
            return _store_placeholders(store, requested, str(error), writing)
        middle = len(conversations) // 2
        parts = []
        for half in (conversations[:middle], conversations[middle:]):
            traces = sorted(chain(*half))
            ours = sorted(set(requested).intersection(traces))
            parts.append(_refresh_page(store, ours, traces, locator, writing))
        return RefreshResult(
            trace_ids=sorted({name for part in parts for name in part.trace_ids}),
            times=merge_ranges(time for part in parts for time in part.times),
            changed=[name for part in parts for name in part.changed],
            without_agent=[name for part in parts for name in part.without_agent],
            read_bytes=sum(part.read_bytes for part in parts),
            read_rows=sum(part.read_rows for part in parts),
            rows=pa.concat_tables(part.rows for part in parts if part.rows is not None),
        )
    with writing(loaded.trace_ids):
        rows = store.trajectories.write_rows(trajectories, loaded.trace_ids, loaded.times)
    changed = rows["trajectory_id"].to_pylist()
    with_agent = {
        name
        for trajectory in trajectories
        for name in (trajectory.root_span.trace_id, *trajectory.trace_ids)
    }
    unlinked = dict.fromkeys(s.trace_id for s in loaded.spans if s.trace_id not in with_agent)
    return RefreshResult(
        loaded.trace_ids,
        loaded.times,
        changed,
        without_agent=list(unlinked),
        read_bytes=loaded.read_bytes,
        read_rows=len(loaded.spans) + len(loaded.logs),
        rows=rows,
    )


def _by_conversation(page: Sequence[str], locator: TraceLocator) -> list[list[str]]:
    """Return traces in groups that share conversations, also through third traces."""
    groups: list[list[str]] = []
    grouped: set[str] = set()
    for name in page:
        if name not in grouped:
            groups.append(locator.with_conversations([name]))
            grouped.update(groups[-1])
    return groups


def _store_placeholders(
    store: Store, traces: Sequence[str], reason: str, writing: Writing
) -> RefreshResult:
    """Store trajectories without messages for traces that are too large to be reconstructed."""
    _log.warning("not reconstructed: %s: %s", ", ".join(traces[:5]), reason)
    spans = store.spans.first_of_traces(traces)
    placeholders = [failed_trajectory([span], reason, "too_large") for span in spans]
    with writing(traces):
        rows = store.trajectories.write_rows(placeholders, [span.trace_id for span in spans])
    changed = rows["trajectory_id"].to_pylist()
    return RefreshResult(list(traces), _times(spans), changed, rows=rows)


def _reconstruct_together(
    store: Store, page: Sequence[str], locator: TraceLocator
) -> tuple[_LoadedTraces, list[Trajectory]]:
    """A page of traces with all traces that belong to them, and their trajectories.

    Args:
        store: The store.
        page: Traces of whole conversations.
        locator: Knows where their rows are.
    """
    loaded = _LoadedTraces(store, locator)
    loaded.add(page)
    while True:
        loaded.add_with_conversations(store.related.by_runs(loaded.trace_ids, loaded.times))
        trajectories = reconstruct_all(loaded.spans, loaded.logs)
        related = _related_by_messages(store, loaded, trajectories)
        related |= _related_by_calls(store, trajectories, max_ranges=max(1, len(loaded.times)))
        if not loaded.add_with_conversations(related):
            return loaded, trajectories


class _LoadedTraces:
    """Traces with their spans and log records, each read once, and the times (ns) of the spans."""

    def __init__(self, store: Store, locator: TraceLocator) -> None:
        self._store, self._locator = store, locator
        self._limit = ReadLimit(store.spans.max_bytes)
        self.trace_ids: list[str] = []
        self.spans: list[Span] = []
        self.logs: list[LogRecord] = []
        self.times: list[Range] = []

    @property
    def read_bytes(self) -> int:
        """The bytes of the rows that were read."""
        return self._limit.taken

    def add(self, traces: Iterable[str]) -> bool:
        """Read the traces that are new and reachable; return whether there are any."""
        added = self._reachable(sorted(set(traces) - set(self.trace_ids)))
        if added:
            spans, logs = self._store.spans.of_traces(
                added,
                row_ranges=self._locator.row_ranges(added),
                archived=self._locator.archived(added),
                limit=self._limit,
            )
            self.trace_ids += added
            self.spans += spans
            self.logs += logs
            self.times = _times(self.spans)
        return bool(added)

    def add_with_conversations(self, traces: Iterable[str]) -> bool:
        """Add the traces that are new, with all traces of their conversations."""
        new = set(traces) - set(self.trace_ids)
        return bool(new) and self.add(self._locator.with_conversations(sorted(new)))

    def _reachable(self, names: list[str]) -> list[str]:
        """Return traces, leaving out any with rows in missing files of the archive.

        Their stored trajectories stay. Half of the spans would only make worse trajectories.
        """
        missing = self._store.spans.unreachable(self._locator.archived(names))
        if missing:
            _log.warning("%d traces stay as they are: their archive is missing", len(missing))
        return sorted(set(names) - missing) if missing else names


def _times(spans: Sequence[Span]) -> list[Range]:
    """The ranges of time (ns) that contain the starts of whole traces' spans.

    Every run that is rooted in one of the traces has a span of it, and so overlaps one of the
    times. Traces that were stored together share one range, because between them are few other
    runs, and DuckDB takes some time for each range.
    """
    starts: dict[str, list[int]] = defaultdict(list)
    for span in spans:
        starts[span.trace_id].append(span.start_ns)
    ranges = [Range(min(of_trace), max(of_trace)) for of_trace in starts.values()]
    numbers = [span.seq for span in spans]
    if max(numbers, default=0) - min(numbers, default=0) < _TOGETHER * len(spans):
        return merge_ranges(ranges, max_ranges=1)
    return merge_ranges(ranges)


def reconstruct_all(spans: Sequence[Span], logs: Sequence[LogRecord]) -> list[Trajectory]:
    """Reconstruct traces together. If that raises, reconstruct each trace separately.

    A trace that still raises becomes a trajectory with the error, so that it blocks no other trace.

    Args:
        spans: The spans of whole traces.
        logs: Their log records.
    """
    try:
        return reconstruct(spans, logs)
    except Exception:
        by_trace: dict[str, list[Span]] = {}
        for span in spans:
            by_trace.setdefault(span.trace_id, []).append(span)
        if len(by_trace) == 1:
            return [failed_trajectory(spans, traceback.format_exc(limit=-1).splitlines()[-1])]
        trajectories: list[Trajectory] = []
        for trace_id, members in by_trace.items():
            trajectories += reconstruct_all(
                members, [log for log in logs if log.trace_id == trace_id]
            )
        return trajectories


def _related_by_messages(
    store: Store, loaded: _LoadedTraces, trajectories: Sequence[Trajectory]
) -> set[str]:
    """The traces with runs that follow or precede runs without a conversation id."""
    runs = [
        LooseRun(
            trajectory.service,
            trajectory.chain,
            trajectory.follows,
            trajectory.start_ns,
            end_ns=trajectory.end_ns,
        )
        for trajectory in trajectories
        if not trajectory.conversation_id and (trajectory.chain or trajectory.follows)
    ]
    if store.related.any_follow_answers():
        runs += [
            LooseRun(trajectory.service, f"{FOLLOWS_ANSWER}{key}", "", trajectory.start_ns)
            for trajectory in trajectories
            for key in trajectory.call_keys
        ]
    return set(store.related.by_messages(runs, loaded.trace_ids, loaded.times))


def _related_by_calls(
    store: Store, trajectories: Sequence[Trajectory], max_ranges: int
) -> set[str]:
    """The traces that may record the same model calls by another instrumentation.

    Args:
        store: The store.
        trajectories: The trajectories.
        max_ranges: The most ranges of time to search for stored runs.
    """
    keys: dict[bool, set[int]] = {True: set(), False: set()}
    for trajectory in trajectories:
        keys[trajectory.agent == ""].update(trajectory.call_keys)
    # Two recordings of a call overlap, and so do the runs that contain them. A tool in a separate
    # trace starts soon after the call that requested it.
    times = merge_ranges(
        [
            Range(trajectory.start_ns - _TOOL_WAIT_NS, trajectory.end_ns + _TOOL_WAIT_NS)
            for trajectory in trajectories
        ],
        max_ranges=max_ranges,
    )
    by_calls = set(store.related.by_calls(sorted(keys[False]), sorted(keys[True]), times))
    # A user may take any time until the next question.
    answers = {
        int(trajectory.follows.removeprefix(FOLLOWS_ANSWER))
        for trajectory in trajectories
        if trajectory.follows.startswith(FOLLOWS_ANSWER)
    }
    return by_calls.union(store.related.by_calls((), sorted(answers), [EVERYWHERE]))
