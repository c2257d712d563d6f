"""What live scoring hands to the ways of attaching: releases, events and figures."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..store import Store
from .lanes import Outcome

if TYPE_CHECKING:
    from ..attach import Attach

__all__ = ["Giving"]

_log = logging.getLogger(__name__)
_NS = 1_000_000_000
# So long before their deadline, traces go on with the scores there are: the time for this must
# come before the thread that sends looks. Of a short deadline it is a tenth.
_AHEAD_NS = 2 * _NS
_AHEAD_SHARE = 10
# So many traces' scores are looked up at once.
_TRACES = 1000
_MEASURE_NS = _NS


class Giving:
    """Gives scores to what attaches them, if something does.

    Args:
        store: Where scores are looked up.
        attach: What attaches them.
    """

    def __init__(self, store: Store, attach: Attach | None) -> None:
        self._store, self._attach = store, attach
        self._measured = 0

    def state(self) -> dict[str, Any]:
        """Return how the ways of attaching stand."""
        return {} if self._attach is None else self._attach.state()

    def scored(self, outcomes: Sequence[Outcome], now: int) -> None:
        """Tell of scores that were written down."""
        if self._attach is None or not outcomes:
            return
        for one in outcomes:
            lag = max(0, now - one.task.item.since_ns) / _NS
            self._attach.metrics.scored(one.score, one.task.trajectory.agent, one.seconds, lag)
            self._attach.metrics.paid(one.score.evaluator, one.cost)
        try:
            self._attach.scored([(one.score, one.task.trajectory) for one in outcomes])
        except OSError as error:
            _log.error("events of %d scores are lost: %s", len(outcomes), error)

    def release(self, traces: Sequence[str], now: int) -> None:
        """Let traces go on with the scores that there are."""
        forward = self._attach.forward if self._attach is not None else None
        if forward is not None and traces:
            wanted = forward.held(traces)
            if wanted:
                forward.release(self._store.live.scores_of(wanted), now)

    def expire(self, now: int) -> None:
        """Let what has its deadline soon go on with the scores that there are."""
        forward = self._attach.forward if self._attach is not None else None
        if forward is not None:
            until = now + min(_AHEAD_NS, forward.deadline_ns // _AHEAD_SHARE)
            while due := forward.expiring(until, _TRACES):
                forward.expire(self._store.live.scores_of(due), until)

    def is_measuring(self, now: int) -> bool:
        """Return whether it is time for figures."""
        if self._attach is None or now - self._measured < _MEASURE_NS:
            return False
        self._measured = now
        return True

    def measure(self, oldest_ns: int | None, now: int, **figures: Any) -> None:
        """Take over how scoring stands: the keywords of `Metrics.scoring`."""
        assert self._attach is not None
        oldest = 0.0 if oldest_ns is None else max(0, now - oldest_ns) / _NS
        self._attach.metrics.scoring(oldest=oldest, **figures)
        if self._attach.forward is not None:
            self._attach.metrics.forwarding(self._attach.forward.state())
        if self._attach.events is not None:
            self._attach.metrics.emitting(self._attach.events.state())
