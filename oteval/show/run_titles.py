"""Readable names of runs: the agent, the case and the question."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model import Trajectory
from .text import one_line, shorten

__all__ = ["CASE_ATTRIBUTES", "first_attribute", "question_line", "run_title", "unique"]

# Attributes that name a run's case; the first one present counts.
CASE_ATTRIBUTES = ("test.case.id", "case_name", "example.id")
_LONGEST = 2000
_LONGEST_IN_TITLE = 120


def first_attribute(trajectory: Trajectory, keys: Sequence[str]) -> str:
    """Return the first of some attributes that a run has, as text; "" if it has none."""
    found = (trajectory.attributes.get(key) for key in keys)
    return next((str(value) for value in found if value not in (None, "")), "")


def question_line(trajectory: Trajectory) -> str:
    """Return the user's first message in a run on one line; "" if it was not captured."""
    own = trajectory.own_messages
    found = next((m.content for m in own if m.role == "user" and m.content), "")
    return one_line(found[:_LONGEST])


def run_title(trajectory: Trajectory) -> str:
    """Return a name for a run that stays the same when the run is repeated.

    It consists of the agent, the case and the question, as far as they are known; a run of which
    neither case nor question is known is named by its id.
    """
    case = first_attribute(trajectory, CASE_ATTRIBUTES)
    question = shorten(question_line(trajectory), _LONGEST_IN_TITLE)
    known = [part for part in (trajectory.agent, case, question) if part]
    return one_line(" · ".join(known if case or question else [*known, trajectory.id]))


def unique(names: Iterable[str]) -> list[str]:
    """Return names with " #2" and so on appended where one is repeated."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return found
