"""Equal questions that are asked at the same time: one is asked, the others wait for its answer."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["QuestionsUnderWay"]

Kind = TypeVar("Kind")


class QuestionsUnderWay(Generic[Kind]):
    """Which questions are under way, by key, in all threads and event loops."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Future[Kind | None]]] = {}
        self._lock = threading.Lock()

    def join(self, key: str) -> Future[Kind | None] | None:
        """Return what to wait for; None where the caller is the first and has to ask.

        Each caller waits for a future of its own, so that one may give up alone. Its result is
        None where whoever asked gave up.
        """
        with self._lock:
            if key not in self._waiting:
                self._waiting[key] = []
                return None
            waiter: Future[Kind | None] = Future()
            self._waiting[key].append(waiter)
            return waiter

    def done(self, key: str, answer: Kind | None) -> None:
        """Hand an answer to all who wait for it; None has them ask themselves."""
        with self._lock:
            waiting = self._waiting.pop(key, [])
        for waiter in waiting:
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(answer)
