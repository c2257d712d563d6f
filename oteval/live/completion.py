"""When a trace is complete: its root has ended and it is quiet, or it is idle, or too old.

A trace is open from its first span on. What comes after it was complete opens it again; it is
then complete again once it is quiet, since its root is known to have ended.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..config import Completion
from ..store import Arrival, Completed

__all__ = ["Due", "Tracker"]

_NS = 1_000_000_000


@dataclass(slots=True)
class _Open:
    """A trace that is not complete; times in ns, numbers of spans and log records."""

    first_ns: int
    last_ns: int
    has_root: bool
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Due:
    """A trace that is complete, with all that is needed to open it again.

    Attributes:
        completed: The trace.
        state: What was known of it.
    """

    completed: Completed
    state: _Open


class Tracker:
    """The traces that are not complete yet."""

    def __init__(self, completion: Completion) -> None:
        self._completion = completion
        self._open: dict[str, _Open] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        """Return how many traces are open."""
        return len(self._open)

    def __contains__(self, trace_id: str) -> bool:
        """Return whether a trace is open."""
        return trace_id in self._open

    def configure(self, completion: Completion) -> None:
        """Take another configuration from now on, for the traces that are open too."""
        if completion != self._completion:
            self._completion = completion
            self._heap = [(self._due_ns(state)[0], name) for name, state in self._open.items()]
            heapq.heapify(self._heap)

    def came(
        self,
        arrivals: Iterable[Arrival],
        now: int,
        complete_before: Collection[str] = (),
        times: Mapping[str, int] | None = None,
    ) -> None:
        """Take note of spans and log records.

        Args:
            arrivals: What came.
            now: The time (ns).
            complete_before: Those of the traces that were complete once.
            times: When something came of a trace (ns), where that is known better.
        """
        for arrival in arrivals:
            name = arrival.trace_id
            time_ns = min(now, times.get(name, now)) if times else now
            state = self._open.get(name)
            if state is None:
                state = _Open(time_ns, time_ns, False, arrival.first, arrival.last)
                self._open[name] = state
            # A clock that is set back makes no trace quiet for longer than it was.
            state.last_ns = max(state.last_ns, time_ns)
            state.first = min(state.first, arrival.first)
            state.last = max(state.last, arrival.last)
            state.has_root |= arrival.has_root or name in complete_before
            heapq.heappush(self._heap, (self._due_ns(state)[0], name))

    def due(self, now: int, limit: int) -> list[Due]:
        """Return traces that are complete, no longer open; those first that are it longest."""
        found: list[Due] = []
        while self._heap and self._heap[0][0] <= now and len(found) < limit:
            _, name = heapq.heappop(self._heap)
            state = self._open.get(name)
            if state is None:
                continue
            due_ns, reason = self._due_ns(state)
            if due_ns > now:
                heapq.heappush(self._heap, (due_ns, name))
                continue
            del self._open[name]
            found.append(Due(Completed(name, state.last, reason), state))
        return found

    def reopen(self, due: Sequence[Due]) -> None:
        """Take traces back that could not be dealt with."""
        for one in due:
            name = one.completed.trace_id
            self._open.setdefault(name, one.state)
            heapq.heappush(self._heap, (self._due_ns(self._open[name])[0], name))

    def close(self, trace_id: str) -> None:
        """Let a trace be no longer open."""
        self._open.pop(trace_id, None)

    def floor(self, newest: int) -> int:
        """Return the number up to which all that came is of traces that are complete.

        Args:
            newest: The number of the last span or log record that came.
        """
        return min((state.first for state in self._open.values()), default=newest + 1) - 1

    def oldest_ns(self) -> int | None:
        """Return when the first span of the open traces came (ns), or None when none is open."""
        return min((state.first_ns for state in self._open.values()), default=None)

    def _due_ns(self, state: _Open) -> tuple[int, str]:
        completion = self._completion
        found = min(
            (state.last_ns + round(completion.idle * _NS), "idle"),
            (state.first_ns + round(completion.max_age * _NS), "max_age"),
        )
        if state.has_root:
            found = min(found, (state.last_ns + round(completion.quiet * _NS), "quiet"))
        return found
