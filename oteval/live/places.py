"""Where the rows of traces are, as far as live scoring knows without looking for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..store import EVERYWHERE, ROWS, WIDE, Range, Store, joined
from .completion import Due, OpenTrace, Tracker

__all__ = ["KnownPlaces"]


class KnownPlaces:
    """Goes by what came of traces since they are open; asks the store for what came before.

    Args:
        store: The store.
        tracker: The traces that are open.
        due: Those that are dealt with now.
        mark: The number of the last row that was taken note of; later ones may be of any trace.
    """

    def __init__(self, store: Store, tracker: Tracker, due: Iterable[Due], mark: int) -> None:
        self._store, self._tracker, self._mark = store, tracker, mark
        self._together: dict[tuple[str, ...], list[str]] = {}
        self._due = {one.completed.trace_id: one.state for one in due}

    def numbers(self, traces: Sequence[str]) -> list[Range] | None:
        """Return between which numbers they are in the database, None where that is not known."""
        found = [Range(self._mark + 1, EVERYWHERE.last)]
        before = []
        for name in traces:
            state = self._state(name)
            if state is not None:
                found.append(Range(state.first, state.last))
            if state is None or not state.is_new:
                before.append(name)
        if before:
            stored = self._store.live.numbers(before)
            if stored is None:
                return None
            found += stored
        return joined(found, ROWS, WIDE)

    def archived(self, traces: Sequence[str]) -> list[str]:
        """Return those of some traces that may be in the archive."""
        return [name for name in traces if not self._is_new(name)]

    def with_conversations(self, traces: Sequence[str]) -> list[str]:
        """Return traces and all others that share conversations with them, also by others."""
        known = self._together.get(tuple(traces))
        if known is None:
            known = self._together[tuple(traces)] = self._sought(traces)
        return known

    def _sought(self, traces: Sequence[str]) -> list[str]:
        talking = [name for name in traces if not self._is_new(name) or self._talks(name)]
        if not talking:
            return sorted(set(traces))
        together = self._store.pending.with_conversations(talking, noted=True)
        return sorted({*traces, *together})

    def _state(self, name: str) -> OpenTrace | None:
        return self._due.get(name) or self._tracker.get(name)

    def _is_new(self, name: str) -> bool:
        state = self._state(name)
        return state is not None and state.is_new

    def _talks(self, name: str) -> bool:
        state = self._state(name)
        return state is not None and state.has_conversation
