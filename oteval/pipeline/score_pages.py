"""Pages of stored runs to score, read from the database while other pages are scored.

DuckDB works without the interpreter's lock. While evaluators look at a page, one thread reads the
outlines of a later page, the messages of runs that arguments decide, and the runs that must be read
as a whole.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from types import TracebackType
from typing import TypeVar

import pyarrow as pa

from ..model import Trajectory
from ..selection import Selection
from ..store import ReadPages, Store
from .outlined_runs import DecidedRuns, Given, OutlinedEvaluator, OutlinedRuns

__all__ = ["ScorePage", "ScorePages"]

A = TypeVar("A")
B = TypeVar("B")
# The runs that are looked at together.
_RUNS = 8_192


@dataclass(frozen=True)
class ScorePage:
    """A page of stored runs. A place is an index on the page.

    Attributes:
        names: The ids of the runs.
        given: Stored verdicts that are used again.
        decided: The runs as each evaluator sees their outlines; None for one that reads all runs.
        needed: The places of the runs that must be read.
        time_ns: The time of the scores.
        runs: The runs at these places, without those deleted since. They can be read once.
    """

    names: Sequence[str]
    given: Given
    decided: Sequence[DecidedRuns | None]
    needed: Sequence[int]
    time_ns: int
    runs: Iterator[Trajectory]


@dataclass(frozen=True)
class _Outlines:
    keys: pa.Table
    given: Given
    groups: Sequence[pa.Table | None]


@dataclass(frozen=True)
class _Looked:
    """A page whose outlines were evaluated, with the messages of the runs of each evaluator."""

    keys: pa.Table
    given: Given
    outlined: Sequence[OutlinedRuns | None]
    messages: Sequence[Iterable[tuple[int, str]]] = ()


class ScorePages:
    """Reads the runs of a store page by page, some of it in a thread.

    Args:
        store: The store.
        outlined: The outline form of each evaluator.
        used_again: The versions of evaluators whose stored verdicts are used again.
    """

    def __init__(
        self,
        store: Store,
        outlined: Sequence[OutlinedEvaluator | None],
        used_again: Sequence[str],
    ) -> None:
        self._store, self._outlined, self._used_again = store, outlined, used_again
        # A server runs one query of a client at a time.
        self._other = store if store.is_served else store.sibling()
        self._executor = None if store.is_served else ThreadPoolExecutor(1, "read-runs")
        # Runs that must be read are spread over a page.
        self._reading = ReadPages(max_ranges=1)
        self._messages = ReadPages()

    def __enter__(self) -> ScorePages:
        """Return the pages themselves."""
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
        outlines = self._ahead(self._store.trajectories.keys(selection, _RUNS), self._outlines)
        looked = self._ahead(map(self._looked, outlines), self._with_messages)
        yield from self._ahead(map(self._decided, looked), self._with_runs)

    def _ahead(self, items: Iterable[A], function: Callable[[A], B]) -> Iterator[B]:
        """Yield a function's results; each is made in the thread while the one before is used."""
        if self._executor is None:
            yield from map(function, items)
            return
        started: deque[Future[B]] = deque()
        for item in items:
            started.append(self._executor.submit(function, item))
            if len(started) > 1:
                yield started.popleft().result()
        while started:
            yield started.popleft().result()

    def _outlines(self, keys: pa.Table) -> _Outlines:
        groups = [None if one is None else one.read(self._other, keys) for one in self._outlined]
        return _Outlines(keys, self._given(keys), groups)

    def _given(self, keys: pa.Table) -> Given:
        """Return the stored verdicts on the runs of a page that are used again."""
        if not self._used_again:
            return {}
        names = keys["trajectory_id"].to_pylist()
        found = self._other.scores.of_versions(names, self._used_again)
        return {key: score for key, score in found.items() if score.status == "ok"}

    def _looked(self, found: _Outlines) -> _Looked:
        outlined = [
            None if one is None or groups is None else one.look(groups)
            for one, groups in zip(self._outlined, found.groups, strict=True)
        ]
        return _Looked(found.keys, found.given, outlined)

    def _with_messages(self, found: _Looked) -> _Looked:
        """Return a page with the messages that `_decided` needs; the first are read at once."""
        messages = [
            () if one is None else self._messages_of(one.open_runs(), found.keys)
            for one in found.outlined
        ]
        return replace(found, messages=messages)

    def _messages_of(self, runs: pa.Table, keys: pa.Table) -> Iterable[tuple[int, str]]:
        starts = keys["start_ns"].take(runs["place"])
        runs, size = runs.append_column("start_ns", starts), self._messages.size
        first = list(self._other.outlines.messages(runs.slice(0, size), self._messages))
        return chain(first, self._store.outlines.messages(runs.slice(size), self._messages))

    def _decided(self, found: _Looked) -> tuple[pa.Table, ScorePage]:
        """Return a page as far as outlines decide it, with the keys of the runs to read."""
        now, count = time.time_ns(), len(found.keys)
        decided = [
            None if one is None or outlined is None
            else one.decide(outlined, messages, count, now, found.given)
            for one, outlined, messages in zip(
                self._outlined, found.outlined, found.messages, strict=True
            )
        ]  # fmt: skip
        if None in decided:
            needed = list(range(count))
        else:
            needed = sorted(set().union(*(one.undecided for one in decided if one is not None)))
        names = found.keys["trajectory_id"].to_pylist()
        page = ScorePage(names, found.given, decided, needed, now, iter(()))
        return found.keys.take(pa.array(needed, pa.int64())), page

    def _with_runs(self, found: tuple[pa.Table, ScorePage]) -> ScorePage:
        """Return a page with its runs; the first of them are read at once."""
        keys, page = found
        size = self._reading.size
        first = list(self._other.trajectories.at(keys.slice(0, size), self._reading))
        rest = self._store.trajectories.at(keys.slice(size), self._reading)
        return replace(page, runs=chain(first, rest))
