"""Everything that scores are sent to in addition to the store."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .events import EventExporter
from .forwarder import Forwarder

if TYPE_CHECKING:
    from .metrics import ScoringMetrics
    from .metrics_exporter import MetricsExporter

__all__ = ["ScoreDestinations", "ScoreReader"]


class ScoreReader(Protocol):
    """A destination that reads scores where they are stored, and has its own queue.

    Attributes:
        name: Its name, for people and metrics.
    """

    name: str

    def feed(self, store: Any) -> None:
        """Take the scores that were stored since the last call.

        Args:
            store: The `oteval.store.Store`.

        Raises:
            OSError: The queue cannot be written.
        """

    def state(self) -> dict[str, Any]:
        """The state of the queue, as `ExportQueue.state`, with the name."""

    def close(self, grace: float = 0.0) -> None:
        """Stop sending; waiting entries stay on disk after `grace` seconds."""


@dataclass
class ScoreDestinations:
    """The destinations that are configured.

    Attributes:
        metrics: The metrics about scores.
        forward: Sends traces on with their scores.
        events: Exports scores as log events.
        exporter: Exports the metrics.
        pushes: Write scores to trace backends.
    """

    metrics: ScoringMetrics
    forward: Forwarder | None = None
    events: EventExporter | None = None
    exporter: MetricsExporter | None = None
    pushes: Sequence[ScoreReader] = field(default_factory=tuple)

    def state(self) -> dict[str, Any]:
        """The state for people and /readyz, with `problems` in words."""
        forward = self.forward.state() if self.forward else None
        events = self.events.state() if self.events else None
        pushes = [push.state() for push in self.pushes]
        problems = [*_problems("forward", forward), *_problems("events", events)]
        for state in pushes:
            problems += _problems(f"push to {state['name']}", state, "scores stay in the database")
        return {"forward": forward, "events": events, "push": pushes, "problems": problems}

    def close(self, grace: float = 5.0) -> None:
        """Close all destinations.

        Args:
            grace: How long (s) to go on sending waiting requests; unsent requests stay on disk.
        """
        for part in (self.events, self.forward, *self.pushes):
            if part is not None:
                part.close(grace)
        if self.exporter is not None:
            self.exporter.close()


def _problems(
    name: str, state: Mapping[str, Any] | None, full: str = "requests stay in the spool"
) -> Iterator[str]:
    """Describe the problems of an endpoint, without its URL, which may contain a secret."""
    if state is None:
        return
    if state["error"]:
        yield (
            f"{name}: the endpoint has accepted nothing for {state['failing_seconds']:.0f} s "
            f"({state['error']}); {state['waiting_requests']} requests wait on disk"
        )
    if state["bytes"] >= state.get("quota", math.inf):
        yield f"{name}: the queue has reached its quota; new {full}"
    if state["refused_kept"]:
        yield (
            f"{name}: the endpoint refused {state['refused_kept']} requests for good; they are "
            "kept, and `oteval resend` sends them again"
        )
