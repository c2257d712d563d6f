"""The clock of live scoring: ages and deadlines do not depend on when somebody sets the time."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["SteadyClock"]


class SteadyClock:
    """The time of day (ns) at the start, moved on by a clock that is never set.

    Times of two processes, or of different starts of one, may differ by as much as the time of day
    was set between them: times that are stored are of the time of day.

    Args:
        wall: The time of day (ns).
        monotonic: Nanoseconds that only ever grow.
    """

    def __init__(
        self,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._monotonic = monotonic
        self._ahead = wall() - monotonic()

    def __call__(self) -> int:
        """Return the time (ns)."""
        return self._ahead + self._monotonic()
