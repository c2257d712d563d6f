"""Storing experiments while they run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ...base.errors import ConfigError, StoreError
from ...model import Experiment, Feedback, LogRecord, Run, Span, Vote
from ...store import Store
from ..otlp_export import send_observed
from ..reconstruction import refresh
from ..trace_folder import client_of
from .observation import Observation

__all__ = ["ExperimentWriter", "StoreLike", "open_store", "start_experiment"]

StoreLike = Store | str | Path | None

DEFAULT_DB = "oteval.duckdb"
_FLUSH_SECONDS = 0.5


def _store_observed(store: Store, spans: Sequence[Span], logs: Sequence[LogRecord]) -> None:
    """Store the spans of a target's runs, or send them to the server that has the database open.

    Raises:
        StoreError: They cannot be stored.
    """
    if store.server is None or not store.is_filled:
        with store.loading():
            store.spans.write(spans, logs)
            refresh(store)
        return
    client = client_of(store.server)
    try:
        report = send_observed(client, spans, logs)
    finally:
        client.close()
    if report.failed:
        raise StoreError(f"{client.url}: takes no spans of the target: {'; '.join(report.reasons)}")


@contextmanager
def open_store(store: StoreLike) -> Iterator[Store]:
    """Open a store, and close it unless it was open before.

    Args:
        store: An open store; a path (``":memory:"`` keeps nothing); or None for the path in
            ``OTEVAL_DB``, or else ``oteval.duckdb``, as on the command line.

    Raises:
        StoreError: The store cannot be opened.
    """
    if isinstance(store, Store):
        yield store
        return
    with Store(store if store is not None else os.environ.get("OTEVAL_DB", DEFAULT_DB)) as own:
        yield own


def start_experiment(
    store: Store, experiment: Experiment, *, prefix: str, resume: bool
) -> Experiment:
    """Store a new experiment, or find the experiment to resume, and return it.

    Args:
        store: The store.
        experiment: The experiment to start. If it has no name, the prefix is used to make one.
        prefix: The beginning of the name.
        resume: Whether to resume the experiment with that name, or the newest with that prefix.

    Raises:
        ConfigError: The name is taken or cannot be stored, or the experiment to resume has other
            data.
    """
    existing = None
    for text in (experiment.name, prefix):
        _require_text(text)
    if experiment.name:
        existing = store.experiments.find(experiment.name)
    elif resume:
        existing = store.experiments.newest(prefix)
    if existing is not None and not resume:
        raise ConfigError(
            f"experiment {experiment.name!r} exists already; resume it, or choose another name"
        )
    if existing is not None:
        same = (existing.kind, existing.dataset_version, existing.compared)
        if same != (experiment.kind, experiment.dataset_version, experiment.compared):
            raise ConfigError(
                f"experiment {existing.name!r} cannot be resumed: it ran on other data "
                f"({existing.dataset}@{existing.dataset_version})"
            )
        return existing
    name = experiment.name or f"{prefix}-{experiment.id[:8]}"
    started = replace(experiment, name=name, prefix=prefix)
    store.experiments.add(started)
    return started


def _require_text(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"experiment {name!r}: {error.object[error.start]!r} is half of a character; "
            "choose another name"
        ) from None


class ExperimentWriter:
    """Writes finished runs, feedback and votes in batches."""

    def __init__(self, store: Store, experiment_id: str) -> None:
        self._store, self._experiment_id = store, experiment_id
        self._runs: list[Run] = []
        self._feedback: list[Feedback] = []
        self._votes: list[Vote] = []
        self._spans: list[Span] = []
        self._logs: list[LogRecord] = []

    def add_observed(self, observation: Observation) -> None:
        """Add the spans and log records of a run to the next batch."""
        self._spans += observation.spans
        self._logs += observation.logs

    def add(
        self,
        run: Run | None = None,
        feedback: list[Feedback] | None = None,
        votes: list[Vote] | None = None,
    ) -> None:
        """Add records to the next batch."""
        if run is not None:
            self._runs.append(run)
        self._feedback += feedback or []
        self._votes += votes or []

    def flush(self) -> None:
        """Write the batch."""
        runs, feedback, votes = self._runs, self._feedback, self._votes
        self._runs, self._feedback, self._votes = [], [], []
        spans, logs, self._spans, self._logs = self._spans, self._logs, [], []
        if spans or logs:
            _store_observed(self._store, spans, logs)
        self._store.experiments.write(self._experiment_id, runs, feedback, votes)

    @asynccontextmanager
    async def flushing(self) -> AsyncIterator[None]:
        """Write a batch every half second, and the last one on exit, even after an error."""

        async def flush_regularly() -> None:
            while True:
                await asyncio.sleep(_FLUSH_SECONDS)
                self.flush()

        flusher = asyncio.create_task(flush_regularly())
        try:
            yield
        finally:
            flusher.cancel()
            try:
                with suppress(asyncio.CancelledError):
                    await flusher
            finally:
                self.flush()
