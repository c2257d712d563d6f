"""Since when acknowledged requests wait to be stored, by a monotonic clock.

Positions that became durable within a moment of each other count as one, with the time of the
first: an age is never too low, and too high by that moment at most.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from .spool_segments import Position

__all__ = ["Backlog"]

_MOMENT = 0.25
_MOST = 1024


class Backlog:
    """The positions in a spool up to which requests are acknowledged, and since when.

    Args:
        clock: Seconds that only ever grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._moment = _MOMENT
        self._lock = threading.Lock()
        self._waiting: deque[tuple[float, Position]] = deque()

    def acknowledge(self, end: Position) -> None:
        """Note that everything up to a position is durable from now on."""
        now = self._clock()
        with self._lock:
            waiting = self._waiting
            if waiting and now - waiting[-1][0] < self._moment:
                waiting[-1] = (waiting[-1][0], end)
                return
            waiting.append((now, end))
            if len(waiting) > _MOST:
                # While nothing is stored for long, coarser steps will do.
                self._moment *= 2
                pairs = zip(list(waiting)[::2], list(waiting)[1::2], strict=False)
                self._waiting = deque((first[0], second[1]) for first, second in pairs)
                if len(waiting) % 2:
                    self._waiting.append(waiting[-1])

    def oldest(self, stored: Position) -> float:
        """Return for how many seconds the oldest request waits that is not stored, 0 for none.

        Args:
            stored: The position up to which the spool is stored.
        """
        with self._lock:
            while self._waiting and self._waiting[0][1] <= stored:
                self._waiting.popleft()
            if not self._waiting:
                self._moment = _MOMENT
                return 0.0
            return max(0.0, self._clock() - self._waiting[0][0])
