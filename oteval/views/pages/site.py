"""A site: the store that the pages show, and the configuration by which its runs are scored."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ...base.errors import ConfigError, StoreError
from ...base.files import file_stamp
from ...model import Prices, make_prices
from ...scoring import Config, load_config
from ...store import Store, StoreState
from .just_ended import Previews

__all__ = ["GC_AFTER", "KeptResults", "Site", "StoreThreads"]

T = TypeVar("T")
# Pages count as used for this many seconds after the last look.
_IN_USE = 300.0
# After this many seconds without a look, nobody seems to wait for a page.
_PAUSE = 1.0
# For this many seconds, the state of a store that a server fills is not queried again.
_RECENT = 0.1
GC_AFTER = 100_000
"""How many new objects start a collection of garbage in a process that shows pages.

With Python's 700, collections took half of the time to read a run of 100,000 messages.
"""
_THREADS = 3
_log = logging.getLogger(__name__)
# The most seconds that a result is kept while the store grows, and the most results.
_LONGEST_KEPT, _MOST_KEPT = 60.0, 32
# A result that took the first number of seconds is shown once more while it is computed anew,
# unless it is older than the second number.
_SLOW, _OLDEST_SHOWN = 0.25, 300.0


class Site:
    """A store and a configuration to show.

    Attributes:
        name: The name of the database, for the head of the pages.
        prices: The list prices of models.
        clock: Returns the current time (ns).
        at_stop: Called when the server stops, to end responses that would go on.
        previews: The runs that just ended, if a server fills the store.
    """

    def __init__(
        self,
        name: str,
        open_store: Callable[[], Store],
        config: Path | None = None,
        clock: Callable[[], int] = time.time_ns,
        patience: float = 20.0,
        *,
        is_served: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare a site.

        Args:
            name: The name of the database.
            open_store: Opens a connection to the store, one for each thread.
            config: The configuration's file, read again when it changes; None without one.
            clock: Returns the current time (ns).
            patience: While a store grows, a result is kept for this multiple of its computation
                time.
            is_served: Whether a server stores and completes the traces.
            check: Raises an error if the store must not be changed.
        """
        self._patience, self._check = patience, check
        self.previews = Previews(is_served)
        self.at_stop: list[Callable[[], None]] = []
        self.name = name
        self.clock = clock
        self.prices: Prices = make_prices(None)
        self._threads = StoreThreads(open_store)
        self._writer, self._scorer = StoreThreads(open_store, 1), StoreThreads(open_store, 1)
        self._path = config
        self._lock = threading.Lock()
        self._last_use = time.monotonic()
        self._stamp: object = None
        self._config: Config | None = None
        self._problem = ""
        self._kept = KeptResults(
            lambda: self.read(lambda store: store.run_list.state()),
            recent=_RECENT if is_served else 0.0,
        )

    async def read(self, action: Callable[[Store], T]) -> T:
        """The result of a function of the store, called in a thread."""
        return await self._threads.run(action)

    async def cached(
        self, key: Hashable, action: Callable[[Store], T], patience: float | None = None
    ) -> T:
        """The result of a function of the store that takes a while; perhaps a kept result.

        A kept result is used while the store has not grown, and for some more time if it grows, so
        that the store is not queried again and again. A result that takes long is shown once more
        while it is computed anew (:class:`~oteval.views.pages.site.KeptResults`).

        Args:
            key: Identifies the function.
            action: The function.
            patience: In place of the site's patience; 0 for a result that is never out of date.
        """
        patience = self._patience if patience is None else patience
        value: T = await self._kept.get(key, lambda: self.read(action), patience)
        return value

    async def refresh(self, key: Hashable, action: Callable[[Store], object]) -> float:
        """Compute a result that may be requested soon, unless the kept result is up to date.

        Args:
            key: Identifies the function, as for `cached`.
            action: The function.

        Returns:
            The seconds that it took; 0 if the result was up to date.
        """
        return await self._kept.refresh(key, lambda: self.read(action), self._patience)

    def note_use(self) -> None:
        """Note that somebody looked at a page."""
        self._last_use = time.monotonic()

    def is_used(self) -> bool:
        """Whether somebody looked at a page in the last minutes, or the site is new."""
        return time.monotonic() - self._last_use < _IN_USE

    def is_busy(self) -> bool:
        """Whether somebody looked at a page just now, and may look at the next one."""
        return time.monotonic() - self._last_use < _PAUSE

    async def write(self, action: Callable[[Store], T]) -> T:
        """The result of a function that changes the store; one runs at a time."""
        self._check()
        await self._writer.run(lambda store: store.run_list.state())  # a lost connection is renewed
        try:
            return await self._writer.run(action, is_repeated=False)
        finally:
            self._kept.note_change()

    async def score(self, action: Callable[[Store], T]) -> T:
        """The result of a function that scores runs, which may take long."""
        self._check()
        await self._scorer.run(lambda store: store.run_list.state())
        try:
            return await self._scorer.run(action, is_repeated=False)
        finally:
            self._kept.note_change()

    def config(self) -> tuple[Config | None, str]:
        """The configuration and the problem of its file, "" if there is none.

        While the file is invalid, the previous configuration is returned, or None.
        """
        if self._path is None:
            return None, ""
        with self._lock:
            stamp = file_stamp(self._path)
            if stamp is None:
                return None, ""
            if stamp != self._stamp:
                self._stamp = stamp
                try:
                    self._config, self._problem = load_config(self._path), ""
                except ConfigError as error:
                    # As in `oteval serve`, the previous rules stay in force.
                    self._problem = str(error)
            return self._config, self._problem

    @property
    def base(self) -> Path:
        """The folder that paths of the configuration are relative to."""
        return self._path.parent if self._path else Path()

    def stop(self) -> None:
        """End the responses that would go on as long as somebody listens."""
        for end in self.at_stop:
            end()

    def close(self) -> None:
        """Wait for the threads, and close their connections."""
        for threads in (self._threads, self._writer, self._scorer):
            threads.close()


class StoreThreads:
    """Reads a store in a few threads.

    Args:
        open_store: Opens a connection, which is closed here.
        threads: The number of threads.
    """

    def __init__(self, open_store: Callable[[], Store], threads: int = _THREADS) -> None:
        self._open = open_store
        self._executor = ThreadPoolExecutor(threads, "pages")
        self._lock = threading.Lock()
        self._idle: list[Store] = []
        self._is_closed = False

    async def run(self, action: Callable[[Store], T], *, is_repeated: bool = True) -> T:
        """The result of a function of a store, called in a thread.

        Args:
            action: The function.
            is_repeated: Whether to call it again with a new connection if the old one was lost.

        Raises:
            StoreError: The server that has the database open is away.
        """
        call = self._run if is_repeated else self._with_store
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, lambda: call(action)
        )

    def close(self) -> None:
        """Wait for the threads, and close their connections."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            self._is_closed = True
            stores, self._idle = self._idle, []
        for store in stores:
            store.close()

    def _run(self, action: Callable[[Store], T]) -> T:
        try:
            return self._with_store(action)
        except StoreError as error:
            if type(error) is not StoreError:
                raise
            # The process that has the database open may have been started again.
            with self._lock:
                lost, self._idle = self._idle, []
            for store in lost:
                store.close()
            return self._with_store(action)

    def _with_store(self, action: Callable[[Store], T]) -> T:
        with self._lock:
            store = self._idle.pop() if self._idle else None
        store = store or self._open()
        try:
            result = action(store)
        except StoreError:
            store.close()
            raise
        except BaseException:
            self._put_back(store)
            raise
        self._put_back(store)
        return result

    def _put_back(self, store: Store) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(store)
                return
        store.close()


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
