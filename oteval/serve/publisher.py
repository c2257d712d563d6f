"""Hand scores to everything outside the store: forwarded spans, log events and metrics."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..model import Score
from ..scoring import EventRun
from ..store import Store
from .evaluations import WrittenScores

if TYPE_CHECKING:
    from .destinations import ScoreDestinations

__all__ = ["ScorePublisher"]

_log = logging.getLogger(__name__)
_NS = 1_000_000_000
# Traces are published with the scores they have this long before their deadline, or a tenth of the
# deadline when that is less, because the sending thread checks the deadline itself.
_AHEAD_NS = 2 * _NS
_AHEAD_SHARE = 10
_MAX_TRACES = 1000  # traces whose scores are looked up at once
_METRICS_INTERVAL_NS = _NS
_PUSH_INTERVAL_NS = _NS // 2


class ScorePublisher:
    """Publishes scores; without `attach`, it does nothing.

    Args:
        store: The store that scores are looked up in.
        attach: The destinations of scores.
    """

    def __init__(self, store: Store, attach: ScoreDestinations | None) -> None:
        self._store, self._attach = store, attach
        self._measured_ns = self._pushed_ns = 0

    def state(self) -> dict[str, Any]:
        """The state of the destinations."""
        return {} if self._attach is None else self._attach.state()

    def publish(self, written: Iterable[WrittenScores]) -> None:
        """Publish scores that were written to the store as metrics and events."""
        attach = self._attach
        if attach is None:
            return
        events: list[tuple[Score, EventRun]] = []
        for scores in written:
            attach.metrics.count_scores(
                scores.evaluator,
                scores.results,
                seconds=scores.seconds,
                lag=scores.lag,
                cost=scores.cost,
            )
            if attach.events is not None:
                events += scores.events()
        if attach.events is None or not events:
            return
        try:
            attach.events.emit(events)
        except OSError as error:
            _log.error("the events of %d scores are lost: %s", len(events), error)

    def release(self, traces: Sequence[str]) -> None:
        """Make the forwarder send traces, with the scores that they have."""
        forward = self._attach.forward if self._attach is not None else None
        if forward is not None and traces:
            withheld = forward.held(traces)
            if withheld:
                forward.release(self._store.scores.on_traces(withheld))

    def release_expiring(self, now: int) -> None:
        """Make the forwarder send the traces whose deadline is near, with the scores they have."""
        forward = self._attach.forward if self._attach is not None else None
        if forward is not None:
            until = now + min(_AHEAD_NS, forward.deadline_ns // _AHEAD_SHARE)
            while expiring := forward.expiring(until, _MAX_TRACES):
                forward.expire(self._store.scores.on_traces(expiring), until)

    def push(self, now: int, *, at_once: bool = False) -> None:
        """Hand newly stored scores to the trace backends that they are written to.

        Args:
            now: The time (ns).
            at_once: Whether to do so even if it was done a moment ago.
        """
        if self._attach is None or not self._attach.pushes:
            return
        if not at_once and now - self._pushed_ns < _PUSH_INTERVAL_NS:
            return
        self._pushed_ns = now
        for push in self._attach.pushes:
            try:
                push.feed(self._store)
            except OSError as error:
                # They are read again next time.
                _log.error("scores wait for the push to %s: %s", push.name, error)

    def are_metrics_due(self, now: int) -> bool:
        """Return whether it is time to call `update_metrics`, and note that it was."""
        if self._attach is None or now - self._measured_ns < _METRICS_INTERVAL_NS:
            return False
        self._measured_ns = now
        return True

    def update_metrics(self, oldest_ns: int | None, now: int, **values: Any) -> None:
        """Update the metrics about the state of scoring.

        Args:
            oldest_ns: When the first row of the open traces arrived (ns); None when none is open.
            now: The time (ns).
            values: The keywords of `ScoringMetrics.update_scoring`.
        """
        assert self._attach is not None
        metrics = self._attach.metrics
        metrics.update_scoring(
            oldest=0.0 if oldest_ns is None else max(0, now - oldest_ns) / _NS, **values
        )
        if self._attach.forward is not None:
            metrics.update_forward(self._attach.forward.state())
        if self._attach.events is not None:
            metrics.update_events(self._attach.events.state())
        for push in self._attach.pushes:
            metrics.update_push(push.state())
