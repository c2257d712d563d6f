"""The evaluator ``type: judge`` of oteval.yaml: a language model judges stored trajectories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import JudgeError
from ...jsontext import dumps
from ...model import Message, Reference, Trajectory
from ..scorer import CONTENT_GAPS, NotEvaluated, Result
from .costs import estimate_tokens
from .evaluator import JudgeEvaluator
from .prompts import optional_variables
from .templates import template_variables

__all__ = ["RUN_VARIABLES", "LlmJudge", "VerdictMissing"]

RUN_VARIABLES = frozenset({"outputs", "reference_outputs", "thread"})
"""The variables that a run fills in, besides ``inputs`` if the prompt shows it."""


class VerdictMissing(JudgeError):
    """A judge gave no verdict.

    Attributes:
        metadata: The metadata of the calls, including their cost.
    """

    def __init__(self, message: str, metadata: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.metadata = metadata


@dataclass(frozen=True)
class LlmJudge:
    """Judges trajectories by asking a language model.

    Attributes:
        evaluator: The evaluator that asks it.
        threshold: The lowest score that passes; None if only bools pass or fail.
        variables: More variables of the prompt.
        concurrency: The number of trajectories to judge concurrently.
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
            NotEvaluated: The run has no content to judge, or the budget is spent.
            VerdictMissing: The model gave no verdict.
        """
        _require_content(trajectory, messages)
        result = self.evaluator(
            **{
                "outputs": list(messages),
                "reference_outputs": list(reference.messages) if reference else None,
                **self._run_variables(trajectory, messages),
                **self.variables,
            }
        )
        metadata = result["metadata"]
        if result["score"] is None:
            if metadata["status"] == "not_evaluated":
                raise NotEvaluated(metadata["error"])
            raise VerdictMissing(metadata["error"], metadata)
        return self._to_result(result)

    def _run_variables(self, trajectory: Trajectory, messages: Sequence[Message]) -> dict[str, Any]:
        """Return the run's first question and its path through a graph, if the prompt shows them.

        Raises:
            NotEvaluated: The prompt shows one that the run does not have.
        """
        template = self.evaluator.prompt.template
        required = template_variables(template) - optional_variables(template)
        required -= set(self.variables)
        found: dict[str, Any] = {"thread": _graph_thread(trajectory, messages)}
        if "thread" in required and found["thread"] is None:
            raise NotEvaluated("the prompt shows {thread}, but the run has no graph steps")
        if "inputs" in required:
            found["inputs"] = next((m.content for m in messages if m.role == "user"), None)
            if not found["inputs"]:
                raise NotEvaluated("the prompt shows {inputs}, but the run has no user message")
        return found

    def expected_cost(self, messages: Sequence[Message]) -> float:
        """Return the minimum cost of judging a run, in US dollars: the cost of reading it."""
        tokens = estimate_tokens(dumps([message.as_dict() for message in messages]))
        clients = self.evaluator.clients
        prices = (client.limits.prices.of(client.backend.model) for client in clients)
        costs = (price.cost(tokens, 0) for price in prices if price is not None)
        return sum(costs) * self.evaluator.samples

    def _to_result(self, result: Mapping[str, Any]) -> Result:
        score = result["score"]
        passed = score if isinstance(score, bool) else None
        if passed is None and self.threshold is not None:
            passed = score >= self.threshold
        label = "" if passed is None else "pass" if passed else "fail"
        return Result(float(score), passed, label, result["comment"] or "", result["metadata"])

    def close(self) -> None:
        """Close the connections that the evaluator opened."""
        self.evaluator.close()


def _graph_thread(
    trajectory: Trajectory, messages: Sequence[Message]
) -> list[dict[str, Any]] | None:
    """Return the run as one turn of a graph, for prompts that show ``{thread}``."""
    if not trajectory.steps:
        return None
    question = next((m.content for m in messages if m.role == "user"), None)
    result = next((m.content for m in reversed(messages) if m.role == "assistant"), None)
    steps = [list(step) for step in trajectory.steps]
    return [{"input": question, "steps": steps, "result": result}]


def _require_content(trajectory: Trajectory, messages: Sequence[Message]) -> None:
    """Reject a run without captured content: a model would make up its verdict."""
    if any(message.content or message.tool_calls or message.parts for message in messages):
        return
    gap = next((gap for gap in trajectory.gaps if gap.code in CONTENT_GAPS), None)
    raise NotEvaluated(f"{gap.code}: {gap.detail}" if gap else "the messages have no content")
