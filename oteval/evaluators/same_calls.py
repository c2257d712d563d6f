"""Compares the calls of a run that repeats a session with the calls of the recorded run.

`oteval whatif` uses it where no evaluator of oteval.yaml compares calls. It has no ``type`` in
oteval.yaml: `oteval.evaluators.match` compares with references that people choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..model import EvaluationResult
from .call_changes import call_changes
from .evaluator import EvaluationContext, Evaluator, NotEvaluated
from .messages import to_messages

__all__ = ["SameCalls"]

_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class SameCalls(Evaluator):
    """Fails if the calls of a run are not the calls of the recorded run.

    The comment names each change: `oteval.evaluators.call_changes` says which there are.
    """

    type: ClassVar[str] = "same_calls"

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Compare a run with the recorded run, which is the reference."""
        if context.reference_outputs is None:
            raise NotEvaluated("the recorded run is missing")
        recorded = to_messages(context.reference_outputs, "reference_outputs")
        difference = call_changes(context.messages, recorded)
        if not difference.changes:
            context.require_all_calls()
            if difference.undecided:
                raise NotEvaluated("; ".join(difference.undecided[:_NAMED]))
        more = len(difference.changes) - _NAMED
        texts = [*difference.changes[:_NAMED], *([f"and {more} more"] if more > 0 else [])]
        metadata = {"changes": list(difference.changes), "undecided": list(difference.undecided)}
        return EvaluationResult.of_verdict(
            not difference.changes, comment="; ".join(texts), metadata=metadata
        )
