"""Estimate the tokens of requests and answers that no server has counted.

A budget has to know what a request costs before it is made, and some servers never say what it
took. The estimates err towards more: prompts start from a count of characters, answers from
`LIKELY_ANSWER`, and both learn from the largest counts that the server reports.
"""

from __future__ import annotations

import string
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from ...jsontext import dumps
from .ladder import Reply, Request

__all__ = ["LIKELY_ANSWER", "Estimator", "text_tokens"]

LIKELY_ANSWER = 500
"""Tokens of an answer, before the first one is known."""

# What providers count for an image at most; its base64 text is thirty times as long.
_IMAGE = 2000
# By which factors text can have fewer and more tokens than its characters suggest. Beyond the
# latter, a server adds tokens of its own to every prompt.
_LEAST, _MOST = 0.5, 4.0
_WORDS = (string.ascii_letters + " ").encode()
_ASCII = bytes(range(128))


def text_tokens(text: str) -> int:
    """Return about how many tokens a text has.

    Letters of English words count a quarter each, digits and punctuation a half, and characters
    beyond ASCII one, which is above the averages of common tokenizers.
    """
    data = text.encode("utf-8", "replace")
    rest = data.translate(None, _WORDS)
    beyond = rest.translate(None, _ASCII)
    letters, marks = len(data) - len(rest), len(rest) - len(beyond)
    others = len(text) - letters - marks
    return ceil(letters / 4 + marks / 2 + others)


@dataclass
class Estimator:
    """What the requests and answers of one judge are expected to take.

    Attributes:
        answer_limit: The request's own limit on tokens of the answer, or None.
        has_learned: Whether a reply has come, so that estimates rest on more than characters.
    """

    answer_limit: int | None = None
    has_learned: bool = False
    _ratio: float = field(default=1.0, repr=False)
    _is_counted: bool = field(default=False, repr=False)
    _overhead: float = field(default=0.0, repr=False)
    _longest: int = field(default=0, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def prompt(self, request: Request) -> int:
        """Return how many tokens a request's prompt probably has."""
        return self._scaled(_prompt_tokens(request))

    def answer(self) -> int:
        """Return how many tokens the next answer probably has."""
        likely = self._longest or LIKELY_ANSWER
        return likely if self.answer_limit is None else min(likely, self.answer_limit)

    def counted(self, request: Request, reply: Reply) -> tuple[int, int]:
        """Return the tokens read and written: the server's counts, or else estimates.

        Args:
            request: The request.
            reply: The reply to it; what it counts is learned from.
        """
        read, written = reply.input_tokens, reply.output_tokens
        likely = _prompt_tokens(request)
        with self._lock:
            if read:
                ratio = min(max(read / likely, _LEAST), _MOST)
                self._ratio = max(self._ratio, ratio) if self._is_counted else ratio
                self._is_counted = True
                self._overhead = max(self._overhead, read - likely * self._ratio)
            read = read or self._scaled(likely)
            written = written or text_tokens(_written(reply))
            self._longest = max(self._longest, written)
            self.has_learned = True
        return read, written

    def _scaled(self, tokens: int) -> int:
        return ceil(tokens * self._ratio + self._overhead)


def _written(reply: Reply) -> str:
    return reply.text or (dumps(reply.value) if reply.value is not None else "")


def _prompt_tokens(request: Request) -> int:
    shown = sum(_content_tokens(message) for message in request.messages)
    asked = (
        text_tokens(dumps(request.schema.json)) if request.rung in ("json_schema", "tool") else 0
    )
    return shown + asked + 1


def _content_tokens(message: dict[str, Any]) -> int:
    content = message.get("content")
    if not isinstance(content, Sequence) or isinstance(content, str):
        return text_tokens(dumps(message))
    return sum(_IMAGE if _is_image(part) else text_tokens(dumps(part)) for part in content)


def _is_image(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in ("image_url", "image", "input_image")
