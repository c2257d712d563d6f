"""The cost of language model calls: estimates of tokens, and a budget for the costs.

A budget must know the cost of a request before sending it, and some servers never report token
counts. `TokenEstimator` fills both gaps, and errs towards more tokens.
"""

from __future__ import annotations

import math
import string
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import BudgetSpent, ConfigError
from ...base.jsontext import dumps
from .output_modes import CompletionRequest, ModelReply

__all__ = [
    "DEFAULT_ANSWER_TOKENS",
    "CostBudget",
    "TokenEstimator",
    "estimate_tokens",
]


@dataclass
class CostBudget:
    """A limit on costs that also covers concurrent requests. All methods are thread-safe.

    Each request reserves its estimated cost before it is sent. The real cost replaces the
    reservation when the reply arrives, so that only errors of the estimates can exceed the limit.

    Attributes:
        limit: The limit in US dollars.
        name: The name of the setting, for messages.
        spent: The cost of completed requests.
        reserved: The estimated cost of requests in flight.
    """

    limit: float
    name: str = "max_cost"
    spent: float = 0.0
    reserved: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be pickled: each copy would spend the whole budget.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            f"a judge with {self.name} cannot be pickled, because each copy would spend the whole "
            "budget; create the judge in each process, with a share of it"
        )

    def reserve(self, estimate: float) -> float:
        """Reserve the estimated cost of a request, in US dollars, and return it.

        Raises:
            BudgetSpent: The rest of the budget is smaller.
        """
        with self._lock:
            if self.spent >= self.limit > 0 or not self._fits(estimate):
                reserved = f", ${self.reserved:.4f} reserved" if self.reserved else ""
                raise BudgetSpent(
                    f"budget: {self.name} of ${self.limit:g} is spent (${self.spent:.4f} so far"
                    f"{reserved}); this request may cost ${estimate:.4f}"
                )
            self.reserved += estimate
            return estimate

    def settle(self, reserved: float, cost: float) -> None:
        """Replace a reservation with the real cost; a cost of 0 releases it."""
        with self._lock:
            self.reserved = max(self.reserved - reserved, 0.0)
            self.spent += cost

    def _fits(self, estimate: float) -> bool:
        total = math.fsum((self.spent, self.reserved, estimate))
        return total <= self.limit or math.isclose(total, self.limit, rel_tol=1e-9)


DEFAULT_ANSWER_TOKENS = 500
"""Estimated tokens of an answer before the first reply arrives."""

# The most tokens that providers count for an image; its base64 text is thirty times as long.
_IMAGE_TOKENS = 2000
# Bounds of the ratio between counted and estimated tokens. A server above the upper bound adds
# hidden tokens to every prompt.
_MIN_RATIO, _MAX_RATIO = 0.5, 4.0
_LETTERS = (string.ascii_letters + " ").encode()
_ASCII = bytes(range(128))


def estimate_tokens(text: str) -> int:
    """An estimate of a text's tokens, above the average of common tokenizers.

    ASCII letters and spaces count a quarter each, digits and punctuation a half, and all other
    characters one.
    """
    data = text.encode("utf-8", "replace")
    without_letters = data.translate(None, _LETTERS)
    non_ascii = without_letters.translate(None, _ASCII)
    letters = len(data) - len(without_letters)
    punctuation = len(without_letters) - len(non_ascii)
    other_count = len(text) - letters - punctuation
    return math.ceil(letters / 4 + punctuation / 2 + other_count)


@dataclass
class TokenEstimator:
    """Estimates the tokens of requests to one judge, and learns from the counts of its replies.

    Attributes:
        answer_limit: The limit on answer tokens that requests set, or None.
        has_learned: Whether at least one reply has arrived.
    """

    answer_limit: int | None = None
    has_learned: bool = False
    _ratio: float = field(default=1.0, repr=False)
    _is_ratio_known: bool = field(default=False, repr=False)
    _overhead: float = field(default=0.0, repr=False)
    _longest_answer: int = field(default=0, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def prompt_tokens(self, request: CompletionRequest) -> int:
        """The estimated input tokens of a request."""
        return self._scaled(_prompt_tokens(request))

    def answer_tokens(self) -> int:
        """The estimated output tokens of the next answer."""
        expected = self._longest_answer or DEFAULT_ANSWER_TOKENS
        return expected if self.answer_limit is None else min(expected, self.answer_limit)

    def learn(self, request: CompletionRequest, completion: ModelReply) -> tuple[int, int]:
        """Learn from a reply, and return its input and output tokens.

        The server's counts are used if it reports them, and estimates otherwise.
        """
        input_tokens, output_tokens = completion.input_tokens, completion.output_tokens
        estimate = _prompt_tokens(request)
        with self._lock:
            if input_tokens:
                ratio = min(max(input_tokens / estimate, _MIN_RATIO), _MAX_RATIO)
                self._ratio = max(self._ratio, ratio) if self._is_ratio_known else ratio
                self._is_ratio_known = True
                self._overhead = max(self._overhead, input_tokens - estimate * self._ratio)
            input_tokens = input_tokens or self._scaled(estimate)
            output_tokens = output_tokens or estimate_tokens(_answer_text(completion))
            self._longest_answer = max(self._longest_answer, output_tokens)
            self.has_learned = True
        return input_tokens, output_tokens

    def _scaled(self, tokens: int) -> int:
        return math.ceil(tokens * self._ratio + self._overhead)


def _answer_text(completion: ModelReply) -> str:
    return completion.text or (dumps(completion.value) if completion.value is not None else "")


def _prompt_tokens(request: CompletionRequest) -> int:
    tokens = sum(_message_tokens(message) for message in request.messages)
    if request.mode in ("json_schema", "tool"):
        tokens += estimate_tokens(dumps(request.schema.json))
    return tokens + 1


def _message_tokens(message: dict[str, Any]) -> int:
    content = message.get("content")
    if not isinstance(content, Sequence) or isinstance(content, str):
        return estimate_tokens(dumps(message))
    return sum(
        _IMAGE_TOKENS if _is_image(part) else estimate_tokens(dumps(part)) for part in content
    )


def _is_image(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in ("image_url", "image", "input_image")
