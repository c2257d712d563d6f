"""Pages of stored runs; the next page is decided while the current page is scored.

DuckDB works without the interpreter's lock. One thread decides a page by the columns and arguments
of its runs, and reads the first undecided runs. Meanwhile the caller evaluates the previous page
and writes its scores.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from types import TracebackType

import pyarrow as pa

from ..model import OutlineRequest, Selection, Trajectory
from ..store import Outlines, ReadPages, Store
from .decide import DecidedRuns, Decider, StoredVerdicts

__all__ = ["ScorePage", "ScorePages", "StoredPage"]

# The runs that are decided together.
_RUNS = 8_192


@dataclass(frozen=True)
class ScorePage:
    """A page of stored runs. The place of a run is its index.

    Attributes:
        names: The ids of the runs.
        stored: Stored verdicts that are used again.
        decided: The runs as far as each evaluator decided them.
        undecided: The places of the runs that an evaluator must read.
        runs: The runs at these places, without runs deleted since. They can be read once.
    """

    names: Sequence[str]
    stored: StoredVerdicts
    decided: Sequence[DecidedRuns]
    undecided: Sequence[int]
    runs: Iterator[Trajectory]


@dataclass(frozen=True)
class StoredPage:
    """The runs with some keys, as a `Page`.

    Attributes:
        source: The outlines of their store.
        keys: A table of `Trajectories.keys`, by start.
        reading: How messages are read.
    """

    source: Outlines
    keys: pa.Table
    reading: ReadPages

    def __len__(self) -> int:
        """The number of runs."""
        return len(self.keys)

    def outlines(self, request: OutlineRequest, where: Selection) -> pa.Table:
        """The outlines of the runs; see `Page`."""
        return self.source.read(self.keys, request, where)

    def messages(self, runs: pa.Table) -> Iterable[tuple[int, str]]:
        """The places and messages of some runs; see `Page`."""
        starts = self.keys["start_ns"].take(runs["place"])
        return self.source.messages(runs.append_column("start_ns", starts), self.reading)


class ScorePages:
    """Decides the runs of a store page by page, in a thread.

    Args:
        store: The store.
        deciders: The evaluators.
        used_again: The versions of evaluators whose stored verdicts are used again.
    """

    def __init__(
        self, store: Store, deciders: Sequence[Decider], used_again: Sequence[str]
    ) -> None:
        self._store, self._deciders, self._used_again = store, deciders, used_again
        # A server runs one query of a client at a time.
        self._other = store if store.is_served else store.sibling()
        self._executor = None if store.is_served else ThreadPoolExecutor(1, "decide-runs")
        # Runs that must be read are spread over a page.
        self._reading = ReadPages(max_ranges=1)
        self._messages = ReadPages()

    def __enter__(self) -> ScorePages:
        """The pages themselves."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait for the thread, and close its connection."""
        with ExitStack() as stack:
            if self._executor is not None:
                stack.callback(self._other.close)
                stack.callback(self._executor.shutdown, cancel_futures=True)
                self._other.interrupt()

    def read(self, selection: Selection) -> Iterator[ScorePage]:
        """Yield the runs of a selection by start, page by page."""
        pages = self._store.trajectories.keys(selection, _RUNS)
        if self._executor is None:
            yield from map(self._decide, pages)
            return
        before: Future[ScorePage] | None = None
        for keys in pages:
            page = self._executor.submit(self._decide, keys)
            if before is not None:
                yield before.result()
            before = page
        if before is not None:
            yield before.result()

    def _decide(self, keys: pa.Table) -> ScorePage:
        """Decide the runs of a page, and read the first runs that are undecided."""
        runs, now = StoredPage(self._other.outlines, keys, self._messages), time.time_ns()
        names = keys["trajectory_id"].to_pylist()
        stored = self._stored_verdicts(names)
        decided = [decider.decide(runs, now, stored) for decider in self._deciders]
        undecided = sorted(set().union(*(decision.undecided for decision in decided)))
        undecided_keys, size = keys.take(pa.array(undecided, pa.int64())), self._reading.size
        first = list(self._other.trajectories.at(undecided_keys.slice(0, size), self._reading))
        later = self._store.trajectories.at(undecided_keys.slice(size), self._reading)
        return ScorePage(names, stored, decided, undecided, chain(first, later))

    def _stored_verdicts(self, names: Sequence[str]) -> StoredVerdicts:
        """The stored verdicts on runs that are used again."""
        if not self._used_again:
            return {}
        scores = self._other.scores.of_versions(names, self._used_again)
        return {key: score for key, score in scores.items() if score.status == "ok"}
