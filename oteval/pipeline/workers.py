"""Jobs done by several threads at once, their results in the order in which they are there."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import partial
from typing import Generic, TypeVar

__all__ = ["Workers"]

Result = TypeVar("Result")


class Workers(Generic[Result]):
    """Threads that do jobs; no more jobs are under way than there are threads.

    The threads are daemons: a job that hangs keeps neither Ctrl-C nor the process' end waiting.

    Attributes:
        count: How many threads there may be.
        busy: How many jobs are under way or done and not yet collected.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.busy = 0
        self._threads = 0
        self._jobs: queue.SimpleQueue[Callable[[], Result] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = (
            queue.SimpleQueue()
        )

    def do(self, job: Callable[[], Result]) -> Iterator[Result]:
        """Start a job, and yield results that are there; wait for one where all are busy.

        The job runs in the caller's context.
        """
        while self.busy >= self.count:
            yield self._next(wait=True)
        if self._threads <= self.busy:
            threading.Thread(target=self._work, daemon=True).start()
            self._threads += 1
        self.busy += 1
        self._jobs.put(partial(copy_context().run, job))
        yield from self.finished()

    def finished(self) -> Iterator[Result]:
        """Yield the results that are there."""
        while self.busy and not self._done.empty():
            yield self._next(wait=False)

    def rest(self) -> Iterator[Result]:
        """Wait for all jobs, and yield their results."""
        while self.busy:
            yield self._next(wait=True)

    def stop(self) -> None:
        """Let the threads end once they have done the job they are at."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _next(self, *, wait: bool) -> Result:
        result, error = self._done.get(block=wait)
        self.busy -= 1
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # only a failed job has none

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._done.put((job(), None))
            except BaseException as error:
                self._done.put((None, error))
