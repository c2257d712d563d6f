"""The run that a caller passes to an evaluator, if more than its messages is known.

A caller may pass a `Trajectory`, or a dict in the form of `Trajectory.as_dict`, whose ``gaps`` name
content that its messages lack. For messages alone, `oteval.model.gaps_of_calls` decides whether
they are the whole run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model import Gap, SpanRef, Trajectory, gaps_of_calls
from .messages import is_message, to_messages
from .values import show

__all__ = ["gaps_beside", "passed_run"]


def passed_run(outputs: Any, name: str = "outputs", run_id: str = "") -> Trajectory:
    """The run that a caller passed.

    A run made from messages has the gaps next to them, and a gap for calls that they do not show.

    Args:
        outputs: A trajectory in any form of `oteval.evaluators.messages`.
        name: Its name in error messages.
        run_id: The id of a run that is made from messages.

    Raises:
        InputError: The messages cannot be read.
    """
    if isinstance(outputs, Trajectory):
        return outputs
    messages = to_messages(outputs, name)
    gaps = dict.fromkeys((*gaps_beside(outputs), *gaps_of_calls(messages)))
    return Trajectory(run_id, SpanRef("", ""), tail=messages, gaps=tuple(gaps))


def gaps_beside(outputs: Any) -> tuple[Gap, ...]:
    """The gaps next to the messages of a dict; empty if it has no list of gaps.

    An unreadable item counts as a gap of unknown content. Without messages, the items are an
    agent's data.
    """
    gaps = outputs.get("gaps") if isinstance(outputs, Mapping) else None
    if not isinstance(gaps, (list, tuple)):
        return ()
    read = [_gap(gap) for gap in gaps]
    if None in read and ("messages" in outputs or "trajectory" in outputs or is_message(outputs)):
        unread = show(gaps[read.index(None)], 60)
        read.append(Gap("content_unreadable", f"a gap beside the messages: {unread}"))
    return tuple(gap for gap in read if gap is not None)


def _gap(value: Any) -> Gap | None:
    """A gap, its JSON form or its code as a gap; None for anything else."""
    if isinstance(value, Gap):
        return value
    code = value.get("code") if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return Gap(value, "")
    if not isinstance(code, str):
        return None
    return Gap(code, str(value.get("detail") or ""), str(value.get("span_id") or ""))
