"""Judges that say which of two outputs is better, for `evaluate_comparative`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Unpack

from ...errors import InputError
from .evaluator import JudgeEvaluator
from .factory import create_llm_as_judge
from .making import Options

__all__ = ["PAIRWISE_PROMPT", "PairwiseJudge", "create_pairwise_llm_as_judge"]

PAIRWISE_PROMPT = resources.files(__package__).joinpath("prompts/pairwise.txt").read_text("utf-8")

# In this order, so that the middle one of several votes is what lies between.
_SCORES: Mapping[float, tuple[float, float]] = {1: (1.0, 0.0), 2: (0.5, 0.5), 3: (0.0, 1.0)}


@dataclass(frozen=True)
class PairwiseJudge:
    """Asks a language model which of two outputs is better.

    Attributes:
        evaluator: What asks it.
        only_pairs: That it can tell two apart, and no more.
    """

    evaluator: JudgeEvaluator
    only_pairs: bool = True

    @property
    def key(self) -> str:
        """The question's name."""
        return self.evaluator.key

    def describe(self) -> dict[str, Any]:
        """Return all that its answers depend on, for the hash that is its version."""
        return {**self.evaluator.describe(), "type": "pairwise_judge"}

    def __call__(
        self,
        *,
        outputs: Sequence[Any],
        inputs: Any = None,
        reference_outputs: Any = None,
        **extra: Any,
    ) -> dict[str, Any]:
        """Ask which of two outputs is better.

        Args:
            outputs: The two.
            inputs: What was asked for.
            reference_outputs: What it should have been.
            **extra: More variables of the prompt.

        Returns:
            ``key``, ``scores`` (1 for the better one, 0.5 each where neither is; None where there
            is no answer), ``comment`` and ``metadata``.

        Raises:
            InputError: There are not two outputs.
        """
        if len(outputs) != 2:
            raise InputError(f"outputs: two are compared, not {len(outputs)}")
        found = self.evaluator(
            inputs=inputs,
            reference_outputs=reference_outputs,
            **{**extra, "output_a": outputs[0], "output_b": outputs[1]},
        )
        scores = None if found["score"] is None else list(_SCORES[found["score"]])
        return {
            "key": self.key,
            "scores": scores,
            "comment": found["comment"],
            "metadata": found["metadata"],
        }


def create_pairwise_llm_as_judge(
    *,
    prompt: Any = PAIRWISE_PROMPT,
    model: str | None = None,
    feedback_key: str = "preference",
    judge: Any = None,
    system: str | None = None,
    use_reasoning: bool = True,
    **options: Unpack[Options],
) -> PairwiseJudge:
    """Create an evaluator that asks a language model which of two outputs is better.

    Args:
        prompt: As for `create_llm_as_judge`, with ``{output_a}`` and ``{output_b}`` for the
            outputs; the score it asks for is 1 if A is better, 3 if B is, 2 if neither.
        model: As there.
        feedback_key: The question's name.
        judge: As there.
        system: As there.
        use_reasoning: As there.
        **options: As there.

    Raises:
        ConfigError: An argument is wrong; the text names it.
    """
    made = create_llm_as_judge(
        prompt=prompt,
        model=model,
        system=system,
        feedback_key=feedback_key,
        judge=judge,
        choices=list(_SCORES),
        use_reasoning=use_reasoning,
        **options,
    )
    return PairwiseJudge(made)
