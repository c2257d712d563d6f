"""Traces from their first span to their trajectories: what came, and what is complete."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ..config import Completion
from ..pipeline import Refreshed, refresh_traces
from ..store import Completed, Store, Todo, is_of_the_store
from .completion import Due, Tracker
from .places import KnownPlaces
from .seen import Seen

__all__ = ["Completing"]

_log = logging.getLogger(__name__)
# How many traces are reconstructed at once.
TRACES = 400
# How often a trace is tried that cannot be reconstructed though others can.
_TRIES = 3


class Completing:
    """Finds traces that are complete, and has them reconstructed.

    Args:
        store: The store.
        completion: When a trace is complete.
        wanted: Returns those traces of some trajectories that an evaluator has to judge.
        done: Called with the trajectories of traces that are complete, with the traces, and with
            the time (ns), once that is written down.
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
        done: Callable[[Sequence[Todo], Sequence[str], int], None],
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
        due = self.tracker.due(now, TRACES)
        if len(due) == 1:
            self._alone(due[0], now)
        elif due:
            try:
                self._together(due, now)
            except BaseException as error:
                self.tracker.reopen(due)
                if not isinstance(error, Exception) or is_of_the_store(error):
                    raise
                for one in due:
                    self._alone(one, now)
        return len(due) == TRACES

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

    def _together(self, due: Sequence[Due], now: int) -> None:
        names = [one.completed.trace_id for one in due]
        places = KnownPlaces(self._store, self.tracker, due, self._mark)
        found = refresh_traces(self._store, names, places)
        # What was reconstructed with them need not be again: a conversation comes whole each time.
        also = self.tracker.due_among(set(found.trace_ids) - set(names), now)
        try:
            self._complete([*due, *also], now, found)
        except BaseException:
            self.tracker.reopen(also)
            raise

    def _complete(self, due: Sequence[Due], now: int, found: Refreshed) -> None:
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
        self._note(complete, now, found)
        for name in names if self._failed else ():
            del self._failed[name]  # no error where a counter has none

    def _note(self, complete: Sequence[Completed], now: int, found: Refreshed | None) -> None:
        """Write down that traces are complete, and have their trajectories judged.

        Args:
            complete: The traces.
            now: The time (ns).
            found: What was reconstructed; None when they could not be.
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
        self._done(todo, names, now)
