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

__all__ = ["Due", "OpenTrace", "Tracker"]

_NS = 1_000_000_000
# So many entries of traces that are complete may be left where entries are looked at.
_SPARE = 10_000


@dataclass(slots=True)
class OpenTrace:
    """A trace that is not complete.

    Attributes:
        first_ns: When something came of it first (ns).
        last_ns: When something came last (ns).
        has_root: Whether its root span has come.
        first: The number of the first span or log record that came.
        last: The number of the last.
        is_new: Whether all there is of it came since it is open.
        has_conversation: Whether a span that came says a conversation.
        look_ns: When it is looked at whether it is complete (ns).
        rows: How many spans and log records came since it is open.
    """

    first_ns: int
    last_ns: int
    has_root: bool
    first: int
    last: int
    is_new: bool = False
    has_conversation: bool = False
    look_ns: int = 1 << 63
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Due:
    """A trace that is complete, with all that is needed to open it again.

    Attributes:
        completed: The trace.
        state: What was known of it.
    """

    completed: Completed
    state: OpenTrace


class Tracker:
    """The traces that are not complete yet."""

    def __init__(self, completion: Completion) -> None:
        self._completion = completion
        self._open: dict[str, OpenTrace] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        """Return how many traces are open."""
        return len(self._open)

    def __contains__(self, trace_id: str) -> bool:
        """Return whether a trace is open."""
        return trace_id in self._open

    def get(self, trace_id: str) -> OpenTrace | None:
        """Return what is known of an open trace."""
        return self._open.get(trace_id)

    def configure(self, completion: Completion) -> None:
        """Take another configuration from now on, for the traces that are open too."""
        if completion != self._completion:
            self._completion = completion
            self._rebuild()

    def came(
        self,
        arrivals: Iterable[Arrival],
        now: int,
        complete_before: Collection[str] = (),
        times: Mapping[str, int] | None = None,
        new: Collection[str] = (),
    ) -> None:
        """Take note of spans and log records.

        Args:
            arrivals: What came.
            now: The time (ns).
            complete_before: Those of the traces that were complete once.
            times: When something came of a trace (ns), where that is known better.
            new: Those of the traces of which nothing came before.
        """
        for arrival in arrivals:
            name = arrival.trace_id
            time_ns = min(now, times.get(name, now)) if times else now
            state = self._open.get(name)
            if state is None:
                state = OpenTrace(
                    *(time_ns, time_ns, False, arrival.first, arrival.last), is_new=name in new
                )
                self._open[name] = state
            # A clock that is set back makes no trace quiet for longer than it was.
            state.last_ns = max(state.last_ns, time_ns)
            state.first = min(state.first, arrival.first)
            state.last = max(state.last, arrival.last)
            state.has_root |= arrival.has_root or name in complete_before
            state.has_conversation |= bool(arrival.conversations)
            state.rows += arrival.rows
            due_ns, _ = self._due_ns(state)
            # What is looked at too early is put back then.
            if due_ns < state.look_ns:
                state.look_ns = due_ns
                heapq.heappush(self._heap, (due_ns, name))
        if len(self._heap) > 2 * len(self._open) + _SPARE:
            self._rebuild()

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
                state.look_ns = due_ns
                heapq.heappush(self._heap, (due_ns, name))
                continue
            del self._open[name]
            found.append(Due(Completed(name, state.last, reason, state.first), state))
        return found

    def due_among(self, names: Iterable[str], now: int) -> list[Due]:
        """Return those of some traces that are complete, no longer open."""
        found: list[Due] = []
        for name in names:
            state = self._open.get(name)
            if state is None:
                continue
            due_ns, reason = self._due_ns(state)
            if due_ns <= now:
                del self._open[name]
                found.append(Due(Completed(name, state.last, reason, state.first), state))
        return sorted(found, key=lambda due: due.state.first)

    def reopen(self, due: Sequence[Due]) -> None:
        """Take traces back that could not be dealt with."""
        for one in due:
            name = one.completed.trace_id
            state = self._open.setdefault(name, one.state)
            state.look_ns = self._due_ns(state)[0]
            heapq.heappush(self._heap, (state.look_ns, name))

    def put_off(self, due: Sequence[Due], until: int) -> None:
        """Take traces back, to be looked at again at a time (ns)."""
        for one in due:
            name = one.completed.trace_id
            state = self._open.setdefault(name, one.state)
            state.look_ns = until
            heapq.heappush(self._heap, (until, name))

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

    def _rebuild(self) -> None:
        """Look at each open trace when it may be complete, and at none that is not open."""
        for state in self._open.values():
            state.look_ns = self._due_ns(state)[0]
        self._heap = [(state.look_ns, name) for name, state in self._open.items()]
        heapq.heapify(self._heap)

    def _due_ns(self, state: OpenTrace) -> tuple[int, str]:
        completion = self._completion
        found = min(
            (state.last_ns + round(completion.idle * _NS), "idle"),
            (state.first_ns + round(completion.max_age * _NS), "max_age"),
        )
        if state.has_root:
            found = min(found, (state.last_ns + round(completion.quiet * _NS), "quiet"))
        return found
