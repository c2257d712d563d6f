"""A site: the store that the pages show, and the configuration by which its runs are scored."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TypeVar

from ...base.errors import ConfigError
from ...base.files import file_stamp
from ...model import Prices, make_prices
from ...scoring import Config, load_config
from ...store import Store
from .just_ended import Previews
from .kept_results import KeptResults
from .store_threads import StoreThreads

__all__ = ["GC_AFTER", "Site"]

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
        while it is computed anew (:class:`~oteval.views.pages.kept_results.KeptResults`).

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
