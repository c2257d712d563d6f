"""Differences of requests, and the comparison of texts: a redacted part equals any text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from .normalization import suggest_normalization

__all__ = ["DifferenceKind", "RequestDifference", "shortened", "suggestion_for"]

DifferenceKind = Literal[
    "address", "header", "model", "prompt", "settings", "tool_call", "tool_result", "tool_schema"
]


@dataclass(frozen=True)
class RequestDifference:
    """A difference of two requests.

    Attributes:
        kind: The kind.
        summary: One line for people.
        path: The part that differs, such as ``messages[1].content`` or ``settings.temperature``.
        message: The index of the message that differs, or None.
        recorded: The recorded part: a `Message`, a text or plain JSON; None if there is none.
        actual: The actual part, likewise.
        suggestion: How to allow the difference, or "".
    """

    kind: DifferenceKind
    summary: str
    path: str
    message: int | None = None
    recorded: Any = None
    actual: Any = None
    suggestion: str = ""


def shortened(summary: str) -> str:
    """Shorten a summary to one line."""
    return summary if len(summary) <= 200 else f"{summary[:199]}…"


def suggestion_for(recorded: str | None, actual: str | None) -> str:
    """The option that allows the difference of two texts, or ""."""
    pattern = suggest_normalization(recorded or "", actual or "")
    return f"--normalize '{pattern}' allows this difference" if pattern else ""
