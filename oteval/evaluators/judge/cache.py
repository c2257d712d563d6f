"""Answers kept by the whole request, so that the same question is not paid for twice.

The key covers the server, the model, the messages, the schema, the request's settings and the
number of the sample, and neither the nonce of the data's delimiters nor the rung that worked. Only
answers that were verdicts are given again; failed calls are recorded for what they cost.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ...jsontext import canonical

__all__ = ["AnswerCache", "JudgeCall", "MemoryCache", "key_of"]


@dataclass(frozen=True)
class JudgeCall:
    """A question to a judge, and what came of it.

    Attributes:
        key: The hash of the whole request.
        model: The model asked for.
        base_url: The server's address, or what stands for it.
        answer: The answer's JSON value; None where there was none.
        error: Why there was none, or "".
        rung: How the answer was asked for.
        raw: What the model wrote.
        requests: How many requests it took.
        input_tokens: Tokens read, by all of them.
        output_tokens: Tokens written.
        cached_tokens: Tokens read from the provider's cache.
        cost: US dollars; None where the model has no price.
        latency: Seconds.
        time_ns: When the answer was there.
        answered_by: The model that said it answered.
        cost_is_estimate: Whether the server left out counts that the cost rests on.
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
    """Where answers are kept. Both methods may be called from several threads at once."""

    def get(self, key: str) -> JudgeCall | None:
        """Return the call of a key that was answered, or None."""
        ...

    def put(self, call: JudgeCall) -> None:
        """Keep a call, answered or not."""
        ...


class MemoryCache:
    """Answers kept for as long as this object is.

    Attributes:
        size: How many answers are kept; the ones not used for longest go first.
    """

    def __init__(self, size: int = 10_000) -> None:
        self.size = size
        self._calls: OrderedDict[str, JudgeCall] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many answers there are."""
        return len(self._calls)

    def get(self, key: str) -> JudgeCall | None:
        """Return the call of a key that was answered, or None."""
        with self._lock:
            found = self._calls.get(key)
            if found is not None:
                self._calls.move_to_end(key)
            return found

    def put(self, call: JudgeCall) -> None:
        """Keep a call that was answered."""
        if call.answer is None:
            return
        with self._lock:
            self._calls[call.key] = call
            while len(self._calls) > self.size:
                self._calls.popitem(last=False)


def key_of(request: Mapping[str, Any], nonce: str) -> str:
    """Return the key of a request: a hash of all of it but the nonce."""
    text = canonical(request)
    if nonce:
        text = text.replace(nonce, "0" * len(nonce))
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
