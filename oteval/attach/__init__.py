"""Scores given back to the traces they judge.

`forward` sends traces on with the scores as attributes, `events` emits log events in the judged
spans' contexts, `metrics` counts; the store's views carry the scores too. Imports only the leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..model import Score, Trajectory
from .attributes import score_attributes
from .encoding import log_request, span_request
from .events import Events, event_request, is_own
from .forward import Forwarder
from .partial_success import rejected
from .posting import Answer, Poster

if TYPE_CHECKING:
    from .metrics import CONTENT_TYPE, Metrics, MetricsExporter

__all__ = [
    "CONTENT_TYPE",
    "Answer",
    "Attach",
    "Events",
    "Forwarder",
    "Metrics",
    "MetricsExporter",
    "Poster",
    "event_request",
    "is_own",
    "log_request",
    "rejected",
    "score_attributes",
    "span_request",
]


_OF_METRICS = ("CONTENT_TYPE", "Metrics", "MetricsExporter")


def __getattr__(name: str) -> Any:
    """Import the metrics when they are asked for: they need a package that sending does not."""
    if name in _OF_METRICS:
        from . import metrics

        return getattr(metrics, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass
class Attach:
    """Where scores go beside the store.

    Attributes:
        metrics: What is counted.
        forward: What traces are sent on by, if they are.
        events: What emits log events, if something does.
        exporter: What sends the metrics, if something does.
    """

    metrics: Metrics
    forward: Forwarder | None = None
    events: Events | None = None
    exporter: MetricsExporter | None = None

    def scored(self, scores: Sequence[tuple[Score, Trajectory]]) -> None:
        """Emit events of scores, each with the trajectory that it is on."""
        if self.events is not None:
            self.events.emit(scores)

    def state(self) -> dict[str, Any]:
        """Return how it stands, for people and /readyz; `problems` in words."""
        forward = self.forward.state() if self.forward else None
        events = self.events.state() if self.events else None
        problems = [*_problems("forward", forward), *_problems("events", events)]
        return {"forward": forward, "events": events, "problems": problems}

    def close(self, grace: float = 5.0) -> None:
        """End; what is not sent within `grace` (s) stays on disk for the next start."""
        for part in (self.events, self.forward):
            if part is not None:
                part.close(grace)
        if self.exporter is not None:
            self.exporter.close()


def _problems(name: str, state: Mapping[str, Any] | None) -> Iterator[str]:
    """Say what is wrong with an endpoint; not its URL, which may hold a secret."""
    if state is None:
        return
    if state["error"]:
        yield (
            f"{name}: the endpoint has taken nothing for {state['failing_seconds']:.0f} s "
            f"({state['error']}); {state['waiting_requests']} requests wait on disk"
        )
    if state["bytes"] >= state.get("quota", math.inf):
        yield f"{name}: the queue has reached its quota; what comes in stays in the spool"
    if state["refused_kept"]:
        yield (
            f"{name}: {state['refused_kept']} requests were refused for good and are kept; "
            "`oteval resend` sends them again"
        )
