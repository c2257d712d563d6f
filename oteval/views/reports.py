"""Scores as files for other programs and people: JUnit XML for CI, Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..model import EvaluationResult, Score, VerdictState
from ..scoring import GateResult, Tally
from .junit import JUnitCase, Outcome, junit
from .markdown import markdown_cell, markdown_columns, markdown_table
from .tables import tallies_table

__all__ = ["junit_report", "markdown_report", "outcome_of"]


def junit_report(scores: Iterable[Score], titles: Mapping[str, str] | None = None) -> str:
    """Return scores as JUnit XML: a suite per evaluator, a case per trajectory.

    A fail becomes a failure and an error an error. Runs that were not evaluated are skipped, so
    that CI never counts them as passed.

    Args:
        scores: The scores.
        titles: The cases' names by trajectory id (`run_title`); a run without one is named by
            its id.
    """
    titles = titles or {}
    suites: dict[str, list[JUnitCase]] = {}
    for score in scores:
        name = titles.get(score.trajectory_id, score.trajectory_id)
        case = JUnitCase(name, outcome_of(score), score.comment)
        suites.setdefault(score.evaluator, []).append(case)
    return junit(suites)


_OUTCOMES: Mapping[VerdictState, Outcome] = {"fail": "failure", "error": "error", "none": "skipped"}


def outcome_of(result: EvaluationResult) -> Outcome:
    """The outcome of a case by the result of an evaluator."""
    return _OUTCOMES.get(result.state, "")


def markdown_report(
    tallies: Mapping[str, Tally],
    gates: Sequence[GateResult],
    failures: Sequence[Score],
    left_out: int = 0,
) -> str:
    """The outcome of a scoring as Markdown.

    Args:
        tallies: The counts by evaluator.
        gates: The gates' results.
        failures: The scores to list: fails, errors, and runs that were not evaluated.
        left_out: How many more there are.
    """
    lines = ["# oteval", "", markdown_columns(tallies_table(tallies.values()))]
    if gates:
        lines += ["", "## Gates", ""]
        for gate in gates:
            state = "passed" if gate.passed else "**failed**"
            lines.append(
                f"- {markdown_cell(gate.evaluator)}: {state} ({markdown_cell(gate.comment)})"
            )
    if failures:
        rows = [
            (score.trajectory_id, score.evaluator, score.label or score.status, score.comment)
            for score in failures
        ]
        table = markdown_table(("trajectory", "evaluator", "outcome", "why"), rows)
        lines += ["", "## Not passed", "", table]
    if left_out:
        lines += ["", f"{left_out:,} more did not pass; `oteval scores` lists them by `--status`."]
    return "\n".join(lines) + "\n"
