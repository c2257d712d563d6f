"""Short ways to check a trajectory."""

from __future__ import annotations

from typing import Any

from oteval.evaluators.checks import Check
from oteval.evaluators.scorer import Scorer
from oteval.model import Message, Reference, Score, ToolCall, Trajectory
from oteval.reconstruct import reconstruct

from ...reconstruct.builders import capture


def asks(*names: str, **arguments: Any) -> Message:
    """Return a message that calls tools, all with the same arguments."""
    calls = tuple(ToolCall(name, dict(arguments), f"{name}-id") for name in names)
    return Message("assistant", tool_calls=calls)


def gives(content: str | None = "fine", call_id: str = "", **fields: Any) -> Message:
    """Return a tool's result."""
    return Message("tool", content, tool_call_id=call_id, **fields)


def says(text: str) -> Message:
    """Return what the assistant says."""
    return Message("assistant", text)


def called(*names: str) -> list[Message]:
    """Return a message for each call of a tool, all without arguments."""
    return [asks(name) for name in names]


def score(check: Check, trajectory: Trajectory, wanted: Any = None, scope: Any = "turn") -> Score:
    """Return the score of a run, as `oteval score` has it."""
    reference = None if wanted is None else Reference("r", tuple(wanted))
    return Scorer("e", "v", check, scope=scope).score(trajectory, reference, "", 1)


def runs(name: str) -> list[Trajectory]:
    """Return the runs of a capture."""
    return list(reconstruct(*capture(name)))


def comment(check: Check, outputs: Any, **options: Any) -> Any:
    """Return what a check has to say of a trajectory."""
    return check(outputs=outputs, **options)["comment"]
