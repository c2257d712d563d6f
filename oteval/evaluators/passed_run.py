"""The run that a caller passes to an evaluator, where more than its messages is known.

A caller may pass a `Trajectory`, or a dict in the form of `Trajectory.as_dict`, whose ``gaps`` name
content that its messages lack. A list of messages names none: it is the whole run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model import Gap, SpanRef, Trajectory
from .messages import to_messages
from .values import show

__all__ = ["gaps_beside", "passed_run"]


def passed_run(outputs: Any, place: str = "outputs") -> Trajectory | None:
    """Return the run that a caller passed; None if only messages are known.

    Args:
        outputs: A trajectory in any form of `oteval.evaluators.messages`.
        place: Its name in error messages.

    Raises:
        InputError: The messages beside the gaps cannot be read.
    """
    if isinstance(outputs, Trajectory):
        return outputs
    gaps = gaps_beside(outputs)
    if not gaps:
        return None
    return Trajectory("", SpanRef("", ""), tail=to_messages(outputs, place), gaps=gaps)


def gaps_beside(outputs: Any) -> tuple[Gap, ...]:
    """Return the gaps beside the messages of a dict; none if it has no list of gaps."""
    gaps = outputs.get("gaps") if isinstance(outputs, Mapping) else None
    return tuple(map(_gap, gaps)) if isinstance(gaps, (list, tuple)) else ()


def _gap(value: Any) -> Gap:
    """Return a gap, its JSON form or its code as a gap; anything else is one of unknown content."""
    if isinstance(value, Gap):
        return value
    code = value.get("code") if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return Gap(value, "")
    if not isinstance(code, str):
        return Gap("content_unreadable", f"a gap beside the messages: {show(value, 60)}")
    return Gap(code, str(value.get("detail") or ""), str(value.get("span_id") or ""))
