"""Requests whose bytes are still arriving: how many there may be, and how long they may take.

Bytes count once they have arrived, not when they are announced. Where there are too many, the
request that brings its bytes most slowly gives way, so that senders that stall hold up nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .answers import Refused, too_busy

__all__ = ["Arrival", "Arrivals"]

# Seconds that a request may take before it can be made to give way.
_GRACE = 1.0


class Arrival:
    """A request that arrives.

    Attributes:
        size: How many of its bytes are here.
    """

    def __init__(self, arrivals: Arrivals, began: float, timeout: asyncio.Timeout) -> None:
        self.size = 0
        self._arrivals = arrivals
        self._began = began
        self._timeout = timeout
        self._gave_way = False

    def add(self, size: int) -> None:
        """Count bytes that have arrived.

        Raises:
            Refused: There are too many of all requests, and no other can give way.
        """
        self.size += size
        self._arrivals.make_room(size, self)

    def rate(self, now: float) -> float:
        """Return its bytes a second."""
        return self.size / max(now - self._began, 1e-9)

    def may_give_way(self, now: float) -> bool:
        """Return whether it has had its time of grace."""
        return now - self._began > _GRACE

    def give_way(self, now: float) -> None:
        """End it with the answer to come again."""
        self._gave_way = True
        if not self._timeout.expired():
            self._timeout.reschedule(now)

    def refusal(self) -> Refused:
        """Return the answer to a request that did not arrive in time."""
        if self._gave_way:
            return too_busy("too much is being received at once", "busy")
        return Refused(408, "slow", "the request did not arrive in time")


class Arrivals:
    """All requests that arrive in one event loop."""

    def __init__(self, *, most_bytes: int, most: int, timeout: float) -> None:
        """Set the limits.

        Args:
            most_bytes: The most bytes of all requests that have arrived and are not done.
            most: The most requests that arrive at once.
            timeout: After how many seconds a request must have arrived.
        """
        self._most_bytes, self._most, self._seconds = most_bytes, most, timeout
        self._bytes = 0
        self._arriving: dict[Arrival, None] = {}

    @asynccontextmanager
    async def arriving(self) -> AsyncIterator[Arrival]:
        """Count a request that arrives until the block ends; its bytes until `done`.

        Raises:
            Refused: It takes too long, or has to give way.
        """
        loop = asyncio.get_running_loop()
        if len(self._arriving) >= self._most:
            self._have_one_give_way(loop.time(), None)
        arrival: Arrival | None = None
        try:
            async with asyncio.timeout(self._seconds) as timeout:
                arrival = Arrival(self, loop.time(), timeout)
                self._arriving[arrival] = None
                yield arrival
        except TimeoutError:
            assert arrival is not None
            self.done(arrival)
            raise arrival.refusal() from None
        finally:
            if arrival is not None:
                self._arriving.pop(arrival, None)

    def make_room(self, size: int, arrival: Arrival) -> None:
        """Count bytes of a request in; others may have to give way.

        Raises:
            Refused: There are too many bytes at once.
        """
        self._bytes += size
        while self._bytes > self._most_bytes:
            self._have_one_give_way(asyncio.get_running_loop().time(), arrival)

    def done(self, arrival: Arrival) -> None:
        """Count the bytes of a request out."""
        self._bytes -= arrival.size
        arrival.size = 0

    def _have_one_give_way(self, now: float, newest: Arrival | None) -> None:
        candidates = [one for one in self._arriving if one is not newest and one.may_give_way(now)]
        if not candidates:
            raise too_busy("too much is being received at once", "busy")
        slowest = min(candidates, key=lambda one: one.rate(now))
        del self._arriving[slowest]
        self.done(slowest)
        slowest.give_way(now)
