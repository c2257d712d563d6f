"""A check for failed tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ...base.patterns import Pattern
from ...messages import RULE_VERSION, CallOutcome, near_miss_of
from ...model import OutlineRequest, Reference
from ..factories import with_options_of
from ..options import NonNegativeInt, Regex
from ..outline import Unread
from ..views import outcome_by, results_of
from . import Call, Check, EvaluationContext, EvaluationResult, NotEvaluated, is_counted, listed

__all__ = ["ToolErrors", "create_tool_error_evaluator"]

_BECAUSE = {
    "": "",
    "recorded": "recorded as failed",
    "flagged": "the result is flagged",
    "reported": "the result reports an error",
    "written": "the result is the text of an error",
}
_HINT = "error_pattern decides otherwise which results are errors"


class _Outcomes(NamedTuple):
    """The failed calls, the calls of unknown outcome, and the calls that look nearly failed."""

    failed: list[tuple[Call, CallOutcome]]
    unknown: list[Call]
    near_misses: list[tuple[Call, str]]


@dataclass(frozen=True, kw_only=True)
class ToolErrors(Check):
    """Fails if too many calls failed.

    A call failed if its span or its message records a failure, if its result reports an error
    (``isError``, an ``error`` key, ``status: "error"``, ``success: false``), or if its result
    begins like an error (``ValueError: ...``, ``error: ...``, ``HTTP 500``, a traceback). The
    outcome of a call without a result is unknown. The comment shows the failed calls with the
    reason, and results that look similar to errors.

    Attributes:
        max_errors: The maximum number of failed calls.
        tools: The tools that count; ``*`` matches any text, ``?`` any character.
        error_pattern: A regular expression. Only results whose text it matches, or that are
            flagged, are errors; by default the result must report an error or begin like one.
        missing_ok: Whether a call without a result counts as successful; otherwise such a run is
            not evaluated.
    """

    type: ClassVar[str] = "tool_errors"

    max_errors: NonNegativeInt = 0
    tools: Sequence[str] | None = None
    error_pattern: Regex | None = None
    missing_ok: bool = False

    def outline_request(self, references: Sequence[Reference]) -> OutlineRequest | None:  # noqa: ARG002
        """The column that shows runs without failed calls, under the default pattern."""
        if self.error_pattern is not None:
            return None
        return OutlineRequest(frozenset({"sound_results"}))

    def evaluate_outline(self, context: EvaluationContext) -> EvaluationResult:
        """Pass a run without failed calls."""
        asking = [message for message in context.messages if message.tool_calls]
        if (
            not context.outline["sound_results"]
            or context.content_gap() is not None
            or any(message.role != "assistant" for message in asking)
        ):
            raise Unread("results")
        context.require_all_calls()
        return self.result((), _figures(self._counted(context), _Outcomes([], [], [])))

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Look for failed calls."""
        outcomes = self._outcomes(context)
        failed, unknown, near_misses = outcomes
        counted = self._counted(context)
        figures = _figures(counted, outcomes)
        if len(failed) > self.max_errors:
            count = f"{len(failed)} of {len(counted)} calls failed (at most {self.max_errors})"
            failures = listed([_failure_text(call, outcome) for call, outcome in failed])
            by_content = any(o.evidence in ("reported", "written") for _, o in failed)
            hint = [_HINT] if by_content and self.error_pattern is None else []
            return self.result([f"{count}: {failures}", *_not_counted(near_misses), *hint], figures)
        if len(failed) + len(unknown) > self.max_errors:
            raise NotEvaluated(f"no result of {listed(unknown)} is in the trace")
        if orphan := self._failed_without_call(context):
            raise NotEvaluated(f"a failed result belongs to no call in the trace: {orphan}")
        context.require_all_calls()
        remark = "; ".join([*_not_counted(near_misses), _HINT]) if near_misses else ""
        return EvaluationResult.of_verdict(True, comment=remark, metadata=figures)

    def describe(self) -> dict[str, Any]:
        """The options; without a pattern, the version of the default rule."""
        return {**super().describe(), "error_pattern": self.error_pattern or [RULE_VERSION]}

    def _counted(self, context: EvaluationContext) -> list[Call]:
        return [call for call in context.calls if is_counted(call, self.tools)]

    def _failed_without_call(self, context: EvaluationContext) -> str:
        """The text of the first failed result without a call, or ""."""
        paired = {id(result) for result in results_of(context.messages).values()}
        results = [message for message in context.messages if message.role == "tool"]
        compiled = None if self.error_pattern is None else Pattern(self.error_pattern)
        outcomes = (
            outcome_by(unpaired, compiled) for unpaired in results if id(unpaired) not in paired
        )
        return next((_reason(outcome) for outcome in outcomes if outcome.failed), "")

    def _outcomes(self, context: EvaluationContext) -> _Outcomes:
        results = results_of(context.messages)
        compiled = None if self.error_pattern is None else Pattern(self.error_pattern)
        outcomes = _Outcomes([], [], [])
        lost = context.content_gap() is not None
        for call in self._counted(context):
            result = results.get(call.index)
            if result is None:
                # Providers report failures of the tools that they run, but often omit results.
                if not (self.missing_ok or call.call.executed_by):
                    outcomes.unknown.append(call)
                continue
            outcome = outcome_by(result, compiled)
            if outcome.failed:
                outcomes.failed.append((call, outcome))
            elif result.content is None and lost:
                outcomes.unknown.append(call)
            elif compiled is None and (words := near_miss_of(result.content)):
                outcomes.near_misses.append((call, words))
        return outcomes


def _failure_text(call: Call, outcome: CallOutcome) -> str:
    return f"{call}: {_reason(outcome)} ({_BECAUSE[outcome.evidence]})"


def _reason(outcome: CallOutcome) -> str:
    text = " ".join((outcome.reason or "failed").split())
    return text if len(text) <= 80 else f"{text[:79]}…"


def _not_counted(near_misses: Sequence[tuple[Call, str]]) -> list[str]:
    """A remark on the results that look similar to errors, or an empty list."""
    if not near_misses:
        return []
    listing = listed([f"{call}: {words}" for call, words in near_misses])
    return [f"not counted as errors: {listing}"]


def _figures(counted: Sequence[Call], outcomes: _Outcomes) -> dict[str, Any]:
    failed = outcomes.failed
    return {
        "calls": len(counted),
        "errors": len(failed),
        "unknown": len(outcomes.unknown),
        "near_misses": len(outcomes.near_misses),
        "error_rate": len(failed) / len(counted) if counted else 0.0,
        "tools": sorted({call.call.name for call, _ in failed}),
    }


@with_options_of(ToolErrors)
def create_tool_error_evaluator(**options: Any) -> ToolErrors:
    """Create an evaluator that fails if too many tool calls failed.

    Args:
        **options: The options of `ToolErrors`.

    Raises:
        ConfigError: An option is wrong; the text names it.
    """
    return ToolErrors(**options)
