"""A span processor that writes to a database file, for agents that run without a server.

    recorder = oteval.InProcess("runs.duckdb")
    provider.add_span_processor(recorder)
    logger_provider.add_log_record_processor(recorder.logs)   # where content is in log records
    ...
    recorder.score("oteval.yaml")

A thread writes the ended spans in batches, so that the agent does not wait for the disk. The agent
waits only when that thread is far behind, and for a few seconds at most. Spans that are lost then
are counted. The file belongs to this process alone. Processes that it forks record nothing.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from opentelemetry.sdk._logs import LogRecordProcessor
from opentelemetry.sdk.trace import SpanProcessor

from ..base.errors import StoreError
from ..ingest import log_record_of, span_of
from ..model import EVERYTHING, LogRecord, Score, Selection, Span, Trajectory
from ..scoring import Config, refresh
from ..store import Store
from .announced_scores import config_and_folder, score_and_announce

__all__ = ["InProcess"]

_LOG = logging.getLogger("oteval")
# As many rows as a row group of the store has.
_BATCH = 16_384
_PATIENCE = 5.0


class InProcess(SpanProcessor):
    """Records the spans of this process in a database.

    Attributes:
        logs: The log record processor that writes to the same database.
        dropped: The number of spans and log records that were lost.
        error: The error of the last batch; None when it was written.
    """

    def __init__(
        self,
        db: str | Path | Store = "oteval.duckdb",
        *,
        max_waiting: int = 65_536,
        interval: float = 0.5,
    ) -> None:
        """Open the database, and start recording.

        Args:
            db: The path of the database, or an open store, which must not be used elsewhere.
            max_waiting: The number of spans and log records that may wait to be written.
            interval: The seconds that they wait for more, to be written together.

        Raises:
            StoreError: The database cannot be used; the subclass is the reason.
        """
        self._store = db if isinstance(db, Store) else Store(db)
        self._owns_store = not isinstance(db, Store)
        try:
            with self._store.loading():
                pass  # a server that receives traces itself refuses it
        except StoreError:
            if self._owns_store:
                self._store.close()
            raise
        self._max_waiting, self._interval = max_waiting, interval
        self._waiting: list[Any] = []
        self._state = threading.Condition()
        self._using = threading.RLock()
        self._is_writing = self._is_urgent = self._is_closed = False
        self._pid = os.getpid()
        self.dropped = 0
        self.error: Exception | None = None
        self.logs = _LogRecorder(self)
        self._thread = threading.Thread(target=self._work, name="oteval-writer", daemon=True)
        self._thread.start()

    def on_end(self, span: Any) -> None:
        """Record an ended span."""
        self._take(span)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Write all spans and log records that are waiting.

        Args:
            timeout_millis: The time to wait for it (ms).

        Returns:
            Whether everything recorded so far is written.
        """
        if os.getpid() != self._pid:
            return False
        with self._state:
            self._is_urgent = True
            self._state.notify_all()
            is_done = self._state.wait_for(self._is_idle, timeout_millis / 1000)
        return is_done and self.error is None

    def shutdown(self) -> None:
        """Write everything that is waiting, and close the database; later spans are dropped."""
        if os.getpid() != self._pid:
            return
        with self._state:
            if self._is_closed:
                return
            self._is_closed = True
            self._state.notify_all()
        self._thread.join()
        if self._owns_store:
            with self._using:
                self._store.close()

    def trajectories(self, selection: Selection = EVERYTHING) -> list[Trajectory]:
        """The agent runs in the database, including runs recorded just now.

        Args:
            selection: The runs to return.
        """
        self.force_flush()  # not while this thread holds the store: the other thread needs it
        with self._using:
            self._refresh()
            return list(self._store.trajectories.read(selection))

    def score(
        self,
        config: str | Path | Config,
        base: str | Path | None = None,
        selection: Selection = EVERYTHING,
    ) -> list[Score]:
        """Score runs in the database with the evaluators of a configuration, and keep the scores.

        Args:
            config: A file as for `oteval score -c`, or the result of `load_config`.
            base: Base directory for paths in the configuration; by default the directory of the
                file, or the current directory.
            selection: The runs to score.

        Raises:
            ConfigError: The configuration is invalid.
        """
        rules, folder = config_and_folder(config, base)
        self.force_flush()
        with self._using:
            self._refresh()
            return score_and_announce(self._store, rules, folder, selection)

    def __enter__(self) -> InProcess:
        """The recorder."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write everything that is waiting, and close the database."""
        self.shutdown()

    def _refresh(self) -> None:
        with self._store.loading():
            refresh(self._store)

    def _is_idle(self) -> bool:
        return not self._waiting and not self._is_writing

    def _take(self, item: Any) -> None:
        if os.getpid() != self._pid:
            return
        with self._state:
            if len(self._waiting) >= self._max_waiting and self.error is None:
                self._state.wait_for(self._has_room, _PATIENCE)
            if self._is_closed or not self._has_room():
                self.dropped += 1
                return
            self._waiting.append(item)
            if len(self._waiting) in (1, _BATCH):
                self._state.notify_all()

    def _has_room(self) -> bool:
        return len(self._waiting) < self._max_waiting or self._is_closed

    def _work(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: self._waiting or self._is_closed)
                self._state.wait_for(self._is_due, self._interval)
                batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
                if not batch:
                    self._is_urgent = False
                    if self._is_closed:
                        return
                    continue
                self._is_writing = True
                self._state.notify_all()
            self._write(batch)
            with self._state:
                self._is_writing = False
                self._is_urgent = self._is_urgent and bool(self._waiting)
                self._state.notify_all()

    def _is_due(self) -> bool:
        return self._is_urgent or self._is_closed or len(self._waiting) >= _BATCH

    def _write(self, batch: list[Any]) -> None:
        spans: list[Span] = []
        logs: list[LogRecord] = []
        try:
            for item in batch:
                if isinstance(item, LogRecord):
                    logs.append(item)
                else:
                    spans.append(span_of(item))
            with self._using:
                self._write_rows(spans, logs)
        except Exception as error:  # the agent must not fail because of its spans
            if self.error is None:
                _LOG.warning("%s: spans cannot be written: %s", self._store.path, error)
            self.error = error
            self.dropped += len(batch)
        else:
            self.error = None

    def _write_rows(self, spans: list[Span], logs: list[LogRecord]) -> None:
        try:
            with self._store.loading():
                self._store.spans.write(spans, logs)
        except StoreError:
            if not (self._owns_store and self._store.is_served):
                raise
            # The pages that opened the database were closed: open the file instead.
            self._store.close()
            self._store = Store(self._store.path)
            with self._store.loading():
                self._store.spans.write(spans, logs)


class _LogRecorder(LogRecordProcessor):
    """Records log records for a recorder."""

    def __init__(self, recorder: InProcess) -> None:
        self._recorder = recorder

    def on_emit(self, log_record: Any) -> None:
        # Convert it now: its emitter may change the body later.
        self._recorder._take(log_record_of(log_record))

    def shutdown(self) -> None:
        """Write everything that is waiting; the recorder itself closes the database."""
        self._recorder.force_flush()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._recorder.force_flush(timeout_millis)
