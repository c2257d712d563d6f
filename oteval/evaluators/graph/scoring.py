"""The match of graph trajectories as configured in oteval.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...model import Message, Reference, Trajectory
from ..scorer import NotEvaluated, Result
from .forms import Turns, runs_of
from .match import GraphMatchEvaluator

__all__ = ["GraphMatchJudge"]


@dataclass(frozen=True)
class GraphMatchJudge:
    """Judges by a match of the nodes that ran with a reference's.

    Attributes:
        evaluator: The match.
        scope: Whether the run's own turn is compared or the conversation's turns.
        threshold: From which figure on it is a pass.
        needs_messages: False: nodes are known also where messages were not captured.
    """

    evaluator: GraphMatchEvaluator
    scope: Literal["turn", "conversation"] = "turn"
    threshold: float = 1.0
    needs_messages: bool = False

    def judge(
        self,
        trajectory: Trajectory,
        messages: Sequence[Message],  # noqa: ARG002
        reference: Reference | None,
    ) -> Result:
        """Return the verdict of the match."""
        if reference is None:
            raise NotEvaluated("there is no reference")
        if reference.steps is None:
            raise NotEvaluated(f"the reference {reference.name} has no steps")
        wanted = [list(turn) for turn in reference.steps]
        found = self.evaluator.compared(self._turns(trajectory), wanted)
        score, is_bool = float(found["score"]), isinstance(found["score"], bool)
        passed = bool(score) if is_bool else score >= self.threshold
        label = "pass" if passed else "fail"
        return Result(score, passed, label, found["comment"] or "", found["metadata"])

    def _turns(self, trajectory: Trajectory) -> Turns:
        turns: Turns = []
        for run in runs_of(trajectory) if self.scope == "conversation" else [trajectory]:
            nodes = [node for step in run.steps for node in step]
            if not nodes:
                raise NotEvaluated(f"the trace of run {run.id} shows no nodes and names no agent")
            turns.append(nodes)
        return turns
