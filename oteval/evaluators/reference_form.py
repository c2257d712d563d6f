"""A run in the form of its reference, so that both can be aligned.

A reference often lists only the question and the calls, all calls in one message. Next to it, each
message of the run would differ. Therefore both sides get one message for each call, and the run
loses the kinds of messages that the reference lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..model import Message

__all__ = ["ComparedStep", "in_reference_form"]

_CALLS = "calls"
_KINDS = {
    "system": "system messages",
    "developer": "system messages",
    "user": "user messages",
    "tool": "tool results",
}
_ANSWERS, _REMARKS = "answers", "text beside calls"


@dataclass(frozen=True, slots=True)
class ComparedStep:
    """A message, or one of several calls of a message.

    Attributes:
        message: The message with at most one call.
        at: The index of the message that it was made from.
        call_at: The index of its call in that message; None if the message has at most one call.
    """

    message: Message
    at: int
    call_at: int | None = None


def in_reference_form(
    run: Sequence[Message], reference: Sequence[Message]
) -> tuple[list[ComparedStep], list[ComparedStep], list[str]]:
    """A run's messages and its reference's in the same form.

    Args:
        run: The messages of the run.
        reference: The messages of the reference.

    Returns:
        The steps of the run, the steps of the reference, and the kinds of messages that were left
        out because the reference lacks them, such as ``tool results``.
    """
    expected = _steps(reference)
    kinds = {_kind(step.message) for step in expected} | {_CALLS}
    has_remarks = any(step.message.tool_calls and step.message.content for step in expected)
    steps, omitted = [], []
    for step in _steps(run):
        kind = _kind(step.message)
        if kind not in kinds:
            omitted.append(kind)
            continue
        if kind == _CALLS and step.message.content and not has_remarks:
            omitted.append(_REMARKS)
            step = replace(step, message=replace(step.message, content=None))
        steps.append(step)
    return steps, expected, list(dict.fromkeys(omitted))


def _steps(messages: Sequence[Message]) -> list[ComparedStep]:
    steps = []
    for at, message in enumerate(messages):
        if len(message.tool_calls) < 2:
            steps.append(ComparedStep(message, at))
            continue
        for number, call in enumerate(message.tool_calls):
            text = message.content if number == 0 else None
            step_message = replace(message, tool_calls=(call,), content=text)
            steps.append(ComparedStep(step_message, at, number))
    return steps


def _kind(message: Message) -> str:
    if message.tool_calls:
        return _CALLS
    return _KINDS.get(message.role, _ANSWERS)
