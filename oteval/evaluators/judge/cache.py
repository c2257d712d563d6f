"""Cached answers, so that the same question is paid for once.

The key covers the server, the model, the messages, the schema, the options of the request and the
number of the sample. It excludes the random delimiters of the data and the output mode that worked.
Only verdicts are reused; failed calls are recorded for their cost.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from ...base.jsontext import canonical

__all__ = [
    "AnswerCache",
    "JudgeCall",
    "LinkedCalls",
    "MemoryCache",
    "PendingAnswers",
    "judging",
    "make_cache_key",
]

Answer = TypeVar("Answer")

# The id of the run that is being judged, which cached answers are linked to.
_EVALUATED_RUN: ContextVar[str] = ContextVar("oteval_evaluated_run", default="")


@dataclass(frozen=True)
class JudgeCall:
    """A question to a judge and its outcome.

    Attributes:
        key: The cache key.
        model: The requested model.
        base_url: The server's address, or a name for another kind of judge.
        answer: The answer as a JSON value; None if there is none.
        error: Why there is none, or "".
        rung: The output mode of the last request.
        raw: The text that the model wrote.
        requests: The number of requests sent.
        input_tokens: The sum over all requests.
        output_tokens: The sum over all requests.
        cached_tokens: Input tokens that the provider read from its cache.
        cost: US dollars; None if the model has no known price.
        latency: Seconds.
        time_ns: When the answer arrived.
        answered_by: The model's name as the server reports it.
        cost_is_estimate: Whether the cost rests on estimated token counts.
    """

    key: str
    model: str
    base_url: str = ""
    answer: Mapping[str, Any] | None = None
    error: str = ""
    rung: str = ""
    raw: str = ""
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = None
    latency: float = 0.0
    time_ns: int = 0
    answered_by: str = ""
    cost_is_estimate: bool = False


class AnswerCache(Protocol):
    """A store of answers. Both methods must be thread-safe."""

    def get(self, key: str) -> JudgeCall | None:
        """The call with a key if it was answered, or None."""
        ...

    def put(self, call: JudgeCall) -> None:
        """Store a call, answered or not."""
        ...


class MemoryCache:
    """A cache in memory that evicts the least recently used answers.

    Args:
        size: The maximum number of answers.
    """

    def __init__(self, size: int = 10_000) -> None:
        self.size = size
        self._calls: OrderedDict[str, JudgeCall] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._calls)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the answers known so far; the copy has its own after that."""
        with self._lock:
            return _cache_with, (self.size, tuple(self._calls.values()))

    def get(self, key: str) -> JudgeCall | None:
        """The call with a key, or None."""
        with self._lock:
            call = self._calls.get(key)
            if call is not None:
                self._calls.move_to_end(key)
            return call

    def put(self, call: JudgeCall) -> None:
        """Store a call if it was answered."""
        if call.answer is None:
            return
        with self._lock:
            self._calls[call.key] = call
            while len(self._calls) > self.size:
                self._calls.popitem(last=False)


def _cache_with(size: int, calls: Iterable[JudgeCall]) -> MemoryCache:
    cache = MemoryCache(size)
    for call in calls:
        cache.put(call)
    return cache


@contextmanager
def judging(run: str) -> Iterator[None]:
    """Link the answers of judges to a run, given its id or ""."""
    token = _EVALUATED_RUN.set(run)
    try:
        yield
    finally:
        _EVALUATED_RUN.reset(token)


class LinkedCalls:
    """A cache that links each call to the judged run, so that both are deleted together.

    Args:
        calls: The stored calls of language models.
    """

    def __init__(self, calls: Any) -> None:
        self._calls = calls

    def get(self, key: str) -> JudgeCall | None:
        """The answered call with a key, or None, and link it to the run."""
        if run := _EVALUATED_RUN.get():
            self._calls.link(key, run)
        call: JudgeCall | None = self._calls.get(key)
        return call

    def put(self, call: JudgeCall) -> None:
        """Store a call."""
        self._calls.put(call)


def make_cache_key(request: Mapping[str, Any], nonce: str) -> str:
    """A hash of a request, excluding the nonce of its delimiters."""
    text = canonical(request)
    if nonce:
        text = text.replace(nonce, "0" * len(nonce))
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


class PendingAnswers(Generic[Answer]):
    """Questions in flight by cache key, so that concurrent equal questions are asked once.

    It is shared by all threads and event loops.
    """

    def __init__(self) -> None:
        self._waiters: dict[str, list[Future[Answer | None]]] = {}
        self._lock = threading.Lock()

    def join(self, key: str) -> Future[Answer | None] | None:
        """A future of the answer, or None if the caller is the first and has to ask.

        Each caller gets its own future and can cancel it. The result is None if the caller that
        asked gave up.
        """
        with self._lock:
            if key not in self._waiters:
                self._waiters[key] = []
                return None
            waiter: Future[Answer | None] = Future()
            self._waiters[key].append(waiter)
            return waiter

    def finish(self, key: str, answer: Answer | None) -> None:
        """Pass an answer to all callers that wait for it; None makes them ask themselves."""
        with self._lock:
            waiters = self._waiters.pop(key, [])
        for waiter in waiters:
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(answer)
