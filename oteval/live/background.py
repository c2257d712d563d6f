"""Reconstruct large traces and conversations in a thread, so that others do not wait.

One group of traces at a time. A group that took long rests for a multiple of that before it is
reconstructed again, so that one agent cannot take more than a share of the processor for good.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..pipeline import Refreshed

__all__ = ["Background", "Job"]

# A group rests for this multiple of the time that it took.
_REST = 2


@dataclass
class Job:
    """A group of traces that is reconstructed.

    Attributes:
        names: The traces.
        last: The number of the last row that had come of each at the start.
        found: What they came to, once that is known.
        error: Why they could not be reconstructed.
        others: Traces that were reconstructed elsewhere meanwhile.
    """

    names: Sequence[str]
    last: Mapping[str, int]
    found: Refreshed | None = None
    error: Exception | None = None
    others: set[str] = field(default_factory=set)

    @property
    def is_stale(self) -> bool:
        """Whether something newer may have been overwritten, so that it must be done again."""
        return self.found is not None and not self.others.isdisjoint(self.found.trace_ids)


class Background:
    """Reconstructs groups of traces in a thread.

    All calls come from the thread that scores.

    Args:
        refresh: Reconstructs traces; called in the thread.
        clock: Seconds that only ever grow.
    """

    def __init__(
        self,
        refresh: Callable[[Sequence[str]], Refreshed],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._refresh, self._clock = refresh, clock
        self._waiting: deque[Job] = deque()
        self._known: set[str] = set()
        self._rests: dict[str, float] = {}
        self._running: tuple[Job, threading.Thread, float] | None = None

    def __contains__(self, name: str) -> bool:
        """Return whether a trace waits, is reconstructed, or rests."""
        return name in self._known or self._rests.get(name, 0.0) > self._clock()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is reconstructed."""
        return self._running is None and not self._waiting

    def put(self, names: Sequence[str], last: Mapping[str, int]) -> None:
        """Have a group of traces reconstructed.

        Args:
            names: The traces.
            last: The number of the last row that came of each.
        """
        self._waiting.append(Job(names, last))
        self._known.update(names)
        self._begin()

    def saw(self, traces: Collection[str]) -> None:
        """Note that traces were reconstructed elsewhere."""
        if self._running is not None:
            self._running[0].others.update(traces)

    def done(self) -> Job | None:
        """Return a group that is done, if there is one."""
        if self._running is None or self._running[1].is_alive():
            return None
        job, _, begun = self._running
        self._running = None
        now = self._clock()
        self._rests = {name: until for name, until in self._rests.items() if until > now}
        members = [*job.names, *(job.found.trace_ids if job.found else ())]
        self._rests.update(dict.fromkeys(members, now + _REST * (now - begun)))
        self._known.difference_update(job.names)
        self._begin()
        return job

    def close(self, seconds: float) -> bool:
        """Begin nothing more, and wait for what is under way; return whether it has ended."""
        self._waiting.clear()
        if self._running is None:
            return True
        self._running[1].join(seconds)
        return not self._running[1].is_alive()

    def _begin(self) -> None:
        if self._running is not None or not self._waiting:
            return
        job = self._waiting.popleft()
        thread = threading.Thread(target=self._run, args=(job,), name="background", daemon=True)
        self._running = job, thread, self._clock()
        thread.start()

    def _run(self, job: Job) -> None:
        try:
            job.found = self._refresh(job.names)
        except Exception as error:
            job.error = error
