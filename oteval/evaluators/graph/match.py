"""The graph trajectory match evaluators, with the names and call shapes of agentevals.

They compare the nodes that ran, turn by turn, and ignore the inputs and results of the turns.
`oteval.evaluators.graph.compare` explains the modes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from ...model import EvaluationResult, Reference
from ..evaluator import EvaluationContext, NotEvaluated, ReferenceOption
from ..factories import AsyncEvaluator, as_async, async_variant, with_options_of
from ..match import FigureMatch, ScoreType
from ..options import InConfig, Share
from ..spec import Mode
from .compare import compare_turns
from .forms import Turns, read_turns

__all__ = [
    "GraphMatch",
    "create_async_graph_trajectory_match_evaluator",
    "create_graph_trajectory_match_evaluator",
    "graph_trajectory_strict_match",
    "graph_trajectory_strict_match_async",
]


@dataclass(frozen=True, kw_only=True)
class GraphMatch(FigureMatch):
    """Compares the nodes of a graph that ran with a reference's, turn by turn.

    Attributes:
        trajectory_match_mode: How the nodes of each turn are compared: ``strict``, ``unordered``,
            ``subset``, ``superset`` or ``in_order``.
        score_type: The score: ``bool``, or the figure ``f1``, ``recall`` or ``precision``.
        threshold: The lowest score with which a stored run passes, unless `score_type` is ``bool``.
    """

    type: ClassVar[str] = "graph_match"
    reference: ClassVar[ReferenceOption | None] = ReferenceOption(
        "A JSON file with steps, {trajectory: ID}, {name: NAME}, {dataset, key}, or {any: [...]} "
        "of these, of which the best match counts.",
        is_required=True,
        form="steps",
        accepts_several=True,
    )
    # Nodes are known even if messages were not captured.
    needs_messages: ClassVar[bool] = False
    reads_outputs: ClassVar[bool] = True

    trajectory_match_mode: Annotated[Mode, InConfig("mode")] = "strict"
    score_type: ScoreType = "bool"
    threshold: Share = 1.0

    @property
    def key(self) -> str:
        """The score's name in results."""
        return self.feedback_key or f"graph_trajectory_{self.trajectory_match_mode}_match"

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Compare the nodes of a run with its reference's.

        A caller may pass both in any form of `oteval.evaluators.graph.forms`. The metadata has the
        figures of a match of calls, how many ``turns`` the two sides have, and the first turn that
        differs (``turn``, or None).

        Raises:
            InputError: A side cannot be read as a graph trajectory; the text names the place.
            NotEvaluated: The run or its reference has no nodes.
        """
        if context.is_call:
            reference_turns = read_turns(context.reference_outputs, "reference_outputs")
            turns = read_turns(context.outputs, "outputs")
        else:
            reference_turns, turns = _reference_turns(context.reference), _turns(context)
        verdict, turn = compare_turns(turns, reference_turns, self.trajectory_match_mode)
        return self.result_of(verdict, turns=[len(turns), len(reference_turns)], turn=turn)

    def describe(self) -> dict[str, Any]:
        """The options as JSON values, to hash into the evaluator's version."""
        return {
            "type": self.type,
            "key": self.key,
            "mode": self.trajectory_match_mode,
            "score_type": self.score_type,
        }


def _reference_turns(reference: Reference | None) -> Turns:
    if reference is None:
        raise NotEvaluated("there is no reference")
    if reference.steps is None:
        raise NotEvaluated(f"the reference {reference.name} has no steps")
    return [list(turn) for turn in reference.steps]


def _turns(context: EvaluationContext) -> Turns:
    turns: Turns = []
    for run in context.runs:
        nodes = [node for step in run.steps for node in step]
        if not nodes:
            raise NotEvaluated(f"the trace of run {run.id} shows no nodes and names no agent")
        turns.append(nodes)
    return turns


@with_options_of(GraphMatch)
def create_graph_trajectory_match_evaluator(**options: Any) -> GraphMatch:
    """Create an evaluator that compares the nodes of a graph trajectory with a reference's.

    Args:
        **options: The options of `GraphMatch`.

    Raises:
        ConfigError: An option is wrong; the text names it and the values to use.
    """
    return GraphMatch(**options)


@with_options_of(GraphMatch)
def create_async_graph_trajectory_match_evaluator(**options: Any) -> AsyncEvaluator[GraphMatch]:
    """Create a coroutine function that compares the nodes of a graph with a reference's.

    Args:
        **options: The options of `GraphMatch`.

    Returns:
        The evaluator; its ``evaluator`` attribute contains the configuration.

    Raises:
        ConfigError: An option is wrong; the text names it and the values to use.
    """
    return as_async(GraphMatch(**options))


_STRICT = GraphMatch()


def graph_trajectory_strict_match(
    *, outputs: Any, reference_outputs: Any = None, **extra: Any
) -> dict[str, Any]:
    """Compare two graph trajectories node by node.

    Args:
        outputs: The graph trajectory.
        reference_outputs: The expected graph trajectory.
        **extra: Not used.

    Returns:
        ``key``, ``score``, ``comment`` and ``metadata``.

    Raises:
        InputError: A side cannot be read as a graph trajectory; the text names the place.
    """
    return _STRICT(outputs=outputs, reference_outputs=reference_outputs, **extra)


graph_trajectory_strict_match_async = async_variant(graph_trajectory_strict_match)
