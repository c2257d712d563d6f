"""A check of why models stopped, to catch answers that were cut off or filtered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...base.errors import ConfigError
from ...model import normal_finish_reason
from ..factories import with_options_of
from .base import Check, EvaluationContext, EvaluationResult, NotEvaluated

__all__ = ["FinishReason", "create_finish_reason_evaluator", "cut_reason"]

_OWN = ("stop", "tool_call", "compaction", "pause_turn")
_CUT = {
    "length": "the answer was cut off at its limit of tokens",
    "content_filter": "a filter of the provider ended the answer",
    "error": "an error ended the answer",
}


@dataclass(frozen=True, kw_only=True)
class FinishReason(Check):
    """Fails if a model stopped for any reason other than having finished.

    Reasons are converted to OpenTelemetry's values (``stop``, ``length``, ``content_filter``,
    ``tool_call``, ``error``) before they are compared.

    Attributes:
        allowed: The reasons that pass.
    """

    type: ClassVar[str] = "finish_reason"
    needs_messages: ClassVar[bool] = False

    allowed: Sequence[str] = _OWN

    def check_combination(self) -> None:
        """Refuse a check that no run can pass."""
        if isinstance(self.allowed, str) or not self.allowed:
            raise ConfigError(f"allowed is {self.allowed!r}; give a list such as [stop, tool_call]")

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Compare the reasons of all model calls of the runs."""
        if not context.runs:
            raise NotEvaluated("messages alone do not tell it; pass a Trajectory")
        allowed = set(map(normal_finish_reason, self.allowed))
        reasons = Counter(reason for run in context.runs for reason in run.finish_reasons)
        calls = sum(run.usage.model_calls for run in context.runs)
        problems = [
            f"{_CUT.get(reason, f'the model stopped with {reason!r}')} (finish reason {reason}, "
            f"in {count} of {calls} model calls)"
            for reason, count in reasons.items()
            if reason not in allowed
        ]
        if not problems and not calls:
            raise NotEvaluated("the trace shows no model call")
        if not problems and reasons.total() < calls:
            raise NotEvaluated(
                f"the trace does not tell why the model stopped in {calls - reasons.total()} of "
                f"{calls} model calls"
            )
        return self.result(problems, {"finish_reasons": dict(reasons), "model_calls": calls})


def cut_reason(context: EvaluationContext) -> str:
    """Why the last answer of a run is incomplete, or ""."""
    run = context.trajectory
    # The last reason belongs to the last answer only if every call has a reason.
    if run is None or not run.finish_reasons:
        return ""
    if len(run.finish_reasons) != run.usage.model_calls:
        return ""
    reason = run.finish_reasons[-1]
    return f"{_CUT[reason]} (finish reason {reason})" if reason in _CUT else ""


@with_options_of(FinishReason)
def create_finish_reason_evaluator(**options: Any) -> FinishReason:
    """Create an evaluator that fails if a model's answer was cut off or filtered.

    Args:
        **options: The options of `FinishReason`.

    Raises:
        ConfigError: An option is wrong; the text names it.
    """
    return FinishReason(**options)
