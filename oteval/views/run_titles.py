"""Readable names of runs: the agent, the case and the question."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from ..base.jsontext import escaped
from ..model import CASE_ATTRIBUTES, LONGEST_CASE, Trajectory, case_text, first_attribute
from .text import clean, one_line, shorten

__all__ = ["case_key", "question_line", "run_title", "unique"]

_LONGEST_IN_TITLE = 120


def question_line(trajectory: Trajectory) -> str:
    """The user's first message in a run on one line; "" if it was not captured."""
    question = trajectory.question
    return one_line((question.content or "")[:LONGEST_CASE]) if question else ""


def case_key(trajectory: Trajectory, keys: Sequence[str]) -> str:
    """The key that a run shares with the runs of the same case, and with no others.

    See `oteval.model.cases`.

    Args:
        trajectory: The run.
        keys: The attributes that name a case; the first one present counts.
    """
    text = case_text(trajectory, keys)
    if not text.startswith("\0"):
        return clean(text)
    # The line lacks the end of a long text and images, which also distinguish cases.
    digest = hashlib.blake2b(escaped(text).encode(), digest_size=4).hexdigest()
    return f"{question_line(trajectory)} #{digest}"


def run_title(trajectory: Trajectory) -> str:
    """A name for a run that stays the same when the run is repeated.

    It consists of the agent, the case and the question, as far as they are known. A run without a
    case and a question is named by its id.
    """
    case = first_attribute(trajectory, CASE_ATTRIBUTES)
    question = shorten(question_line(trajectory), _LONGEST_IN_TITLE)
    parts = [part for part in (trajectory.agent, case, question) if part]
    return one_line(" · ".join(parts if case or question else [*parts, trajectory.id]))


def unique(names: Iterable[str]) -> list[str]:
    """Return names with " #2" and so on appended where one is repeated."""
    counts: dict[str, int] = {}
    unique_names = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        unique_names.append(name if counts[name] == 1 else f"{name} #{counts[name]}")
    return unique_names
