"""Find the runs of a search, page by page, with a limit on the time that one page takes.

Most filters are conditions on columns. Other filters need the messages or the attributes of runs:
then runs are read, the newest first, until a page is full or the time is over. The next page then
continues at the last run that was looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ...model import Score
from ...store import RunKey, Store, VerdictFilter, is_exact
from .search import RunSearch

__all__ = ["FoundRuns", "ListedScores", "find_runs"]

# A search stops looking after this many seconds.
_PATIENCE = 0.5
_FIRST_BATCH, _LARGEST_BATCH = 200, 8000
# The characters of a score's comment in lists, and the number of runs whose scores are kept with
# comments.
_COMMENT, _KEPT = 4000, 200
# How many runs are read at once, and how many are searched for words.
_LARGEST_READ, _LARGEST_SCAN = 400, 4000


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """Some runs of a search.

    Attributes:
        keys: Their keys, in the order of the search.
        after: The key at which the next page begins; None if this is the last page.
        looked_at: How many runs were looked at, if they were looked at one by one.
        is_cut: Whether the time was over before the page was full.
    """

    keys: tuple[RunKey, ...]
    after: RunKey | None = None
    looked_at: int = 0
    is_cut: bool = False


class ListedScores:
    """The newest scores of runs, with as much as lists show of them, each read once.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, list[Score]] = {}

    def of(self, ids: Sequence[str]) -> dict[str, list[Score]]:
        """The newest score of each evaluator by run; for many runs, without comments."""
        missing = [name for name in ids if name not in self._known]
        if len(missing) > _KEPT:
            return self._store.scores.of(ids, longest=0)
        if missing:
            self._known |= self._store.scores.of(missing, longest=_COMMENT)
        return {name: self._known[name] for name in ids}


def find_runs(
    store: Store,
    search: RunSearch,
    most: int,
    *,
    after: RunKey | None = None,
    is_forward: bool = False,
    scores: ListedScores | None = None,
    patience: float = _PATIENCE,
    clock: Callable[[], float] = time.monotonic,
) -> FoundRuns:
    """The next runs of a search, the newest first.

    Args:
        store: The store.
        search: The search.
        most: The most runs.
        after: Only runs after this one.
        is_forward: The oldest first instead.
        scores: The scores that are read for the search, for the lines of its runs.
        patience: Seconds after which the search stops looking.
        clock: Returns the time in seconds.
    """
    selection = replace(search.selection, limit=None)
    is_read = not is_exact(selection)
    if search.verdict is None and not is_read:
        keys = store.run_list.keys(selection, most + 1, after=after, is_forward=is_forward)
        return FoundRuns(tuple(keys[:most]), keys[most - 1] if len(keys) > most else None)
    until, size, looked_at = clock() + patience, max(_FIRST_BATCH, most + 1), 0
    run_keys: list[RunKey] = []
    listed_scores = scores or ListedScores(store)
    while True:
        batch = store.run_list.keys(
            selection, size, after=after, verdict=search.verdict, is_forward=is_forward
        )
        offset = 0
        while offset < len(batch):
            part, matching = _looked_at(
                store, search, batch[offset:], listed_scores, is_read=is_read
            )
            offset += len(part)
            for key in part:
                if key in matching and len(run_keys) == most:
                    return FoundRuns(tuple(run_keys), run_keys[-1], looked_at)
                looked_at += 1
                run_keys += [key] if key in matching else []
            if clock() > until and (offset < len(batch) or len(batch) == size):
                return FoundRuns(tuple(run_keys), part[-1], looked_at, is_cut=True)
        if len(batch) < size:
            return FoundRuns(tuple(run_keys), None, looked_at)
        after, size = batch[-1], min(_LARGEST_BATCH, 4 * size)


def _looked_at(
    store: Store,
    search: RunSearch,
    keys: Sequence[RunKey],
    listed_scores: ListedScores,
    *,
    is_read: bool,
) -> tuple[Sequence[RunKey], set[RunKey]]:
    """The first of some runs, as many as can be tested at once, and the runs that match."""
    part = keys
    if is_read:
        part = keys[: _LARGEST_SCAN if search.words else _LARGEST_READ]
    candidates = store.run_list.containing(part, search.words)
    if is_read and len(candidates) > _LARGEST_READ:
        part = part[: part.index(candidates[_LARGEST_READ])]
        candidates = candidates[:_LARGEST_READ]
    if search.verdict is not None:
        scores = listed_scores.of([key.id for key in candidates])
        candidates = [key for key in candidates if _has_verdict(scores[key.id], search.verdict)]
    if is_read and candidates:
        starts = pa.array([key.start_ns for key in candidates], pa.int64())
        table = pa.table({"trajectory_id": [key.id for key in candidates], "start_ns": starts})
        matching = store.trajectories.matching(table, search.selection)
        candidates = [key for key in candidates if key.id in matching]
    return part, set(candidates)


def _has_verdict(scores: Sequence[Score], verdict_filter: VerdictFilter) -> bool:
    """Whether one of a run's newest scores has an outcome."""
    for score in scores:
        if verdict_filter.evaluators and score.evaluator not in verdict_filter.evaluators:
            continue
        outcome: str = score.status
        if outcome == "ok" and score.passed is not None:
            outcome = "pass" if score.passed else "fail"
        if verdict_filter.outcome is None or outcome == verdict_filter.outcome:
            return True
    return False
