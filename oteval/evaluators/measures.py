"""Measures of runs, each defined by a check: a monitor watches the figure of the check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..model import EvaluationResult
from .checks.loops import Loops
from .checks.tool_errors import ToolErrors
from .evaluator import Evaluator

__all__ = ["CHECK_MEASURES", "CheckMeasure"]


@dataclass(frozen=True)
class CheckMeasure:
    """The figure of a check, with its default options.

    Attributes:
        check: The check. A run that it does not evaluate has no value.
        figure: The name of the mean of the values, which are shares.
        value: Returns the value of a run from the result of the check.
    """

    check: Evaluator
    figure: str
    value: Callable[[EvaluationResult], float]


CHECK_MEASURES: Mapping[str, CheckMeasure] = {
    "tool_errors": CheckMeasure(
        ToolErrors(),
        "share of failed tool calls",
        lambda result: float(result.metadata["error_rate"]),
    ),
    "loops": CheckMeasure(
        Loops(), "share of runs with a loop", lambda result: float(not result.passed)
    ),
}
"""The measures by name. Only runs that call tools have a value."""
