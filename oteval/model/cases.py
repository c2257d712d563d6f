"""Cases: runs of the same case are compared with each other.

An attribute names the case of a run, else the question does. A run without either is a case of its
own: two runs with missing content are never the same case.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..jsontext import dumps
from .trajectory import Trajectory

__all__ = ["LONGEST_CASE", "case_text", "first_attribute"]

LONGEST_CASE = 2000
"""The length of a question (characters) up to which its line breaks do not count."""


def first_attribute(trajectory: Trajectory, keys: Sequence[str]) -> str:
    """Return the first of some attributes that a run has, as text; "" if it has none."""
    found = (trajectory.attributes.get(key) for key in keys)
    return next((str(value) for value in found if value not in (None, "")), "")


def case_text(trajectory: Trajectory, keys: Sequence[str]) -> str:
    r"""Return the text that a run shares with the runs of the same case, and only with those.

    Args:
        trajectory: The run.
        keys: The attributes that name a case; the first one present counts.

    Returns:
        The name; the question on one line; the question and its parts, after ``\0``, if it is long
        or has parts such as images; or the run's id.
    """
    named = first_attribute(trajectory, keys).strip()
    asked = trajectory.question
    if named or asked is None:
        return named or trajectory.id
    content = asked.content or ""
    if not asked.parts and len(content) <= LONGEST_CASE:
        return " ".join(content.splitlines())
    return f"\0{content}\0{dumps(list(asked.parts)) if asked.parts else ''}"
