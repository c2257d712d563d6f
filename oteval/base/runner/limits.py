"""Limits on calls: a rate, and a budget per day (UTC)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

__all__ = [
    "DailyBudget",
    "RateLimiter",
    "day_of",
    "next_day_ns",
    "start_of_day_ns",
]

_NS = 1_000_000_000


def day_of(time_ns: int) -> str:
    """The UTC day of a Unix time in nanoseconds, such as ``2026-11-21``."""
    return datetime.fromtimestamp(time_ns // _NS, UTC).date().isoformat()


def start_of_day_ns(day: str) -> int:
    """The Unix time (ns) of the beginning of a UTC day."""
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * _NS


def next_day_ns(time_ns: int) -> int:
    """The Unix time (ns) of the beginning of the next UTC day."""
    today = datetime.fromtimestamp(time_ns // _NS, UTC).replace(hour=0, minute=0, second=0)
    return int((today + timedelta(days=1)).timestamp()) * _NS


class RateLimiter:
    """Spaces calls evenly, so that no more than a given number start per minute.

    Args:
        per_minute: Calls per minute; None for no limit.
        clock: A steady clock, in seconds.
    """

    def __init__(
        self, per_minute: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._clock = clock
        self._next = 0.0
        self._lock = threading.Lock()

    def reserve(self) -> float:
        """Reserve the next free slot, and return the seconds to wait for it."""
        with self._lock:
            now = self._clock()
            slot = max(now, self._next)
            self._next = slot + self._gap
            return slot - now


class DailyBudget:
    """A limit on the cost of calls per UTC day. Safe to share between threads.

    The cost of a call is known only after it. Each running call therefore reserves the cost of the
    most expensive call so far, or its own expected cost if that is higher, so that concurrent calls
    do not exceed the budget. Calls run one at a time until the cost of one call is known; failed
    and cached calls do not reveal it.

    Args:
        limit: US dollars per day; None for no limit.
        spent_on: Returns the money already spent on a day, and the cost of one call that day.
    """

    def __init__(self, limit: float | None, spent_on: Callable[[str], tuple[float, float]]) -> None:
        self._limit = limit
        self._spent_on = spent_on
        self._changed = threading.Condition()
        self._is_cost_known = limit is None
        self._day = ""
        self._spent = 0.0
        self._highest_cost = 0.0
        self._running = 0
        self._abandoned = 0
        self._expected = 0.0

    def start_day(self, time_ns: int) -> None:
        """Start the UTC day of a time, unless it has started already.

        Call this before `reserve`, from the thread that may call `spent_on`.
        """
        day = day_of(time_ns)
        if day != self._day:
            before, cost_each = self._spent_on(day)
            with self._changed:
                self._day, self._spent = day, before
                self._highest_cost = max(self._highest_cost, cost_each)
                self._is_cost_known |= cost_each > 0

    def reserve(self, expected_cost: float = 0.0) -> str:
        """Reserve money for a call.

        Until the cost of one call is known, calls wait for each other.

        Args:
            expected_cost: The least that the call will cost, in US dollars.

        Returns:
            The reason if the budget is used up, else "".
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_cost_known or self._running <= self._abandoned)
            if self._limit is not None:
                reserved = max(
                    (self._running + 1) * self._highest_cost, self._expected + expected_cost
                )
                if self._spent >= self._limit or self._spent + reserved > self._limit:
                    return (
                        f"the budget of ${self._limit:g} for {self._day} (UTC) is used up "
                        f"(${self._spent:.4g} spent); evaluated the next day"
                    )
            self._running += 1
            self._expected += expected_cost
            return ""

    def abandon(self) -> None:
        """Stop waiting for the cost of a call that hangs. Its money stays reserved."""
        with self._changed:
            self._abandoned += 1
            self._changed.notify_all()

    def settle(
        self, cost: float | None, expected_cost: float = 0.0, *, was_abandoned: bool = False
    ) -> None:
        """Replace the reservation of a call by its cost.

        Args:
            cost: US dollars; None if the call failed or was cached, so that its cost is unknown.
            expected_cost: The same as for `reserve`.
            was_abandoned: Whether `abandon` was called for it.
        """
        with self._changed:
            self._running -= 1
            self._abandoned -= was_abandoned
            self._expected = max(self._expected - expected_cost, 0.0)
            if cost is not None:
                self._spent += cost
                self._highest_cost = max(self._highest_cost, cost)
                self._is_cost_known = True
            self._changed.notify_all()

    @property
    def spent(self) -> float:
        """US dollars spent today."""
        return self._spent
