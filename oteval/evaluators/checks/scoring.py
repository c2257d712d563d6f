"""The checks as configured in oteval.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...model import Message, Reference, Trajectory
from ..scorer import Result
from .base import Check, Seen

__all__ = ["CheckJudge"]


@dataclass(frozen=True)
class CheckJudge:
    """Judges by a check.

    Attributes:
        check: The check.
        scope: Whether it sees the run alone or its whole conversation.
    """

    check: Check
    scope: Literal["turn", "conversation"] = "turn"

    @property
    def needs_messages(self) -> bool:
        """Whether there is nothing to check in a run without messages."""
        return self.check.needs_messages

    def judge(
        self, trajectory: Trajectory, messages: Sequence[Message], reference: Reference | None
    ) -> Result:
        """Return the verdict of the check."""
        wanted = list(reference.messages) if reference else None
        whole = self.scope == "conversation"
        seen = Seen(tuple(messages), trajectory, wanted, whole=whole)
        found = self.check.check(seen)
        passed = not found.problems
        label = "pass" if passed else "fail"
        return Result(float(passed), passed, label, found.comment, dict(found.metadata))
