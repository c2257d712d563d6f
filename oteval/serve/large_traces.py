"""Reconstruct large traces and long conversations in a thread, so that other traces do not wait.

Groups of traces run one at a time. A group that took long is not started again before a multiple
of that time has passed, so that one agent cannot occupy the processor permanently.

Other traces may need traces of the running group. These are then reconstructed a second time, with
the spans that have arrived since. The older result must not replace the newer result.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..scoring import RefreshResult

__all__ = ["BackgroundReconstructor", "LargeGroup", "Overtaken"]

# A group pauses for this multiple of the time that its reconstruction took.
_PAUSE_FACTOR = 2


class Overtaken(Exception):
    """Traces were reconstructed elsewhere while a group with them ran."""


@dataclass
class LargeGroup:
    """A group of traces to reconstruct together.

    Attributes:
        names: The traces.
        last: The number of the newest row of each trace when the group was queued.
        refreshed: The result, once it is known.
        error: The exception that ended the reconstruction.
        reconstructed_meanwhile: Traces that were reconstructed elsewhere while this group ran.
    """

    names: Sequence[str]
    last: Mapping[str, int]
    refreshed: RefreshResult | None = None
    error: Exception | None = None
    reconstructed_meanwhile: set[str] = field(default_factory=set)

    @property
    def is_overtaken(self) -> bool:
        """Whether some of its traces were reconstructed elsewhere. Open ones run again."""
        if self.refreshed is None:
            return isinstance(self.error, Overtaken)
        return not self.reconstructed_meanwhile.isdisjoint(self.refreshed.trace_ids)


class BackgroundReconstructor:
    """Reconstructs groups of traces in a thread.

    All calls come from the scoring thread, except for calls of `writing`.

    Args:
        refresh: Reconstructs traces; called in the background thread.
        clock: A monotonic clock (s).
    """

    def __init__(
        self,
        refresh: Callable[[Sequence[str]], RefreshResult],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._refresh, self._clock = refresh, clock
        self._queue: deque[LargeGroup] = deque()
        self._members: set[str] = set()
        self._paused_until: dict[str, float] = {}
        self._running: tuple[LargeGroup, threading.Thread, float] | None = None
        self._lock = threading.Lock()

    def __contains__(self, name: str) -> bool:
        """Whether a trace is queued, running or paused."""
        return name in self._members or self._paused_until.get(name, 0.0) > self._clock()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued and nothing runs."""
        return self._running is None and not self._queue

    def submit(self, names: Sequence[str], last: Mapping[str, int]) -> None:
        """Queue a group of traces.

        Args:
            names: The traces.
            last: The number of the newest row of each.
        """
        self._queue.append(LargeGroup(names, last))
        self._members.update(names)
        self._start_next()

    @contextmanager
    def elsewhere(self) -> Iterator[Callable[[Collection[str]], None]]:
        """In a block, let the scoring thread reconstruct traces; the group cannot write meanwhile.

        Yields:
            A function to call with the traces that were reconstructed.
        """

        def note(traces: Collection[str]) -> None:
            if self._running is not None:
                self._running[0].reconstructed_meanwhile.update(traces)

        with self._lock:
            yield note

    @contextmanager
    def writing(self, traces: Collection[str]) -> Iterator[None]:
        """In a block, let the running group write trajectories.

        Raises:
            Overtaken: One of the traces was reconstructed elsewhere while the group ran.
        """
        with self._lock:
            assert self._running is not None
            if not self._running[0].reconstructed_meanwhile.isdisjoint(traces):
                raise Overtaken
            yield

    def take_finished(self) -> LargeGroup | None:
        """Return the group that finished, if one did, and start the next."""
        if self._running is None or self._running[1].is_alive():
            return None
        group, _, started = self._running
        self._running = None
        now = self._clock()
        self._paused_until = {n: until for n, until in self._paused_until.items() if until > now}
        members = [*group.names, *(group.refreshed.trace_ids if group.refreshed else ())]
        until = now + _PAUSE_FACTOR * (now - started)
        self._paused_until.update(dict.fromkeys(members, until))
        self._members.difference_update(group.names)
        self._start_next()
        return group

    def close(self, timeout: float) -> bool:
        """Drop the queue and wait for the running group; return whether it has finished."""
        self._queue.clear()
        if self._running is None:
            return True
        self._running[1].join(timeout)
        return not self._running[1].is_alive()

    def _start_next(self) -> None:
        if self._running is not None or not self._queue:
            return
        group = self._queue.popleft()
        thread = threading.Thread(target=self._run, args=(group,), name="large traces", daemon=True)
        self._running = group, thread, self._clock()
        thread.start()

    def _run(self, group: LargeGroup) -> None:
        try:
            group.refreshed = self._refresh(group.names)
        except Exception as error:
            group.error = error
