"""What people say of runs, to hold a judge against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Label"]


@dataclass(frozen=True, slots=True)
class Label:
    """A person's verdict on one trajectory.

    Attributes:
        trajectory_id: The trajectory.
        evaluator: The evaluator that it is a verdict in place of; "" for any.
        passed: Whether it passes.
        person: Who said so, or "".
        note: Why, or "".
    """

    trajectory_id: str
    passed: bool
    evaluator: str = ""
    person: str = ""
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "trajectory_id": self.trajectory_id,
            "evaluator": self.evaluator or None,
            "passed": self.passed,
            "person": self.person or None,
            "note": self.note or None,
        }
