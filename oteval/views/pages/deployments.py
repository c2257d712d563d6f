"""Deployments as marks on drawings over time: changes of a service's version, and noted marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass

from ...store import Store, StoredMark
from ..text import clock, one_line, shorten

__all__ = ["DeploymentMark", "Deployments", "read_deployments"]

_MOST, _NAME = 8, 60


@dataclass(frozen=True, slots=True)
class DeploymentMark:
    """A deployment on the drawings of an agent.

    Attributes:
        share: Its place in the period, from 0 to 1.
        text: Its name and time.
    """

    share: float
    text: str


@dataclass(frozen=True, slots=True)
class Deployments:
    """The deployments of a period.

    Attributes:
        first_ns: When the period begins (ns since the epoch).
        last_ns: When it ends.
        marks: The marks, the latest first.
        services: The services of each agent; "" has the services of runs without an agent.
    """

    first_ns: int = 0
    last_ns: int = 0
    marks: Sequence[StoredMark] = ()
    services: Mapping[str, AbstractSet[str]] | None = None

    def of(self, agent: str, service: str) -> tuple[DeploymentMark, ...]:
        """The latest deployments of an agent, or of a service for runs without one.

        Args:
            agent: The agent, or "".
            service: The service of runs without an agent.
        """
        own = (self.services or {}).get(agent, frozenset()) if agent else {service}
        extent = max(1, self.last_ns - self.first_ns)
        own_marks = [mark for mark in self.marks if not mark.service or mark.service in own]
        return tuple(
            DeploymentMark(
                (mark.time_ns - self.first_ns) / extent,
                f"{shorten(one_line(mark.name), _NAME)}, {clock(mark.time_ns)[:16]} UTC",
            )
            for mark in own_marks[:_MOST]
        )


def read_deployments(store: Store, first_ns: int, last_ns: int) -> Deployments:
    """The deployments in a period, seen by monitors or marked by somebody.

    Args:
        store: The store.
        first_ns: When the period begins (ns since the epoch).
        last_ns: When it ends.
    """
    marks = [mark for mark in store.monitors.marks(first_ns) if mark.time_ns <= last_ns]
    if not marks:
        return Deployments()
    services = store.agent_figures.services(first_ns, last_ns)
    return Deployments(first_ns, last_ns, marks[::-1], services)
