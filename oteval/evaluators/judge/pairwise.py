"""Judges that compare two outputs, for `evaluate_comparative`.

Each pair is judged in both orders by default: with equal systems and a judge that prefers the first
output by .10, 47% of comparisons in one order are significant at .05, and 4% in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Unpack

from ...base.errors import InputError
from .evaluator import JudgeEvaluator
from .factory import create_llm_as_judge, show_options
from .options import ModelOptions

__all__ = ["PAIRWISE_PROMPT", "PairwiseJudge", "create_pairwise_llm_as_judge"]

PAIRWISE_PROMPT = resources.files(__package__).joinpath("prompts/pairwise.txt").read_text("utf-8")

# The score of each output by verdict. A tie is in the middle, so that it is the median of a vote
# that is split between the two outputs.
_SCORES: Mapping[float, tuple[float, float]] = {1: (1.0, 0.0), 2: (0.5, 0.5), 3: (0.0, 1.0)}


@dataclass(frozen=True)
class PairwiseJudge:
    """Asks a language model which of two outputs is better.

    Attributes:
        evaluator: The evaluator that asks.
        only_pairs: Whether it compares exactly two outputs; always True.
    """

    evaluator: JudgeEvaluator
    only_pairs: bool = True

    @property
    def key(self) -> str:
        """The name of the score."""
        return self.evaluator.key

    def describe(self) -> dict[str, Any]:
        """Everything that answers depend on, to hash into a version."""
        return {**self.evaluator.describe(), "type": "pairwise_judge"}

    def __call__(
        self,
        *,
        outputs: Sequence[Any],
        inputs: Any = None,
        reference_outputs: Any = None,
        **extra: Any,
    ) -> dict[str, Any]:
        """Compare two outputs.

        Args:
            outputs: The two outputs.
            inputs: The inputs that led to them.
            reference_outputs: The expected outputs.
            **extra: More variables of the prompt.

        Returns:
            ``key``, ``scores`` (1 for the better output and 0 for the other, 0.5 each for a tie,
            None without an answer), ``comment`` and ``metadata``.

        Raises:
            InputError: There are not exactly two outputs.
        """
        if len(outputs) != 2:
            raise InputError(f"outputs has {len(outputs)} items; expected two to compare")
        result = self.evaluator(
            inputs=inputs,
            reference_outputs=reference_outputs,
            **{**extra, "output_a": outputs[0], "output_b": outputs[1]},
        )
        score = result["score"]
        return {
            "key": self.key,
            "scores": None if score is None else list(_SCORES[score]),
            "comment": result["comment"],
            "metadata": result["metadata"],
        }


@show_options(ModelOptions)
def create_pairwise_llm_as_judge(
    *,
    prompt: Any = PAIRWISE_PROMPT,
    feedback_key: str = "preference",
    **options: Unpack[ModelOptions],
) -> PairwiseJudge:
    """Create an evaluator that asks a language model which of two outputs is better.

    Args:
        prompt: As for `create_llm_as_judge`, with ``{output_a}`` and ``{output_b}``. It asks for a
            score of 1 if A is better, 3 if B is better, and 2 for a tie.
        feedback_key: The name of the score.
        **options: See `ModelOptions`.

    Raises:
        ConfigError: An option is wrong; the message names it and the remedy.
    """
    judge = create_llm_as_judge(
        prompt=prompt, feedback_key=feedback_key, choices=list(_SCORES), **options
    )
    return PairwiseJudge(judge)
