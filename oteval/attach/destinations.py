"""Everything that scores are sent to besides the store."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..model import Score, Trajectory
from .events import EventExporter
from .forwarder import Forwarder

if TYPE_CHECKING:
    from .metrics import ScoringMetrics
    from .metrics_exporter import MetricsExporter

__all__ = ["ScoreDestinations"]


@dataclass
class ScoreDestinations:
    """The destinations that are configured.

    Attributes:
        metrics: The metrics about scores.
        forward: Sends traces on with their scores.
        events: Exports scores as log events.
        exporter: Exports the metrics.
    """

    metrics: ScoringMetrics
    forward: Forwarder | None = None
    events: EventExporter | None = None
    exporter: MetricsExporter | None = None

    def export_events(self, scores: Sequence[tuple[Score, Trajectory]]) -> None:
        """Export events for scores, each with its trajectory.

        Raises:
            OSError: The events cannot be written to their queue.
        """
        if self.events is not None:
            self.events.emit(scores)

    def state(self) -> dict[str, Any]:
        """Return the state for people and /readyz, with `problems` in words."""
        forward = self.forward.state() if self.forward else None
        events = self.events.state() if self.events else None
        problems = [*_problems("forward", forward), *_problems("events", events)]
        return {"forward": forward, "events": events, "problems": problems}

    def close(self, grace: float = 5.0) -> None:
        """Close all destinations.

        Args:
            grace: Seconds in which waiting requests are still sent; the others stay on disk.
        """
        for part in (self.events, self.forward):
            if part is not None:
                part.close(grace)
        if self.exporter is not None:
            self.exporter.close()


def _problems(name: str, state: Mapping[str, Any] | None) -> Iterator[str]:
    """Describe the problems of an endpoint, without its URL, which may hold a secret."""
    if state is None:
        return
    if state["error"]:
        yield (
            f"{name}: the endpoint has accepted nothing for {state['failing_seconds']:.0f} s "
            f"({state['error']}); {state['waiting_requests']} requests wait on disk"
        )
    if state["bytes"] >= state.get("quota", math.inf):
        yield f"{name}: the queue has reached its quota; new requests stay in the spool"
    if state["refused_kept"]:
        yield (
            f"{name}: the endpoint refused {state['refused_kept']} requests for good; they are "
            "kept, and `oteval resend` sends them again"
        )
