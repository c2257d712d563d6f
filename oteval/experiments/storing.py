"""The store that experiments are kept in, and writing to it while they go on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ..errors import ConfigError
from ..model import Experiment, Feedback, Run, Vote
from ..store import Store

__all__ = ["StoreLike", "Writer", "begun", "opened"]

StoreLike = Store | str | Path | None

DEFAULT_DB = "oteval.duckdb"
# How long what is done may wait for the disk.
_SECONDS = 0.5


@contextmanager
def opened(store: StoreLike) -> Iterator[Store]:
    """Open the store that is meant, and close it unless it was open.

    Args:
        store: A store; the path of one (``":memory:"`` keeps nothing); or None for what the
            command line takes: ``OTEVAL_DB``, or ``oteval.duckdb``.

    Raises:
        StoreError: It cannot be opened.
    """
    if isinstance(store, Store):
        yield store
        return
    with Store(store if store is not None else os.environ.get("OTEVAL_DB", DEFAULT_DB)) as own:
        yield own


def begun(store: Store, described: Experiment, prefix: str, resume: bool) -> Experiment:
    """Return the experiment to go on with, or a new one, kept.

    Raises:
        ConfigError: The name is taken, or the one to go on with is of other data.
    """
    wanted = described.name
    found = None
    if wanted:
        found = store.experiments.find(wanted)
    elif resume:
        found = store.experiments.newest(prefix)
    if found is not None and not resume:
        raise ConfigError(
            f"experiment {wanted!r} is there already; go on with it (resume), or name another"
        )
    if found is not None:
        same = (found.kind, found.dataset_version, found.compared)
        if same != (described.kind, described.dataset_version, described.compared):
            raise ConfigError(
                f"experiment {found.name!r} cannot be resumed: it is of other data "
                f"({found.dataset}@{found.dataset_version})"
            )
        return found
    fresh = replace(described, name=wanted or f"{prefix}-{described.id[:8]}", prefix=prefix)
    store.experiments.add(fresh)
    return fresh


class Writer:
    """Writes what is done a moment later, so that little is lost however the process ends."""

    def __init__(self, store: Store, experiment_id: str) -> None:
        self._store, self._experiment_id = store, experiment_id
        self._runs: list[Run] = []
        self._feedback: list[Feedback] = []
        self._votes: list[Vote] = []

    def add(
        self,
        run: Run | None = None,
        feedback: list[Feedback] | None = None,
        votes: list[Vote] | None = None,
    ) -> None:
        """Take note of what is done."""
        if run is not None:
            self._runs.append(run)
        self._feedback += feedback or []
        self._votes += votes or []

    def flush(self) -> None:
        """Write what has been noted."""
        runs, feedback, votes = self._runs, self._feedback, self._votes
        self._runs, self._feedback, self._votes = [], [], []
        self._store.experiments.write(self._experiment_id, runs, feedback, votes)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write every half a second, and at the end, whatever ends it."""

        async def tick() -> None:
            while True:
                await asyncio.sleep(_SECONDS)
                self.flush()

        ticker = asyncio.create_task(tick())
        try:
            yield
        finally:
            ticker.cancel()
            try:
                with suppress(asyncio.CancelledError):
                    await ticker
            finally:
                self.flush()
