"""The database and the configuration that the tools use."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ...scoring import Config, load_config, open_databases
from ...store import Store, is_result_folder

__all__ = ["AgentUnderTest", "Workspace"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentUnderTest:
    """The agent that is called by tests made from sessions. The user names it; a client never does.

    Attributes:
        target: A function, ``package.module:function``; or "".
        command: A command, in place of a target; or "".
        folder: The folder for tests.
    """

    target: str = ""
    command: str = ""
    folder: str = "tests"


@dataclass(frozen=True)
class Workspace:
    """The files that the tools work on.

    Attributes:
        db: The path of the database.
        config_path: The path of the configuration.
        agent: The agent that tests call; None if no tests can be made.
        more: Further databases that are read with it; then nothing can be written.
    """

    db: str
    config_path: str
    agent: AgentUnderTest | None = None
    more: tuple[str, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @contextmanager
    def store(self) -> Iterator[Store]:
        """Open the database for one call, or several as one, with their trajectories up to date.

        Calls wait for each other, because DuckDB opens a file only once in a process. If there are
        several databases, a database that a server has open is copied for each call.

        Raises:
            StoreError: A database cannot be opened; the subclass shows the reason.
        """
        with self.alone(), open_databases(self.databases, _log.warning) as store:
            yield store

    def each_store(self) -> Iterator[tuple[str, Store]]:
        """Yield each database, opened in turn, for data that belong to one of them.

        Folders of results are left out, because they contain only runs and scores.

        Raises:
            StoreError: A database cannot be opened; the subclass shows the reason.
        """
        for path in self.databases:
            if not is_result_folder(path):
                with self.alone(), open_databases([path], _log.warning) as store:
                    yield path, store

    @property
    def databases(self) -> tuple[str, ...]:
        """The paths of all databases."""
        return (self.db, *self.more)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other calls away from the database during a block."""
        with self._lock:
            yield

    @property
    def folder(self) -> Path:
        """The folder that paths of the configuration are relative to."""
        return Path(self.config_path).parent

    def config(self) -> Config:
        """The configuration as the file is now.

        Raises:
            ConfigError: It is missing or wrong.
        """
        return load_config(self.config_path)
