"""The types that users of agentevals and openevals import, under the same names.

They describe arguments and results for type checkers; nothing here runs. Importing this module
costs next to nothing: no LangChain message is imported, and any message form is accepted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NotRequired, Protocol, TypedDict

from .graph.forms import GraphTrajectory
from .graph.langgraph import ExtractedLangGraphThreadTrajectory

__all__ = [
    "ChatCompletionMessage",
    "EvaluatorResult",
    "ExtractedLangGraphThreadTrajectory",
    "FewShotExample",
    "GraphTrajectory",
    "MultiturnSimulationResult",
    "SimpleAsyncEvaluator",
    "SimpleEvaluator",
    "ToolArgsMatchMode",
    "ToolArgsMatchOverrides",
]


class EvaluatorResult(TypedDict):
    """The result of an evaluator.

    Attributes:
        key: The score's name.
        score: A bool for pass or fail, a number, or None if nothing could be evaluated.
        comment: The reason; None for a pass.
        metadata: Figures behind the score.
        source_run_id: The LangSmith run that the score comes from.
    """

    key: str
    score: float | bool | None
    comment: str | None
    metadata: dict[str, Any] | None
    source_run_id: NotRequired[str | None]


class ChatCompletionMessage(TypedDict):
    """A message in the form of OpenAI's chat API.

    Attributes:
        role: ``system``, ``user``, ``assistant`` or ``tool``.
        content: Text, or a list of content parts.
        id: The message's id.
        tool_calls: The calls of an assistant message.
        tool_call_id: The call that a tool message answers.
    """

    role: str
    content: str | list[dict[str, Any]] | None
    id: NotRequired[str | None]
    tool_calls: NotRequired[list[dict[str, Any]] | None]
    tool_call_id: NotRequired[str]


class FewShotExample(TypedDict):
    """An example of a verdict, for a judge's prompt.

    Attributes:
        inputs: The input of the example.
        outputs: The output to score.
        score: Its score.
        reasoning: Why.
    """

    inputs: Any
    outputs: Any
    score: float | bool
    reasoning: NotRequired[str | None]


class SimpleEvaluator(Protocol):
    """An evaluator that is called with keywords."""

    def __call__(
        self, *, inputs: Any = None, outputs: Any, reference_outputs: Any = None, **kwargs: Any
    ) -> EvaluatorResult | list[EvaluatorResult]:
        """Score outputs."""
        ...


class SimpleAsyncEvaluator(Protocol):
    """An evaluator that is called with keywords and awaited."""

    def __call__(
        self, *, inputs: Any = None, outputs: Any, reference_outputs: Any = None, **kwargs: Any
    ) -> Awaitable[EvaluatorResult | list[EvaluatorResult]]:
        """Score outputs."""
        ...


class MultiturnSimulationResult(TypedDict):
    """The result of a simulated conversation.

    Attributes:
        trajectory: The messages of the conversation.
        evaluator_results: The results of the trajectory evaluators.
    """

    trajectory: list[ChatCompletionMessage]
    evaluator_results: list[EvaluatorResult]


ToolArgsMatchMode = Literal["exact", "ignore", "subset", "superset"]

ToolArgsMatchOverrides = dict[
    str,
    ToolArgsMatchMode | list[str] | Callable[[dict[str, Any], dict[str, Any]], bool],
]
