"""Traces from their first span to their trajectories: what came, and what is complete."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ..config import Completion
from ..pipeline import refresh_traces
from ..store import Completed, Store, Todo, is_of_the_store
from .completion import Due, Tracker

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
        done: Called with the traces that are complete, once that is written down.

    Attributes:
        number: The number of the newest completion.
        tracker: The traces that are open.
    """

    def __init__(
        self,
        store: Store,
        completion: Completion,
        wanted: Callable[[Sequence[Todo]], set[str]],
        done: Callable[[Sequence[str], int], None],
    ) -> None:
        self._store, self._wanted, self._done = store, wanted, done
        self.tracker = Tracker(completion)
        self.number = store.live.newest_completion()
        self._mark = store.live.floor()
        self._failed: Counter[str] = Counter()
        self._touched: dict[str, int] = {}
        self._touching = threading.Lock()

    def touch(self, trace_ids: Iterable[str], now: int) -> None:
        """Say when something of traces was stored (ns); any thread may."""
        with self._touching:
            for name in trace_ids:
                self._touched[name] = now

    def arrive(self, now: int) -> None:
        """Take note of what came since last time."""
        with self._touching:
            touched, self._touched = self._touched, {}
        arrivals = self._store.live.arrivals(self._mark)
        if not arrivals:
            return
        traces = [one for one in arrivals if one.trace_id]
        unsure = [
            one.trace_id for one in traces if not one.has_root and one.trace_id not in self.tracker
        ]
        known = self._store.live.completed(unsure) if unsure and self.number else frozenset()
        self.tracker.came(traces, now, known, touched)
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
            self._note([one.completed._replace(reason="failed")], now)

    def _together(self, due: Sequence[Due], now: int) -> None:
        names = [one.completed.trace_id for one in due]
        together = refresh_traces(self._store, names)
        complete = [one.completed for one in due]
        # Runs of other traces may have changed with them: of a conversation, for instance.
        others = sorted(set(together) - set(names))
        if others:
            changed = self._wanted(self._store.live.todo(traces=others))
            complete += [Completed(name, self._mark, "changed") for name in sorted(changed)]
        self._note(complete, now)

    def _note(self, complete: Sequence[Completed], now: int) -> None:
        with self._store.live.transaction():
            self._store.live.complete(complete, self.number + 1, now)
            self._store.live.advance(self.tracker.floor(self._mark))
        self.number += len(complete)
        self._done([one.trace_id for one in complete], now)
