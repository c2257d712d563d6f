"""Export the last spans when a process ends, however it ends, and keep exporting after a fork.

- At a normal exit, ``sys.exit`` and an uncaught exception, `atexit` runs.
- SIGTERM ends a process without `atexit`. Where the default action is in force, a handler exports
  first and then lets the default action happen, so that the exit status is the same. A handler of
  the agent is called as before. From then on, spans no longer wait for their export, because
  servers such as uvicorn kill themselves by the same signal once their requests are done.
- ``os._exit``, by which forks usually end, and ``os.exec*`` run nothing of Python: the functions
  are wrapped, and export first.
- A child of `multiprocessing` ends by ``os._exit`` too, after the finalizers of `multiprocessing`.
- A forked child starts anew: the parent exports the spans that it had queued.

SIGKILL, and an ``os._exit`` that was imported by name before, lose the spans that still wait, at
most the spans of the last half second.
"""

from __future__ import annotations

import atexit
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from .export_pipeline import SECTION, ExportPipeline
from .faults import guarded

if TYPE_CHECKING:
    from .wire.recording_worker import RecordingWorker

__all__ = ["renew_in_forks", "watch_process"]

# The other functions of the family of exec call these.
_ABRUPT_ENDS = ("_exit", "execv", "execve")


class _ProcessWatcher:
    """Flushes pipelines when the process ends, and renews them after a fork."""

    def __init__(self) -> None:
        self._pipelines: WeakSet[ExportPipeline] = WeakSet()
        self.workers: WeakSet[RecordingWorker] = WeakSet()
        # Of two threads that fork, the second waits for the first.
        self._fork_lock = threading.Lock()
        self._paused: tuple[RecordingWorker | ExportPipeline, ...] = ()
        self._mask: set[int] = set()
        self._is_watching = self._is_terminating = False
        self._previous: Callable[..., Any] | None = None

    def add(self, pipeline: ExportPipeline) -> None:
        self._pipelines.add(pipeline)
        self._handle_sigterm()
        self._finalize_children()
        if self._is_watching:
            return
        self._is_watching = True
        atexit.register(self._close)
        for name in _ABRUPT_ENDS:
            self._flush_before(name)
        os.register_at_fork(
            before=self._before_fork,
            after_in_parent=self._after_in_parent,
            after_in_child=self._after_in_child,
        )

    def flush(self) -> None:
        """Export everything that is queued; an unreachable destination is given up soon."""
        self._finish_responses()
        for pipeline in tuple(self._pipelines):
            pipeline.end()

    def _flush_before(self, name: str) -> None:
        """Export before a function of `os` that ends the program without `atexit`."""
        original = getattr(os, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def flushed(*args: Any, **options: Any) -> Any:
            with guarded("exporting at the end of the process"):
                self.flush()
            return original(*args, **options)

        setattr(os, name, flushed)

    def _finish_responses(self) -> None:
        for worker in tuple(self.workers):
            worker.finish_open()

    def _close(self) -> None:
        self._finish_responses()
        for pipeline in tuple(self._pipelines):
            pipeline.shutdown()

    def _handle_sigterm(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        current = signal.getsignal(signal.SIGTERM)
        if current == signal.SIG_DFL:
            self._previous = None
        elif callable(current) and current != self._on_sigterm:
            self._previous = current
        else:  # ignored, ours already, or not a handler of Python
            return
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, number: int, frame: Any) -> None:
        if self._previous is None:
            SECTION.run(self._terminate)
            return
        for pipeline in tuple(self._pipelines):
            pipeline.is_eager = True
        self._previous(number, frame)

    def _terminate(self) -> None:
        # A second SIGTERM does not wait for the export that the first one started.
        if not self._is_terminating:
            self._is_terminating = True
            self.flush()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _before_fork(self) -> None:
        # Python forgets signals that a child gets before it is set up; the kernel keeps blocked
        # signals.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        SECTION.__enter__()
        self._fork_lock.acquire()
        self._mask = mask
        # Workers first: their tasks may need the lock of a pipeline.
        self._paused = (*self.workers, *self._pipelines)
        for participant in self._paused:
            participant.before_fork()

    def _after_in_parent(self) -> None:
        for participant in self._paused:
            participant.after_fork_in_parent()
        self._paused = ()
        mask = self._mask
        self._fork_lock.release()
        SECTION.__exit__()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _after_in_child(self) -> None:
        self._fork_lock = threading.Lock()
        for participant in self._paused:
            participant.after_fork_in_child()
        self._paused = ()
        self._finalize_children()
        SECTION.leave_in_child()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _finalize_children(self) -> None:
        """Flush at the end of children of `multiprocessing`, which do not run `atexit`."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            # A child that starts forgets its parent's finalizers, then runs these functions.
            util.register_after_fork(self, _ProcessWatcher._finalize)
            self._finalize()

    def _finalize(self) -> None:
        util = sys.modules["multiprocessing.util"]
        util.Finalize(None, self.flush, exitpriority=0)


_WATCHER = _ProcessWatcher()


def watch_process(pipeline: ExportPipeline) -> None:
    """Flush a pipeline whenever this process, or a fork of it, ends."""
    _WATCHER.add(pipeline)


def renew_in_forks(worker: RecordingWorker) -> None:
    """Renew a worker in forks of this process, where a pipeline is watched."""
    _WATCHER.workers.add(worker)
