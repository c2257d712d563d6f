"""The queue between the agent and the export: bounded, and drained by one thread.

The agent's threads only append to the queue. A span that does not fit is dropped and counted: the
agent never waits. The queue is bounded in bytes as well as in items, because a span of an agent may
have a whole conversation.

A signal's handler runs in the main thread, between any two of its steps. If the main thread has a
lock just then, a handler that needs the lock would wait forever. `SECTION` marks the short sections
where the main thread has locks, and a handler defers itself to the end of the section. A forked
child is in such a section until it has renewed its locks: threads of the parent that the child does
not have may have held them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from .wire.recording_worker import RecordingWorker

__all__ = [
    "SECTION",
    "BatchExporter",
    "CriticalSection",
    "ExportFailed",
    "ExportPipeline",
    "ExportStats",
    "Exportable",
]


class CriticalSection:
    """Counts the sections that the main thread is in. Other threads are not interrupted."""

    def __init__(self) -> None:
        self._depth = 0
        self._main = threading.main_thread().ident
        self._pid = os.getpid()
        self._deferred: tuple[int, Callable[[], None]] | None = None

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            self._depth += 1

    def __exit__(self, *error: object) -> None:
        if threading.get_ident() == self._main:
            self._depth -= 1
            if not self._depth:
                self._run_deferred()

    def run(self, action: Callable[[], None]) -> None:
        """Call a function of a signal's handler: now, or at the end of the current section."""
        pid = os.getpid()
        if self._depth or pid != self._pid:
            self._deferred = pid, action
        else:
            action()

    def leave_in_child(self) -> None:
        """Leave all sections in a forked child, whose only thread is the forking one."""
        self._depth = 0
        self._main = threading.get_ident()
        self._pid = os.getpid()
        self._run_deferred()

    def _run_deferred(self) -> None:
        deferred, self._deferred = self._deferred, None
        # A signal of the parent is not a signal of its child.
        if deferred is not None and deferred[0] == self._pid:
            deferred[1]()


SECTION = CriticalSection()


_LOG = logging.getLogger("oteval")

MAX_ITEMS = 65_536
MAX_BYTES = 64 * 2**20
# Half of the message size that gRPC servers accept by default, because encoding adds to it.
_BATCH_BYTES = 2 * 2**20
_BATCH_ITEMS = 512
_INTERVAL = 0.5
# While the process ends, a destination in trouble gets this much time: one retry.
_PATIENCE_IN_TROUBLE = 1.5
_POLL = 0.05


class Exportable(NamedTuple):
    """An ended span or a log record on its way to the export.

    Attributes:
        item: The SDK's object.
        is_log: Whether it is a log record.
        size: Its estimated size in memory (bytes).
    """

    item: Any
    is_log: bool
    size: int


@dataclass(frozen=True)
class ExportStats:
    """Counts of spans and log records.

    Attributes:
        exported: The number that the destination accepted.
        dropped: The number lost because the queue was full, or because the process ended.
        failed: The number lost because the destination, or a redaction rule, refused them.
        waiting: The number in the queue.
        error: The error of the last failed export, "" if none failed.
        unknown: The number sent without an answer in time: the destination may have them.
        untaken_logs: The number of log records that the destination does not take at all.
    """

    exported: int = 0
    dropped: int = 0
    failed: int = 0
    waiting: int = 0
    error: str = ""
    unknown: int = 0
    untaken_logs: int = 0

    @property
    def lost(self) -> int:
        """The number of spans and log records that are not, and will not be, exported."""
        return self.dropped + self.failed


class ExportFailed(Exception):
    """A batch, or a part of it, was not exported.

    Attributes:
        count: The number of spans and log records that are lost; None for the whole batch.
        unknown: The number of spans and log records that may have arrived.
        untaken_logs: The number of log records that the destination does not take.
    """

    def __init__(
        self, reason: str, count: int | None = None, *, unknown: int = 0, untaken_logs: int = 0
    ) -> None:
        super().__init__(reason)
        self.count, self.unknown, self.untaken_logs = count, unknown, untaken_logs


class BatchExporter(Protocol):
    """Sends batches to a destination. Only the pipeline's thread calls `export`."""

    @property
    def trouble(self) -> str:
        """Why the last attempt failed, "" if it did not."""

    def export(self, batch: list[Exportable]) -> None:
        """Send a batch.

        Raises:
            ExportFailed: It was not exported, or not all of it.
        """

    def close(self) -> None:
        """Release the destination; an export that is under way in another thread is aborted."""

    def after_fork(self) -> None:
        """Become usable in a forked child, without disturbing the parent."""


class ExportPipeline:
    """Queues spans and log records, and exports them in batches in a thread.

    Attributes:
        source: Emits log records later than the code that they are about runs; None if nothing
            does.
        is_eager: Whether the process is about to be killed, so that nothing may wait in the queue.
    """

    def __init__(
        self,
        exporter: BatchExporter,
        name: str,
        *,
        max_bytes: int = MAX_BYTES,
        max_items: int = MAX_ITEMS,
        interval: float = _INTERVAL,
        exit_timeout: float = 5.0,
    ) -> None:
        """Set the destination; the thread starts with the first span.

        Args:
            exporter: The destination.
            name: The destination's name in messages.
            max_bytes: The bytes that may wait in the queue.
            max_items: The spans and log records that may wait in the queue.
            interval: The most seconds that a span waits for others.
            exit_timeout: The seconds that the end of the process waits for the export.
        """
        self._exporter = exporter
        self._name = name
        self._max_bytes, self._max_items, self._interval = max_bytes, max_items, interval
        self._exit_timeout = exit_timeout
        self._exported = self._dropped = self._failed = 0
        self._unknown = self._untaken_logs = 0
        self._error = ""
        self._reported = (0, 0, 0)
        self._has_warned_full = self._has_warned_failed = False
        self.source: RecordingWorker | None = None
        self.is_eager = False
        self._reset()

    def _reset(self) -> None:
        # Reentrant: the garbage collector may run at any step, and end spans of abandoned
        # generators or exchanges of abandoned responses while this thread has the lock.
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._queue: deque[Exportable] = deque()
        self._bytes = self._in_flight = 0
        self._waiters: list[Any] = []
        self._is_urgent = self._is_closed = False
        self._thread: threading.Thread | None = None

    @property
    def is_closed(self) -> bool:
        """Whether it was shut down, by its owner or with a provider of the agent."""
        return self._is_closed

    @property
    def stats(self) -> ExportStats:
        """The counts up to now."""
        with SECTION, self._lock:
            waiting = len(self._queue) + self._in_flight
            counts = (self._exported, self._dropped, self._failed, waiting)
            more = (self._unknown, self._untaken_logs)
            return ExportStats(*counts, self._error, *more)

    def add(self, item: Exportable) -> None:
        """Queue a span or log record; it is dropped if the queue is full."""
        with SECTION, self._lock:
            is_full = len(self._queue) >= self._max_items or (
                self._bytes + item.size > self._max_bytes and bool(self._queue)
            )
            if self._is_closed or is_full:
                self._dropped += 1
                is_first = not self._has_warned_full and not self._is_closed
                self._has_warned_full = self._has_warned_full or is_first
            else:
                is_first = False
                self._queue.append(item)
                self._bytes += item.size
                self._start()
                if len(self._queue) in (1, _BATCH_ITEMS) or self._is_due():
                    self._wake.notify()
        if is_first:
            _LOG.warning(
                "%s: spans end faster than they can be exported; some are dropped", self._name
            )

    def flush(self, timeout: float, *, is_ending: bool = False) -> bool:
        """Export everything that is in the queue.

        Args:
            timeout: The seconds to wait for it.
            is_ending: Whether the process ends, so that a destination that cannot be reached is
                given up sooner.

        Returns:
            Whether the queue was emptied. Failed exports are counted in `stats`.
        """
        if self.source is None:
            return self._flush(timeout, is_ending=is_ending)
        started = time.monotonic()
        is_fed = self.source.flush(timeout)
        left = max(0.0, timeout - (time.monotonic() - started))
        return self._flush(left, is_ending=is_ending) and is_fed

    def _flush(self, timeout: float, *, is_ending: bool) -> bool:
        done = threading.Lock()
        done.acquire()
        with SECTION, self._lock:
            if not self._queue and not self._in_flight:
                return True
            self._waiters.append(done)
            self._is_urgent = True
            self._start()
            self._wake.notify()
            has_thread = self._thread is not None
        if not has_thread:
            self._drain(time.monotonic() + timeout)
            return not self._queue
        # Outside the section, so that a signal's handler may run and flush meanwhile.
        started = time.monotonic()
        while not done.acquire(timeout=_POLL if is_ending else max(timeout, 0)):
            waited = time.monotonic() - started
            in_trouble = is_ending and self._exporter.trouble
            if waited >= (min(timeout, _PATIENCE_IN_TROUBLE) if in_trouble else timeout):
                return False
        return True

    def end(self) -> bool:
        """Export as much of the queue as the end of the process may wait for."""
        # One message for all: how many were lost, and why.
        self._has_warned_failed = True
        is_done = self.flush(self._exit_timeout, is_ending=True)
        self._report(is_done=is_done)
        return is_done

    def _report(self, *, is_done: bool) -> None:
        """Log the counts of lost items, unanswered items, and log records that are not taken."""
        with SECTION, self._lock:
            stats, sent = self.stats, self._in_flight
        # Without trouble, the batch under way was sent, and waits for its answer.
        unanswered = 0 if self._exporter.trouble else sent
        lost, unknown = stats.lost + stats.waiting - unanswered, stats.unknown + unanswered
        counts = (lost, unknown, stats.untaken_logs)
        if counts == self._reported:
            return
        self._reported = counts
        late = "" if is_done else f"the export took longer than {self._exit_timeout:g} s"
        error = stats.error or self._exporter.trouble or late
        reason = f": {error}" if error else ""
        total = lost + unknown + stats.exported
        if lost:
            _LOG.warning("%s: %d of %d spans and logs were lost%s", self._name, lost, total, reason)
        if unknown:
            _LOG.warning(
                "%s: %d of %d spans and logs may or may not have arrived: no answer in time",
                self._name, unknown, total,
            )  # fmt: skip
        if stats.untaken_logs:
            _LOG.warning(
                "%s takes no logs: %d log records, with the recorded exchanges, were not stored "
                "there; its spans are complete without them",
                self._name, stats.untaken_logs,
            )  # fmt: skip

    def shutdown(self) -> bool:
        """Export everything in the queue, then close the destination; later spans are dropped.

        Returns:
            Whether everything left the queue in time.
        """
        with SECTION, self._lock:
            if self._is_closed:
                return True
        is_done = self.end()
        with SECTION, self._lock:
            self._is_closed = True
            self._dropped += len(self._queue)
            self._queue.clear()
            self._bytes = 0
            self._wake.notify()
        self._exporter.close()
        return is_done

    def before_fork(self) -> None:
        """Lock the queue while the process forks."""
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Go on after a fork."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Start anew in a forked child; the parent exports the spans in the queue."""
        is_closed = self._is_closed
        self._reset()
        self._is_closed = is_closed
        self._exported = self._dropped = self._failed = 0
        self._unknown = self._untaken_logs = 0
        self._exporter.after_fork()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="oteval-export", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the interpreter is shutting down
                self._thread = None

    def _drain(self, deadline: float) -> None:
        """Export in this thread: at the very end of a process, no thread can be started."""
        while self._queue and time.monotonic() < deadline:
            with SECTION, self._lock:
                batch = self._take()
            self._export(batch)

    def _is_due(self) -> bool:
        return (
            self._is_urgent
            or self._is_closed
            or self.is_eager
            or len(self._queue) >= _BATCH_ITEMS
            or self._bytes >= _BATCH_BYTES
        )

    def _work(self) -> None:
        _suppress_instrumentation()
        while True:
            with self._lock:
                self._in_flight = 0
                self._release_waiters()
                self._wake.wait_for(lambda: self._queue or self._is_closed)
                self._wake.wait_for(self._is_due, self._interval)
                if self._is_closed:
                    return
                batch = self._take()
                self._in_flight = len(batch)
            self._export(batch)

    def _take(self) -> list[Exportable]:
        batch: list[Exportable] = []
        size = 0
        while self._queue and len(batch) < _BATCH_ITEMS:
            if batch and size + self._queue[0].size > _BATCH_BYTES:
                break
            batch.append(self._queue.popleft())
            size += batch[-1].size
        self._bytes -= size
        return batch

    def _release_waiters(self) -> None:
        if not self._queue:
            self._is_urgent = False
            for done in self._waiters:
                done.release()
            self._waiters.clear()

    def _export(self, batch: list[Exportable]) -> None:
        failed, unknown, untaken_logs, error = 0, 0, 0, ""
        try:
            self._exporter.export(batch)
        except ExportFailed as reason:
            failed = len(batch) if reason.count is None else reason.count
            unknown, untaken_logs = reason.unknown, reason.untaken_logs
            error = str(reason) if failed else ""
        except Exception as reason:  # the agent must not fail because of its spans
            failed, error = len(batch), f"{type(reason).__name__}: {reason}"
        with self._lock:
            self._exported += len(batch) - failed - unknown - untaken_logs
            self._failed += failed
            self._unknown += unknown
            self._untaken_logs += untaken_logs
            self._error = error or self._error
            is_first = bool(error) and not self._has_warned_failed
            self._has_warned_failed = self._has_warned_failed or is_first
            self._in_flight = 0
        if is_first:
            _LOG.warning(
                "%s: spans cannot be exported: %s (further failures are only counted)",
                self._name,
                error,
            )


def _suppress_instrumentation() -> None:
    """Keep instrumentations of HTTP clients from tracing the exports of this thread."""
    from opentelemetry import context

    name = "suppress_instrumentation"
    key = getattr(context, "_SUPPRESS_INSTRUMENTATION_KEY", name)
    context.attach(context.set_value(key, True, context.set_value(name, True)))
