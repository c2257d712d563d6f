"""A check of tools' results: whether calls failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...model import OutlineRequest, Reference
from ...patterns import Pattern
from ..factories import with_options_of
from ..options import NonNegativeInt, Regex
from ..outline import Unread
from ..spec import ERROR_PATTERN
from ..views import is_error, results_of
from .base import (
    Call,
    Check,
    EvaluationContext,
    EvaluationResult,
    NotEvaluated,
    is_counted,
    listed,
)

__all__ = ["ToolErrors", "create_tool_error_evaluator"]


@dataclass(frozen=True, kw_only=True)
class ToolErrors(Check):
    """Fails where too many calls failed.

    A call failed when its result says so by a flag (``is_error``, ``error``, ``status="error"``)
    or by its text. Of a call whose result is not known, it is not known either.

    Attributes:
        max_errors: How many calls may fail.
        tools: The tools that count; ``*`` and ``?`` stand for any text or character.
        error_pattern: A regular expression. A result whose text it matches is an error; by default
            the text must begin with Error, Exception, Traceback or Unknown action.
        missing_ok: Whether a call without a result counts as one that did not fail; otherwise such
            a run is not evaluated.
    """

    type: ClassVar[str] = "tool_errors"

    max_errors: NonNegativeInt = 0
    tools: Sequence[str] | None = None
    error_pattern: Regex | None = None
    missing_ok: bool = False

    def outline_request(self, references: Sequence[Reference]) -> OutlineRequest | None:  # noqa: ARG002
        """Return the column that shows runs without failed calls, by the default pattern."""
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
        return self.result((), _figures(self._counted(context), (), ()))

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Look for failed calls."""
        failed, unknown = self._failed(context)
        counted = self._counted(context)
        figures = _figures(counted, failed, unknown)
        if len(failed) > self.max_errors:
            count = f"{len(failed)} of {len(counted)} calls failed (at most {self.max_errors})"
            shown = listed([f"{call}: {why}" for call, why in failed])
            return self.result([f"{count}: {shown}"], figures)
        if len(failed) + len(unknown) > self.max_errors:
            raise NotEvaluated(f"no result of {listed(unknown)} is in the trace")
        context.require_all_calls()
        return self.result((), figures)

    @property
    def _pattern(self) -> str:
        return ERROR_PATTERN.pattern if self.error_pattern is None else self.error_pattern

    def describe(self) -> dict[str, Any]:
        """Return the options, with the pattern that is used."""
        return {**super().describe(), "error_pattern": self._pattern}

    def _counted(self, context: EvaluationContext) -> list[Call]:
        return [call for call in context.calls if is_counted(call, self.tools)]

    def _failed(self, context: EvaluationContext) -> tuple[list[tuple[Call, str]], list[Call]]:
        """Return the calls that failed, each with its result, and those of which one cannot say."""
        results, compiled = results_of(context.messages), Pattern(self._pattern)
        failed, unknown = [], []
        lost = context.content_gap() is not None
        for call in self._counted(context):
            result = results.get(call.index)
            if result is None:
                # Providers report failures of the tools that they run, and often no results.
                if not (self.missing_ok or call.call.executed_by):
                    unknown.append(call)
            elif is_error(result, compiled):
                text = " ".join((result.content or "failed").split())
                failed.append((call, text if len(text) <= 80 else f"{text[:79]}…"))
            elif result.content is None and lost:
                unknown.append(call)
        return failed, unknown


def _figures(
    counted: Sequence[Call], failed: Sequence[tuple[Call, str]], unknown: Sequence[Call]
) -> dict[str, Any]:
    return {
        "calls": len(counted),
        "errors": len(failed),
        "unknown": len(unknown),
        "error_rate": len(failed) / len(counted) if counted else 0.0,
        "tools": sorted({call.call.name for call, _ in failed}),
    }


@with_options_of(ToolErrors)
def create_tool_error_evaluator(**options: Any) -> ToolErrors:
    """Create an evaluator that fails where too many tool calls failed.

    Args:
        **options: The options of `ToolErrors`.

    Raises:
        ConfigError: An option is wrong; the text names it.
    """
    return ToolErrors(**options)
