"""Results that take a while to compute and are kept for the next request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, NamedTuple

from ...store import StoreState

__all__ = ["KeptResults"]

_log = logging.getLogger(__name__)
# The most seconds that a result is kept while the store grows, and the most results.
_LONGEST_KEPT, _MOST_KEPT = 60.0, 32
# A result that took the first number of seconds is shown once more while it is computed anew,
# unless it is older than the second number.
_SLOW, _OLDEST_SHOWN = 0.25, 300.0


class _Kept(NamedTuple):
    """A result.

    Attributes:
        value: The result.
        state: The state of the store that it was computed from.
        changes: The changes that people had made by then.
        made: When its computation began (s, monotonic, like ``until``).
        until: Until when it is used in any case.
        is_slow: Whether it is shown once more while it is computed anew.
    """

    value: Any
    state: StoreState
    changes: int
    made: float
    until: float
    is_slow: bool


class KeptResults:
    """Keeps results by a key, and computes results that are out of date.

    A result is used while the store has not grown. If the store grows, the result is used for some
    more time, so that the store is not queried again and again. After that, a result that takes
    long is used once more while it is computed anew in the background: the first person who looks
    does not wait for it.

    Args:
        state: Returns the state of the store.
        recent: For how many seconds the state of the store is reused for results that may be out of
            date, so that not each part of a page queries a store that grows all the time.
        clock: Returns the current time (s), which never steps back.
    """

    def __init__(
        self,
        state: Callable[[], Awaitable[StoreState]],
        recent: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state, self._recent, self._clock = state, recent, clock
        self._seen: tuple[float, StoreState] | None = None
        self._changes = 0
        self._kept: dict[Hashable, _Kept] = {}
        self._locks: dict[Hashable, asyncio.Lock] = {}
        self._renewals: dict[Hashable, asyncio.Task[Any]] = {}

    def note_change(self) -> None:
        """Note that a person changed the store: nobody is shown results from before the change."""
        self._changes += 1

    async def get(
        self, key: Hashable, compute: Callable[[], Awaitable[Any]], patience: float
    ) -> Any:
        """Return a kept result, or compute it.

        Args:
            key: Identifies the result.
            compute: Computes it.
            patience: While the store grows, the result is kept for this multiple of its computation
                time, at most a minute; 0 for a result that is never out of date.

        Raises:
            Exception: ``compute`` raised it.
        """
        async with self._locks.setdefault(key, asyncio.Lock()):
            state = await (self._recent_state() if patience else self._state())
            previous, now = self._kept.get(key), self._clock()
            if previous and (previous.state == state or now < previous.until):
                return previous.value
            if previous and patience and self._is_shown_again(previous, now):
                self._renew(key, compute, patience)
                return previous.value
            return await self._compute(key, compute, patience, state)

    async def refresh(
        self, key: Hashable, compute: Callable[[], Awaitable[Any]], patience: float
    ) -> float:
        """Compute a result for the next request, unless the kept result is up to date.

        Requests that arrive meanwhile get the old result, or wait if there is none.

        Args:
            key: Identifies the result.
            compute: Computes it. If it raises an error, the next request shows the error.
            patience: As for `get`.

        Returns:
            The seconds that it took; 0 if the result was up to date.
        """
        begun, previous = self._clock(), self._kept.get(key)
        if previous is None:
            self._in_background(key, lambda: self.get(key, compute, patience))
        elif previous.state == await self._state() or begun < previous.until:
            return 0.0
        else:
            self._renew(key, compute, patience)
        await asyncio.wait([self._renewals[key]])
        return self._clock() - begun

    async def _recent_state(self) -> StoreState:
        now = self._clock()
        if self._seen is None or now - self._seen[0] >= self._recent:
            self._seen = now, await self._state()
        return self._seen[1]

    def _is_shown_again(self, previous: _Kept, now: float) -> bool:
        """Whether an old result is shown while it is computed anew."""
        is_recent = now - previous.made < _OLDEST_SHOWN
        return previous.is_slow and is_recent and previous.changes == self._changes

    def _renew(self, key: Hashable, compute: Callable[[], Awaitable[Any]], patience: float) -> None:
        """Compute a result in the background, unless that is being done."""

        async def renew() -> None:
            await self._compute(key, compute, patience, await self._state())

        self._in_background(key, renew)

    def _in_background(self, key: Hashable, work: Callable[[], Awaitable[Any]]) -> None:
        if key in self._renewals:
            return

        async def run() -> None:
            await work()

        def end(task: asyncio.Task[None]) -> None:
            self._renewals.pop(key, None)
            if not task.cancelled() and (error := task.exception()):
                # The next request computes it and shows the error.
                self._kept.pop(key, None)
                _log.warning("a page's figures could not be renewed: %s", error)

        task = asyncio.get_running_loop().create_task(run())
        self._renewals[key] = task
        task.add_done_callback(end)

    async def _compute(
        self,
        key: Hashable,
        compute: Callable[[], Awaitable[Any]],
        patience: float,
        state: StoreState,
    ) -> Any:
        """Compute a result and keep it; the state of the store was read before."""
        changes, begun = self._changes, self._clock()
        value = await compute()
        took = self._clock() - begun
        self._kept.pop(key, None)
        while len(self._kept) >= _MOST_KEPT:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            if oldest not in self._renewals:
                self._locks.pop(oldest, None)
        until = begun + took + min(_LONGEST_KEPT, took * patience)
        self._kept[key] = _Kept(value, state, changes, begun, until, took >= _SLOW)
        return value
