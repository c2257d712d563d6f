"""Previews of runs whose trace just ended, shown until the run itself is stored and scored.

Previews are neither stored nor scored. Only the newest ones are shown, and each is reconstructed
once for each number of rows that its trace has. If many traces end at once, each look at them
reconstructs some; until its turn, a run is known by its agent alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ...model import SpanRef, Trajectory
from ...scoring import preview
from ...store import JustEnded, Store

__all__ = ["Preview", "Previews", "previews_text"]

_MOST = 100
# Traces are reconstructed in groups of so many until a look has taken so many seconds.
_GROUP, _PATIENCE = 10, 0.02


@dataclass(frozen=True, slots=True)
class Preview:
    """A run so far, of a trace that just ended.

    Attributes:
        trace: The trace.
        run: The run; without messages if it was not reconstructed.
        is_plain: Whether it was not reconstructed, because the trace is too large.
        is_pending: Whether it is reconstructed only at the next look.
    """

    trace: JustEnded
    run: Trajectory
    is_plain: bool = False
    is_pending: bool = False


class Previews:
    """The newest previews of a store. Thread-safe.

    Args:
        is_on: Whether there are any: only a server completes traces later.
        most: The most previews.
        patience: How many seconds a look may reconstruct traces; it reconstructs one group of them
            at least.
    """

    def __init__(self, is_on: bool, most: int = _MOST, patience: float = _PATIENCE) -> None:
        self._is_on, self._most, self._patience = is_on, most, patience
        self._lock = threading.Lock()
        self._known: dict[JustEnded, Preview | None] = {}

    def newest(self, store: Store, *, is_patient: bool = True) -> Sequence[Preview]:
        """The previews, beginning with the newest root.

        Args:
            store: The store.
            is_patient: Whether to reconstruct some traces even if many wait for it.
        """
        if not self._is_on:
            return ()
        with self._lock:
            traces = store.live.just_ended(self._most)
            self._known = {trace: self._known[trace] for trace in traces if trace in self._known}
            waiting = [trace for trace in traces if trace not in self._known]
            if is_patient or len(waiting) <= _GROUP:
                self._add(waiting, store)
            previews = [
                self._known[trace] if trace in self._known else _pending(trace) for trace in traces
            ]
        return [trace for trace in previews if trace is not None]

    def _add(self, traces: Sequence[JustEnded], store: Store) -> None:
        """Reconstruct traces in their order, as far as the patience goes."""
        end = time.monotonic() + self._patience
        for at in range(0, len(traces), _GROUP):
            self._known |= _previews(store, traces[at : at + _GROUP])
            if time.monotonic() >= end:
                break

    def of(self, store: Store, trace_id: str) -> Preview | None:
        """The preview of a trace, or None if it did not just end."""
        traces = store.live.just_ended(1, trace_id) if self._is_on else []
        return next(iter(_previews(store, traces).values()), None)

    def state(self, store: Store) -> str:
        """`previews_text` of the newest previews."""
        return previews_text(self.newest(store))


def previews_text(previews: Sequence[Preview]) -> str:
    """A text that changes when a trace ends, gets more rows, or is reconstructed."""
    if not previews:
        return ""
    pending = sum(preview.is_pending for preview in previews)
    return f".{max(preview.trace.last for preview in previews)}.{pending}"


def _previews(store: Store, traces: Sequence[JustEnded]) -> dict[JustEnded, Preview | None]:
    """Return previews by trace, None for a trace without an agent."""
    runs = preview(store, traces) if traces else {}
    previews: dict[JustEnded, Preview | None] = {}
    for trace in traces:
        run = runs.get(trace.trace_id)
        if run is not None:
            previews[trace] = Preview(trace, run)
        else:
            previews[trace] = (
                None if trace.trace_id in runs else Preview(trace, _plain(trace), is_plain=True)
            )
    return previews


def _pending(trace: JustEnded) -> Preview | None:
    """The preview of a trace that waits for its turn; None without a known agent."""
    return Preview(trace, _plain(trace), is_pending=True) if trace.agent else None


def _plain(trace: JustEnded) -> Trajectory:
    return Trajectory(
        trace.trace_id,
        SpanRef(trace.trace_id, ""),
        agent=trace.agent,
        service=trace.service,
        start_ns=trace.start_ns,
        end_ns=trace.end_ns,
    )
