"""Find the runs of a search, page by page, with a limit on the time that one page takes.

Most filters are conditions on columns. Others need the messages or the attributes of runs: for
these, runs are read from the newest on until a page is full or the time is over. The next page
then continues at the last run that was looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ..model import Score
from ..store import RunKey, Store, VerdictFilter, is_exact
from .search import RunSearch

__all__ = ["FoundRuns", "find_runs"]

# Seconds after which a search stops looking.
_PATIENCE = 0.5
_FIRST_BATCH, _LARGEST_BATCH, _LARGEST_READ = 200, 8000, 400


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """Some runs of a search.

    Attributes:
        keys: Their keys, in the order of the search.
        after: The key at which the next page begins; None if this is the last one.
        looked_at: How many runs were looked at, if they were looked at one by one.
        is_cut: Whether the time was over before the page was full.
    """

    keys: tuple[RunKey, ...]
    after: RunKey | None = None
    looked_at: int = 0
    is_cut: bool = False


def find_runs(
    store: Store,
    search: RunSearch,
    most: int,
    *,
    after: RunKey | None = None,
    is_forward: bool = False,
    patience: float = _PATIENCE,
    clock: Callable[[], float] = time.monotonic,
) -> FoundRuns:
    """Return the next runs of a search, the newest first.

    Args:
        store: The store.
        search: The search.
        most: The most runs.
        after: Only runs after this one.
        is_forward: The oldest first instead.
        patience: Seconds after which the search stops looking.
        clock: Returns the time in seconds.
    """
    selection = replace(search.selection, limit=None)
    is_read = not is_exact(selection)
    if search.verdict is None and not is_read:
        keys = store.run_list.keys(selection, most + 1, after=after, is_forward=is_forward)
        return FoundRuns(tuple(keys[:most]), keys[most - 1] if len(keys) > most else None)
    until, size, looked_at = clock() + patience, _FIRST_BATCH, 0
    found: list[RunKey] = []
    while True:
        batch = store.run_list.keys(
            selection, size, after=after, verdict=search.verdict, is_forward=is_forward
        )
        for part in _parts(batch, _LARGEST_READ if is_read else len(batch) or 1):
            kept = set(_kept(store, search, part, is_read=is_read))
            for key in part:
                if key in kept and len(found) == most:
                    return FoundRuns(tuple(found), found[-1], looked_at)
                looked_at += 1
                found += [key] if key in kept else []
            if clock() > until and (part[-1] != batch[-1] or len(batch) == size):
                return FoundRuns(tuple(found), part[-1], looked_at, is_cut=True)
        if len(batch) < size:
            return FoundRuns(tuple(found), None, looked_at)
        after, size = batch[-1], min(_LARGEST_BATCH, 4 * size)


def _parts(keys: Sequence[RunKey], size: int) -> list[Sequence[RunKey]]:
    return [keys[start : start + size] for start in range(0, len(keys), size)]


def _kept(
    store: Store, search: RunSearch, keys: Sequence[RunKey], *, is_read: bool
) -> Sequence[RunKey]:
    """Return those of some runs that the whole search matches."""
    if search.verdict is not None:
        scores = store.scores.of([key.id for key in keys])
        keys = [key for key in keys if _has_verdict(scores[key.id], search.verdict)]
    if is_read and keys:
        table = pa.table(
            {
                "trajectory_id": [key.id for key in keys],
                "start_ns": pa.array([key.start_ns for key in keys], pa.int64()),
            }
        )
        matching = {run.id for run in store.trajectories.at(table) if search.selection.matches(run)}
        keys = [key for key in keys if key.id in matching]
    return keys


def _has_verdict(scores: Sequence[Score], wanted: VerdictFilter) -> bool:
    """Return whether one of a run's newest scores has an outcome."""
    for score in scores:
        if wanted.evaluators and score.evaluator not in wanted.evaluators:
            continue
        outcome: str = score.status
        if outcome == "ok" and score.passed is not None:
            outcome = "pass" if score.passed else "fail"
        if wanted.outcome is None or outcome == wanted.outcome:
            return True
    return False
