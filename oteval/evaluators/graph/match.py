"""The graph trajectory match evaluators, with the names and call shapes of agentevals.

They compare the nodes that ran, turn by turn; the results and inputs of the turns are not looked
at. `oteval.evaluators.graph.compare` says what each mode means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, cast

from ...errors import ConfigError
from ..match import SCORE_TYPES, ScoreType
from ..observed import observed
from ..spec import MODES, Mode
from .compare import compare_turns
from .forms import Turns, read_turns

__all__ = [
    "AsyncGraphMatchEvaluator",
    "GraphMatchEvaluator",
    "create_async_graph_trajectory_match_evaluator",
    "create_graph_trajectory_match_evaluator",
    "graph_trajectory_strict_match",
    "graph_trajectory_strict_match_async",
]


@dataclass(frozen=True)
class GraphMatchEvaluator:
    """Scores a graph trajectory by comparing it with a reference.

    Attributes:
        mode: How the nodes of each turn are compared.
        key: The score's name.
        score_type: Whether the score is the verdict or one of the figures.
    """

    mode: Mode
    key: str
    score_type: ScoreType = "bool"

    @property
    def __name__(self) -> str:
        return self.key

    def __call__(
        self,
        *,
        outputs: Any,
        reference_outputs: Any = None,
        inputs: Any = None,  # noqa: ARG002  part of every evaluator's signature
        **extra: Any,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Compare outputs with the reference.

        Args:
            outputs: The graph trajectory, in any form of `oteval.evaluators.graph.forms`.
            reference_outputs: The graph trajectory that was wanted, in any form.
            inputs: Not used.
            **extra: Not used.

        Returns:
            ``key``, ``score``, ``comment`` and ``metadata``: the figures of a match of calls, how
            many ``turns`` the two sides have, and the first that differs (``turn``, or None).

        Raises:
            InputError: A side is no graph trajectory; the text names the place.
        """
        wanted = read_turns(reference_outputs, "reference_outputs")
        return observed(self.compared(read_turns(outputs, "outputs"), wanted))

    def compared(self, out: Turns, ref: Turns) -> dict[str, Any]:
        """Return the result for the nodes of two sides."""
        verdict, turn = compare_turns(out, ref, self.mode)
        kind = self.score_type
        figures = {**verdict.metadata(), "turns": [len(out), len(ref)], "turn": turn}
        return {
            "key": self.key,
            "score": verdict.passed if kind == "bool" else getattr(verdict, kind),
            "comment": verdict.comment,
            "metadata": figures,
        }

    def describe(self) -> dict[str, Any]:
        """Return the configuration as JSON values, for the hash that is its version."""
        return {
            "type": "graph_match",
            "key": self.key,
            "mode": self.mode,
            "score_type": self.score_type,
        }


class AsyncGraphMatchEvaluator(Protocol):
    """A coroutine function that scores as a `GraphMatchEvaluator` does.

    Attributes:
        evaluator: The configuration, with `describe()`.
    """

    evaluator: GraphMatchEvaluator

    async def __call__(
        self, *, outputs: Any, reference_outputs: Any = None, inputs: Any = None, **extra: Any
    ) -> dict[str, Any]:
        """Compare outputs with the reference."""
        ...


def create_graph_trajectory_match_evaluator(
    *, trajectory_match_mode: str = "strict", score_type: str = "bool"
) -> GraphMatchEvaluator:
    """Create an evaluator that compares the nodes of a graph trajectory with a reference's.

    Args:
        trajectory_match_mode: ``strict``, ``unordered``, ``subset``, ``superset`` or ``in_order``.
        score_type: ``bool``, or ``f1``, ``recall`` or ``precision`` for that figure.

    Returns:
        The evaluator; its key is ``graph_trajectory_{mode}_match``.

    Raises:
        ConfigError: An argument is wrong; the text names it and says what to write.
    """
    mode = _one_of(trajectory_match_mode, MODES, "trajectory_match_mode")
    kind = _one_of(score_type, SCORE_TYPES, "score_type")
    key = f"graph_trajectory_{mode}_match"
    return GraphMatchEvaluator(cast("Mode", mode), key, cast("ScoreType", kind))


def create_async_graph_trajectory_match_evaluator(
    *, trajectory_match_mode: str = "strict", score_type: str = "bool"
) -> AsyncGraphMatchEvaluator:
    """Create a coroutine function that does what the other factory's evaluator does.

    Args:
        trajectory_match_mode: As for `create_graph_trajectory_match_evaluator`.
        score_type: As there.

    Returns:
        The evaluator; its ``evaluator`` attribute holds the configuration.

    Raises:
        ConfigError: An argument is wrong; the text names it and says what to write.
    """
    made = create_graph_trajectory_match_evaluator(
        trajectory_match_mode=trajectory_match_mode, score_type=score_type
    )

    async def evaluator(
        *,
        outputs: Any,
        reference_outputs: Any = None,
        inputs: Any = None,
        **extra: Any,
    ) -> dict[str, Any]:
        return made(outputs=outputs, reference_outputs=reference_outputs, inputs=inputs, **extra)

    evaluator.__name__ = evaluator.__qualname__ = made.key
    evaluator.evaluator = made  # type: ignore[attr-defined]
    return evaluator  # type: ignore[return-value]


def _one_of(value: Any, known: tuple[str, ...], name: str) -> str:
    if value not in known:
        raise ConfigError(f"{name}: unknown value {value!r}; known: {', '.join(known)}")
    return str(value)


_STRICT = GraphMatchEvaluator("strict", "graph_trajectory_strict_match")


def graph_trajectory_strict_match(
    *, outputs: Any, reference_outputs: Any = None, **extra: Any
) -> dict[str, Any]:
    """Compare two graph trajectories node by node.

    Args:
        outputs: The graph trajectory.
        reference_outputs: The graph trajectory that was wanted.
        **extra: Not used.

    Returns:
        ``key``, ``score``, ``comment`` and ``metadata``.

    Raises:
        InputError: A side is no graph trajectory; the text names the place.
    """
    return _STRICT(outputs=outputs, reference_outputs=reference_outputs, **extra)


async def graph_trajectory_strict_match_async(
    *, outputs: Any, reference_outputs: Any = None, **extra: Any
) -> dict[str, Any]:
    """Do what `graph_trajectory_strict_match` does.

    Args:
        outputs: The graph trajectory.
        reference_outputs: The graph trajectory that was wanted.
        **extra: Not used.

    Returns:
        ``key``, ``score``, ``comment`` and ``metadata``.

    Raises:
        InputError: A side is no graph trajectory; the text names the place.
    """
    return _STRICT(outputs=outputs, reference_outputs=reference_outputs, **extra)
