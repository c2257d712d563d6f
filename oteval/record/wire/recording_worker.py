"""A thread that finishes the recording of HTTP exchanges, so that the agent does not wait for it.

Decoding, redacting and emitting an exchange takes milliseconds, or half a second for the largest
bodies. The agent's thread only queues the exchange. An emitted event is always redacted.

The bytes that wait are bounded. An exchange that does not fit is recorded without its bodies.

The worker also knows the responses that are being read. A response that the agent has dropped
without closing it is collected before a flush, and recorded as incomplete. At the end of the
process, all open responses are recorded as incomplete.
"""

from __future__ import annotations

import gc
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .open_exchange import OpenExchange

__all__ = ["MAX_WAITING", "RecordingWorker"]

MAX_WAITING = 64 << 20
"""The bytes of exchanges that may wait by default."""

_TASK_BYTES = 4_000  # of an exchange without bodies
_POLL = 0.05
# Exchanges are finished several at a time. Each hand-over of the interpreter between the agent's
# thread and the worker costs both of them; while the agent waits for a model, it costs nothing.
_DELAY = 0.1
_LARGE = 1 << 20  # bytes of an exchange that is finished at once
# Seconds between two collections of dropped responses, which take time in a large process.
_COLLECT_INTERVAL = 5.0


# A function that records an exchange, and its size; or the mark of a flush, which has no size.
_Task = tuple[Callable[[], None], int]


class RecordingWorker:
    """Runs tasks in order in one thread, which starts with the first task.

    Nothing here waits for a lock that another thread may have for long: tasks are also added by
    finalizers, and flushed by handlers of signals.
    """

    def __init__(self, max_bytes: int = MAX_WAITING) -> None:
        """Set the limit.

        Args:
            max_bytes: The bytes of bodies that may wait.
        """
        self._max_bytes = max_bytes
        self._collected = -_COLLECT_INTERVAL
        self._reset()

    def _reset(self) -> None:
        self._tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._busy = threading.Lock()
        # Counted separately, so that the worker needs no lock: a handler of a signal may have it.
        self._added = self._done = 0
        self._thread: threading.Thread | None = None
        # A queue, because an event has a lock that a handler of a signal may wait for in vain.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        # By identity; changed by single steps, because finalizers and handlers of signals do it.
        self._open: dict[int, OpenExchange] = {}

    def opened(self, exchange: OpenExchange) -> None:
        """Remember an exchange whose response is being read."""
        self._open[id(exchange)] = exchange

    def finished(self, exchange: OpenExchange) -> None:
        """Forget an exchange."""
        self._open.pop(id(exchange), None)

    def finish_open(self) -> None:
        """Record the responses that are still open, as incomplete: the process ends."""
        for response in tuple(self._open.values()):
            response.finish(is_complete=False)

    def _collect_dropped(self) -> None:
        """Let the garbage collector finish responses that the agent has dropped.

        A client and its response refer to each other, so they stay until it runs.
        """
        now = time.monotonic()
        if self._open and now - self._collected >= _COLLECT_INTERVAL:
            self._collected = now
            gc.collect()

    def has_room(self, size: int) -> bool:
        """Whether the bodies of an exchange may wait.

        Args:
            size: Their size (bytes).
        """
        waiting = self._added - self._done
        return not waiting or waiting + size + _TASK_BYTES <= self._max_bytes

    def add(self, run: Callable[[], None], size: int) -> bool:
        """Add a task.

        Args:
            run: The task; it does not raise.
            size: The bytes that it keeps in memory.

        Returns:
            Whether it was added. The queue also takes tasks without bodies up to twice its limit.
        """
        task_size = size + _TASK_BYTES
        with self._lock:
            if self._added - self._done > 2 * self._max_bytes:
                return False
            self._added += task_size
            self._tasks.put((run, task_size))
            if size > _LARGE:
                self._wake.put(None)
            has_thread = self._start()
        if not has_thread:
            self._drain()
        return True

    def flush(self, timeout: float) -> bool:
        """Wait until the tasks that were added before are done.

        Args:
            timeout: The seconds to wait.

        Returns:
            Whether they are done. True in the worker's thread itself.
        """
        self._collect_dropped()
        thread = self._thread
        if self._added == self._done or threading.current_thread() is thread:
            return True
        if thread is None or not thread.is_alive():
            self._drain()
            return True
        done = threading.Event()
        self._tasks.put((done.set, 0))
        self._wake.put(None)
        deadline = time.monotonic() + timeout
        while not done.wait(max(0.0, min(_POLL, deadline - time.monotonic()))):
            if time.monotonic() >= deadline or not thread.is_alive():
                return False
        return True

    def before_fork(self) -> None:
        """Wait for the running task, because it may have locks that a child could never get."""
        self._busy.acquire()

    def after_fork_in_parent(self) -> None:
        """Go on after a fork."""
        self._busy.release()

    def after_fork_in_child(self) -> None:
        """Start anew in a forked child; the parent records the exchanges that wait."""
        self._reset()

    def _start(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="oteval-recording", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is shutting down
                return False
            self._thread = thread
        return True

    def _work(self) -> None:
        tasks = self._tasks
        while True:
            task = tasks.get()
            with suppress(queue.Empty):
                self._wake.get(timeout=_DELAY)
            self._run(task)
            while not tasks.empty():
                self._run(tasks.get())

    def _drain(self) -> None:
        """Run the tasks in this thread: at the very end of a process, no thread can be started."""
        while True:
            try:
                task = self._tasks.get_nowait()
            except queue.Empty:
                return
            self._run(task)

    def _run(self, task: _Task) -> None:
        run, size = task
        with self._busy:
            try:
                run()
            finally:
                self._done += size
