"""Traces from their first span to their trajectories: what came, and what is complete."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..config import Completion
from ..pipeline import Refreshed, refresh_traces
from ..store import Completed, Store, Todo, is_of_the_store
from .background import Background
from .completion import Due, Tracker
from .places import KnownPlaces
from .seen import Seen

__all__ = ["Completing"]

_log = logging.getLogger(__name__)
# How many traces are reconstructed at once.
TRACES = 400
# From so many spans on a trace is large, and from so many traces on a conversation: it takes longer
# than others should wait.
_LARGE, _LARGE_TALK, _USUAL_TALK = 3_000, 600, 8
_LOOK_NS = 2_000_000_000
# Seconds for which the end of the process waits for the background.
_GRACE = 5.0
# How often a trace is tried that cannot be reconstructed though others can.
_TRIES = 3


class Completing:
    """Finds traces that are complete, and has them reconstructed.

    Args:
        store: The store.
        completion: When a trace is complete.
        wanted: Returns those traces of some trajectories that an evaluator has to judge.
        done: Called with the trajectories of traces that are complete, with the traces, with
            the time (ns), and whether they are large, once that is written down.
        wall: The time of day (ns), which completions are kept with.

    Attributes:
        number: The number of the newest completion.
        tracker: The traces that are open.
    """

    def __init__(
        self,
        store: Store,
        completion: Completion,
        wanted: Callable[[Sequence[Todo]], set[str]],
        done: Callable[[Sequence[Todo], Sequence[str], int, bool], None],
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store, self._wanted, self._done = store, wanted, done
        self._wall, self._newest_ns = wall, store.live.newest_completion_ns()
        self.tracker = Tracker(completion)
        self.number = store.live.newest_completion()
        self._mark = store.live.floor()
        self._seen = Seen(store.live.keys())
        self._failed: Counter[str] = Counter()
        self._touched: dict[str, int] = {}
        self._sibling: Store | None = None
        self._background = Background(self._refresh)
        # What came before this process began is looked at too.
        self._has_news = True
        self._touching = threading.Lock()

    def touch(self, trace_ids: Iterable[str], now: int) -> None:
        """Say when something of traces was stored (ns); any thread may."""
        with self._touching:
            self._has_news = True
            for name in trace_ids:
                self._touched[name] = now

    def arrive(self, now: int) -> None:
        """Take note of what came since last time."""
        with self._touching:
            if not self._has_news:
                return
            touched, self._touched, self._has_news = self._touched, {}, False
        arrivals = self._store.live.arrivals(self._mark)
        if not arrivals:
            return
        traces = [one for one in arrivals if one.trace_id]
        # Conversations are noted before `tracker` knows of the traces, so before one is complete.
        self._store.live.note(traces)
        opened = [one for one in traces if one.trace_id not in self.tracker]
        new = {one.trace_id for one in opened if one.trace_id not in self._seen}
        unsure = [one.trace_id for one in opened if not one.has_root and one.trace_id not in new]
        known = self._store.live.completed(unsure) if unsure else frozenset()
        self.tracker.came(traces, now, known, touched, new)
        self._mark = max(one.last for one in arrivals)

    def complete(self, now: int) -> bool:
        """Reconstruct traces that are complete; return whether there may be more of them."""
        self._collect(now)
        due = self.tracker.due(now, TRACES)
        is_full = len(due) == TRACES
        places = KnownPlaces(self._store, self.tracker, due, self._mark)
        due = self._without_large(due, places, now)
        if len(due) == 1:
            self._alone(due[0], now)
        elif due:
            try:
                self._together(due, now, places)
            except BaseException as error:
                self.tracker.reopen(due)
                if not isinstance(error, Exception) or is_of_the_store(error):
                    raise
                for one in due:
                    self._alone(one, now)
        return is_full

    @property
    def is_idle(self) -> bool:
        """Whether nothing is reconstructed in the background."""
        return self._background.is_idle

    def close(self) -> None:
        """Wait for what is reconstructed in the background; it is done again after a start."""
        if self._background.close(_GRACE) and self._sibling is not None:
            self._sibling.close()

    def _without_large(self, due: Sequence[Due], places: KnownPlaces, now: int) -> list[Due]:
        """Return traces that are reconstructed at once, and leave large ones to the background."""
        large: list[Due] = []
        small: list[Due] = []
        for one in due:
            is_large = one.state.rows >= _LARGE or one.completed.trace_id in self._background
            (large if is_large else small).append(one)
        for one in large:
            name = one.completed.trace_id
            if name not in self._background:
                self._leave([name], {name: one.state.last})
        if small:
            small, talking = self._without_long_talks(small, places)
            large += talking
        # They stay open, so that after a crash they are found again.
        self.tracker.put_off(large, now + _LOOK_NS)
        return small

    def _without_long_talks(
        self, due: Sequence[Due], places: KnownPlaces
    ) -> tuple[list[Due], list[Due]]:
        """Return traces of small conversations, and those of large ones, which are put in line."""
        names = [one.completed.trace_id for one in due]
        if len(places.with_conversations(names)) < _LARGE_TALK:
            return list(due), []
        long = self._store.pending.in_long_conversations(names, _LARGE_TALK)
        _, large = self._apart([d for d in due if d.completed.trace_id in long], places)
        small = [one for one in due if one.completed.trace_id not in long]
        names = [one.completed.trace_id for one in small]
        # Conversations that are long only by way of others are sought one by one, so only here.
        if len(places.with_conversations(names)) >= _LARGE_TALK + _USUAL_TALK * len(names):
            small, more = self._apart(small, places)
            large += more
        return small, large

    def _apart(self, due: Sequence[Due], places: KnownPlaces) -> tuple[list[Due], list[Due]]:
        """Return traces of small conversations, and those of large ones, which are put in line."""
        small: list[Due] = []
        large: list[Due] = []
        known: set[str] = set()
        for one in due:
            name = one.completed.trace_id
            if name in known:
                large.append(one)
                continue
            talk = places.with_conversations([name])
            if len(talk) < _LARGE_TALK:
                small.append(one)
                continue
            known.update(talk)
            large.append(one)
            if not any(member in self._background for member in talk):
                last = {n: state.last for n in talk if (state := self.tracker.get(n))}
                last |= {d.completed.trace_id: d.state.last for d in due}
                self._leave(talk, last)
        return small, large

    def _leave(self, names: Sequence[str], last: Mapping[str, int]) -> None:
        """Leave traces to the background, which has a connection of its own."""
        if self._sibling is None:
            self._sibling = self._store.sibling()
        self._background.put(names, last)

    def _refresh(self, names: Sequence[str]) -> Refreshed:
        assert self._sibling is not None
        return refresh_traces(self._sibling, names)

    def _collect(self, now: int) -> None:
        """Complete the traces that were reconstructed in the background."""
        job = self._background.done()
        if job is None or job.is_stale:
            return
        names = [
            n for n in job.names if (s := self.tracker.get(n)) and s.last <= job.last.get(n, 0)
        ]
        if job.found is not None:
            self._take_over(job.found, names, now)
            return
        if job.error is not None and is_of_the_store(job.error):
            raise job.error
        for name in names:
            self._failed[name] += 1
            _log.error("trace %s cannot be reconstructed", name, exc_info=job.error)
            if self._failed[name] >= _TRIES:
                del self._failed[name]
                for one in self.tracker.due_among([name], now):
                    self._note([one.completed._replace(reason="failed")], now, None)

    def _take_over(self, found: Refreshed, names: Sequence[str], now: int) -> None:
        due = self.tracker.due_among(names, now)
        try:
            self._complete(due, now, found, is_large=True)
        except BaseException:
            self.tracker.reopen(due)
            raise

    def _alone(self, one: Due, now: int) -> None:
        """Complete a trace that may be to blame for a failure; in the end, without trajectories."""
        name = one.completed.trace_id
        self.tracker.close(name)
        try:
            self._together([one], now)
        except BaseException as error:
            self._failed[name] += 1
            if not isinstance(error, Exception) or is_of_the_store(error):
                self.tracker.reopen([one])
                raise
            _log.exception("trace %s cannot be reconstructed", name)
            if self._failed[name] < _TRIES:
                self.tracker.reopen([one])
                return
            del self._failed[name]
            self._note([one.completed._replace(reason="failed")], now, None)

    def _together(self, due: Sequence[Due], now: int, places: KnownPlaces | None = None) -> None:
        names = [one.completed.trace_id for one in due]
        places = places or KnownPlaces(self._store, self.tracker, due, self._mark)
        found = refresh_traces(self._store, names, places)
        self._background.saw(found.trace_ids)
        # What was reconstructed with them need not be again: a conversation comes whole each time.
        also = self.tracker.due_among(set(found.trace_ids) - set(names), now)
        try:
            self._complete([*due, *also], now, found)
        except BaseException:
            self.tracker.reopen(also)
            raise

    def _complete(
        self, due: Sequence[Due], now: int, found: Refreshed, *, is_large: bool = False
    ) -> None:
        """Note that traces are complete that were reconstructed."""
        names = [one.completed.trace_id for one in due]
        complete = [one.completed for one in due]
        # Runs of other traces may have changed with them: of a conversation, for instance.
        others = sorted(set(found.trace_ids) - set(names))
        if others:
            todo = self._store.live.todo(traces=others, times=found.times, unjudged=found.fresh)
            # Nothing came of them: what there is of them is noted with earlier completions.
            mark = self._mark
            complete += [
                Completed(name, mark, "changed", mark + 1) for name in sorted(self._wanted(todo))
            ]
        if complete:
            self._note(complete, now, found, is_large=is_large)
        for name in names if self._failed else ():
            del self._failed[name]  # no error where a counter has none

    def _note(
        self,
        complete: Sequence[Completed],
        now: int,
        found: Refreshed | None,
        *,
        is_large: bool = False,
    ) -> None:
        """Write down that traces are complete, and have their trajectories judged.

        Args:
            complete: The traces.
            now: The time (ns).
            found: What was reconstructed; None when they could not be.
            is_large: Whether others need not wait for what is to be judged of it.
        """
        before = self.number
        # Never before an earlier one: evaluators are told by the time what came since they are.
        self._newest_ns = max(self._newest_ns, self._wall())
        with self._store.live.transaction():
            self._store.live.complete(complete, before + 1, self._newest_ns)
            self._store.live.advance(self.tracker.floor(self._mark))
        self.number += len(complete)
        names = [one.trace_id for one in complete]
        self._seen.add(names)
        if found is None:
            todo = self._store.live.todo(traces=names, after=before)
        else:
            todo = self._store.live.todo(
                traces=names, after=before, times=found.times, unjudged=found.fresh
            )
        self._done(todo, names, now, is_large)
