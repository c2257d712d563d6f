"""A site: the store that the pages show, and the configuration by which its runs are scored."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..config import Config, load_config
from ..errors import ConfigError
from ..evaluators.judge.costs import Prices, make_prices
from ..files import file_stamp
from ..store import Store
from .store_threads import StoreThreads

__all__ = ["Site"]

T = TypeVar("T")


class Site:
    """A store and a configuration to show.

    Attributes:
        name: The name of the database, for the head of the pages.
        prices: The list prices of models.
        clock: Returns the current time (ns).
    """

    def __init__(
        self,
        name: str,
        open_store: Callable[[], Store],
        config: Path | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Prepare a site.

        Args:
            name: The name of the database.
            open_store: Opens a connection to the store, one for each thread.
            config: The configuration's file, read again when it changes; None without one.
            clock: Returns the current time (ns).
        """
        self.name = name
        self.clock = clock
        self.prices: Prices = make_prices(None)
        self._threads = StoreThreads(open_store)
        self._path = config
        self._lock = threading.Lock()
        self._stamp: object = None
        self._config: Config | None = None
        self._problem = ""

    async def read(self, action: Callable[[Store], T]) -> T:
        """Return the result of a function of the store, called in a thread."""
        return await self._threads.run(action)

    def config(self) -> tuple[Config | None, str]:
        """Return the configuration as it is now, or None and the reason; "" without a file."""
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
                    self._config, self._problem = None, str(error)
            return self._config, self._problem

    def close(self) -> None:
        """Wait for the threads, and close their connections."""
        self._threads.close()
