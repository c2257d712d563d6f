"""What an evaluator may use: calls a minute, and dollars a day (UTC)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

__all__ = ["DailyBudget", "Pace", "day_begin_ns", "day_of", "next_day_ns"]

_NS = 1_000_000_000


def day_of(now: int) -> str:
    """Return the day (UTC) of a time in ns, as 2026-11-21."""
    return datetime.fromtimestamp(now // _NS, UTC).date().isoformat()


def day_begin_ns(day: str) -> int:
    """Return when a day (UTC) begins (ns)."""
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * _NS


def next_day_ns(now: int) -> int:
    """Return when the day after that of a time begins (ns)."""
    today = datetime.fromtimestamp(now // _NS, UTC).replace(hour=0, minute=0, second=0)
    return int((today + timedelta(days=1)).timestamp()) * _NS


class Pace:
    """Spaces calls evenly, so that at most so many begin a minute."""

    def __init__(
        self, per_minute: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._clock = clock
        self._next = 0.0
        self._lock = threading.Lock()

    def wait_time(self) -> float:
        """Take the next place, and return how many seconds to wait for it."""
        with self._lock:
            now = self._clock()
            place = max(now, self._next)
            self._next = place + self._gap
            return place - now


class DailyBudget:
    """What an evaluator has spent on a day; several threads ask it.

    A call's cost is known only afterwards, so what the dearest call of the day cost, or what the
    call is expected to cost if that is more, is set aside for each that goes on: concurrent calls
    do not overrun the budget unless one is dearer still. Until a first call has told what calls
    cost, they go one by one; a call that failed tells nothing.

    Args:
        limit: US dollars a day, or None for no limit.
        spent: Returns what the store says was spent on a day, and what a call cost.
    """

    def __init__(self, limit: float | None, spent: Callable[[str], tuple[float, float]]) -> None:
        self._limit = limit
        self._spent_before = spent
        self._lock = threading.Condition()
        self._has_told = limit is None
        self._day = ""
        self._spent = 0.0
        self._dearest = 0.0
        self._under_way = 0
        self._expected = 0.0

    def begin(self, now: int) -> None:
        """Let a new day begin; called by the thread that owns the store, before any `admit`."""
        day = day_of(now)
        if day != self._day:
            before, each = self._spent_before(day)
            with self._lock:
                self._day, self._spent = day, before
                self._dearest = max(self._dearest, each)
                self._has_told |= each > 0

    def admit(self, expected: float = 0.0) -> str:
        """Set money aside for a call; return "" or why there is none.

        Args:
            expected: What the call costs at least.
        """
        with self._lock:
            self._lock.wait_for(lambda: self._has_told or not self._under_way)
            if self._limit is not None:
                reserved = max((self._under_way + 1) * self._dearest, self._expected + expected)
                if self._spent >= self._limit or self._spent + reserved > self._limit:
                    return (
                        f"the budget of ${self._limit:g} for {self._day} (UTC) is spent "
                        f"(${self._spent:.4g}); done the next day"
                    )
            self._under_way += 1
            self._expected += expected
            return ""

    def paid(self, cost: float, expected: float = 0.0, *, has_failed: bool = False) -> None:
        """Take note of what an admitted call cost.

        Args:
            cost: US dollars.
            expected: What `admit` was told.
            has_failed: Whether its cost tells nothing of what calls cost.
        """
        with self._lock:
            self._under_way -= 1
            self._expected = max(self._expected - expected, 0.0)
            self._spent += cost
            self._dearest = max(self._dearest, cost)
            self._has_told |= cost > 0 or not has_failed
            self._lock.notify_all()

    @property
    def spent(self) -> float:
        """What was spent today (US dollars)."""
        return self._spent
