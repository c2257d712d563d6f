"""Checks that a benchmark measured the work that its name says.

A figure of work that was not done looks like a very good one: the page of an error is quick, and so
is a command that scores nothing. So each benchmark checks the outcome of the work beside its clock.
Where a check fails, `figures_or_failure` returns the reason in place of the figures, and the table
shows the reason in place of a figure.

The interpreters of peers import this module, so that it needs the standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["CheckError", "CommandError", "check", "failures", "figures_or_failure"]

FAILED = "failed"
_LONGEST = 300  # characters of evidence


class CheckError(Exception):
    """A benchmark did not do the work that its name says."""


class CommandError(Exception):
    """A measured command failed; the message has the end of its output."""


def check(holds: object, claim: str, evidence: object = "") -> None:
    """Check the outcome of measured work.

    Args:
        holds: Whether the claim is true.
        claim: The outcome that the work must have, such as "each run has a verdict".
        evidence: The outcome that it had.

    Raises:
        CheckError: The claim is false.
    """
    if holds:
        return
    text = evidence if isinstance(evidence, str) else json.dumps(evidence, default=str)
    raise CheckError(f"not true: {claim}" + (f" ({text[:_LONGEST]})" if text else ""))


def figures_or_failure(measure: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of some work, or only the reason why there are none, as ``failed``."""
    try:
        return dict(measure())
    except (CheckError, CommandError) as error:
        return {FAILED: str(error)}


def failures(figures: Any) -> Iterator[str]:
    """Yield the reasons for missing figures, anywhere in the figures of a part."""
    if isinstance(figures, Mapping):
        if isinstance(reason := figures.get(FAILED), str):
            yield reason
        for value in figures.values():
            yield from failures(value)
    elif isinstance(figures, list):
        for value in figures:
            yield from failures(value)
