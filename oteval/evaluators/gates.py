"""Gates over scores: the figures that scores must reach.

A missing figure meets no gate: an evaluator that raises on every run has no pass rate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from ..model import EvaluationResult
from .stats import PassRate, pass_rate

__all__ = ["GateResult", "Tally", "check_gate", "worst_first"]


_COUNTED_AS = {
    "pass": "passed",
    "fail": "failed",
    "score": "unjudged",
    "error": "errors",
    "none": "not_evaluated",
}


@dataclass
class Tally:
    """An evaluator's scores, counted.

    Attributes:
        evaluator: Its name.
        passed: Runs that passed.
        failed: Runs that failed.
        unjudged: Evaluated runs whose score neither passes nor fails.
        errors: Runs on which the evaluator raised an error.
        not_evaluated: Runs that could not be evaluated.
        total: The sum of the scores.
        scored: The number of scores with a number.
    """

    evaluator: str
    passed: int = 0
    failed: int = 0
    unjudged: int = 0
    errors: int = 0
    not_evaluated: int = 0
    total: float = 0.0
    scored: int = 0

    def add(self, result: EvaluationResult, runs: int = 1) -> None:
        """Count a score, or the same result of some runs."""
        name = _COUNTED_AS[result.state]
        setattr(self, name, getattr(self, name) + runs)
        if result.score is not None:
            self.total += result.score * runs
            self.scored += runs

    def merge(self, other: Tally) -> None:
        """Add the counts of another tally."""
        for field in fields(self):
            if field.name != "evaluator":
                total = getattr(self, field.name) + getattr(other, field.name)
                setattr(self, field.name, total)

    @property
    def evaluated(self) -> int:
        """How many runs were evaluated."""
        return self.passed + self.failed + self.unjudged

    @property
    def pass_rate(self) -> float | None:
        """The pass rate; see `stats.pass_rate`."""
        return self.rate.value

    @property
    def rate(self) -> PassRate:
        """The pass rate with its interval."""
        return pass_rate(self.passed, self.failed, self.errors)

    @property
    def mean(self) -> float | None:
        """The mean score; None without scores."""
        return self.total / self.scored if self.scored else None


@dataclass(frozen=True)
class GateResult:
    """Whether a gate was met, and why not.

    Attributes:
        evaluator: The evaluator's name.
        passed: Whether it was met.
        comment: Every requirement with the actual figure.
    """

    evaluator: str
    passed: bool
    comment: str


def worst_first(tallies: Iterable[Tally]) -> list[Tally]:
    """Return tallies in the order of interest.

    Evaluators with failures or errors come first, the lowest pass rate on top. Evaluators that
    could not evaluate any run follow, then all others.
    """

    def rank(counted: Tally) -> tuple[int, float]:
        if counted.failed or counted.errors:
            return 0, counted.pass_rate or 0.0
        return (2 if counted.evaluated else 1), 0.0

    return sorted(tallies, key=rank)


def check_gate(
    counted: Tally,
    *,
    min_pass_rate: float | None = None,
    min_score: float | None = None,
    min_evaluated: int = 1,
    max_errors: int | None = None,
) -> GateResult:
    """Whether a tally meets a gate; a missing figure does not.

    Args:
        counted: The evaluator's scores.
        min_pass_rate: The least pass rate, 0 to 1.
        min_score: The least mean score.
        min_evaluated: The least number of runs evaluated.
        max_errors: The most errors.
    """
    checks = [
        (
            counted.evaluated >= min_evaluated,
            f"evaluated {counted.evaluated} (at least {min_evaluated})",
        )
    ]
    if min_pass_rate is not None:
        checks.append(_at_least("pass rate", counted.pass_rate, min_pass_rate))
    if min_score is not None:
        checks.append(_at_least("mean score", counted.mean, min_score))
    if max_errors is not None:
        is_met = counted.errors <= max_errors
        checks.append((is_met, f"errors {counted.errors} (at most {max_errors})"))
    comment = ", ".join(text if is_met else f"{text}: not met" for is_met, text in checks)
    return GateResult(counted.evaluator, all(is_met for is_met, _ in checks), comment)


def _at_least(name: str, actual: float | None, least: float) -> tuple[bool, str]:
    figure = "none" if actual is None else f"{actual:.3f}"
    return actual is not None and actual >= least, f"{name} {figure} (at least {least:g})"
