"""A language model as the judge of stored trajectories: what ``type: judge`` stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import JudgeError
from ...jsontext import dumps
from ...model import Message, Reference, Trajectory
from ..scorer import CONTENT_GAPS, NotEvaluated, Result
from .estimates import text_tokens
from .evaluator import JudgeEvaluator
from .prompts import optional_of
from .templates import fields_of

__all__ = ["FILLED_IN", "LlmJudge", "VerdictMissing"]

FILLED_IN = frozenset({"outputs", "reference_outputs", "thread"})
"""The variables that are filled in from a run, beside ``inputs`` where the prompt needs it."""


class VerdictMissing(JudgeError):
    """A judge gave no verdict.

    Attributes:
        metadata: What asking it took all the same.
    """

    def __init__(self, message: str, metadata: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.metadata = metadata


@dataclass(frozen=True)
class LlmJudge:
    """Judges by asking a language model.

    Attributes:
        evaluator: Asks it.
        threshold: From which score on it is a pass; None where only a bool is one.
        variables: More variables of the prompt.
        concurrency: How many trajectories it may be asked about at once.
    """

    evaluator: JudgeEvaluator
    threshold: float | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    concurrency: int = 1

    def judge(
        self, trajectory: Trajectory, messages: Sequence[Message], reference: Reference | None
    ) -> Result:
        """Return the model's verdict.

        Raises:
            NotEvaluated: There is nothing to be seen, or the budget is spent.
            VerdictMissing: The model gave none.
        """
        _refuse_unseen(trajectory, messages)
        found = self.evaluator(
            **{
                "outputs": list(messages),
                "reference_outputs": list(reference.messages) if reference else None,
                **self._shown_apart(trajectory, messages),
                **self.variables,
            }
        )
        metadata = found["metadata"]
        if found["score"] is None:
            if metadata["status"] == "not_evaluated":
                raise NotEvaluated(metadata["error"])
            raise VerdictMissing(metadata["error"], metadata)
        return self._result(found)

    def _shown_apart(self, trajectory: Trajectory, messages: Sequence[Message]) -> dict[str, Any]:
        """Return the question and the graph's path, where the prompt shows them.

        Raises:
            NotEvaluated: The run has not what the prompt shows.
        """
        template = self.evaluator.prompt.template
        needed = fields_of(template) - optional_of(template) - set(self.variables)
        found: dict[str, Any] = {"thread": _thread(trajectory, messages)}
        if "thread" in needed and found["thread"] is None:
            raise NotEvaluated("the prompt shows {thread}, and the run has no steps of a graph")
        if "inputs" in needed:
            found["inputs"] = next((m.content for m in messages if m.role == "user"), None)
            if not found["inputs"]:
                raise NotEvaluated("the prompt shows {inputs}, and no question was captured")
        return found

    def expected_cost(self, messages: Sequence[Message]) -> float:
        """Return what reading a run costs at least, in US dollars, before anybody is asked."""
        tokens = text_tokens(dumps([message.as_dict() for message in messages]))
        prices = (a.limits.prices.of(a.backend.model) for a in self.evaluator.askers)
        costs = (price.cost(tokens, 0) for price in prices if price is not None)
        return sum(costs) * self.evaluator.samples

    def _result(self, found: Mapping[str, Any]) -> Result:
        score = found["score"]
        passed = score if isinstance(score, bool) else None
        if passed is None and self.threshold is not None:
            passed = score >= self.threshold
        label = "" if passed is None else "pass" if passed else "fail"
        return Result(float(score), passed, label, found["comment"] or "", found["metadata"])

    def close(self) -> None:
        """Close the connections that were opened."""
        self.evaluator.close()


def _thread(trajectory: Trajectory, messages: Sequence[Message]) -> list[dict[str, Any]] | None:
    """Return the run as a turn of a graph, for prompts that show ``{thread}``."""
    if not trajectory.steps:
        return None
    asked = next((m.content for m in messages if m.role == "user"), None)
    result = next((m.content for m in reversed(messages) if m.role == "assistant"), None)
    steps = [list(step) for step in trajectory.steps]
    return [{"input": asked, "steps": steps, "result": result}]


def _refuse_unseen(trajectory: Trajectory, messages: Sequence[Message]) -> None:
    """Refuse a run of which nothing was captured: a verdict on it would be made up."""
    if any(message.content or message.tool_calls or message.parts for message in messages):
        return
    lost = next((gap for gap in trajectory.gaps if gap.code in CONTENT_GAPS), None)
    raise NotEvaluated(f"{lost.code}: {lost.detail}" if lost else "the messages have no content")
