"""Scores, experiments and comparisons for CI: JUnit XML, and Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..base.text import counted
from ..model import EvaluationResult, Score, VerdictState
from ..scoring import (
    ComparativeResults,
    Comparison,
    ExperimentResults,
    GateResult,
    ResultRow,
    Tally,
)
from .ci_formats import JUnitCase, Outcome, junit, markdown_cell, markdown_columns, markdown_table
from .experiments import (
    comparative_table,
    comparison_table,
    failed_targets,
    figures_table,
    needed_lines,
    number,
    p_text,
    ranking_table,
)
from .run_changes import changes_summary, shown_changes, unevaluated_lines
from .tables import tallies_table
from .text import one_line, shorten

__all__ = [
    "comparative_junit",
    "comparative_markdown",
    "comparison_junit",
    "comparison_markdown",
    "experiment_junit",
    "experiment_markdown",
    "junit_report",
    "markdown_report",
]

_LONGEST_NAME = 120
_MOST_CHANGES = 50


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


def experiment_junit(results: ExperimentResults) -> str:
    """An experiment as JUnit XML: a suite for each key and one for the target."""
    suites = {
        "target": [
            JUnitCase(_name(row), "error" if row.run.error else "", row.run.error)
            for row in results
        ]
    }
    for key, members in results.feedback().items():
        suites[key] = [
            JUnitCase(_name(row), outcome_of(feedback), feedback.comment)
            for row, feedback in members
        ]
    return junit(suites, results.name)


def _name(row: ResultRow) -> str:
    repetition = row.run.repetition
    title = shorten(one_line(row.example.title), _LONGEST_NAME)
    return f"{title}#{repetition + 1}" if repetition else title


def comparison_junit(comparison: Comparison) -> str:
    """A comparison as JUnit XML: a case for each figure, failed where it regressed."""
    cases = [
        JUnitCase(
            difference.key,
            "failure" if difference.verdict == "regressed" else "",
            f"{difference.verdict}: {number(difference.mean_a)} to {number(difference.mean_b)} "
            f"({number(difference.delta, sign=True)}, p {p_text(difference.p_adjusted)})",
        )
        for difference in comparison.differences
    ]
    cases += [
        JUnitCase(key, "failure", f"no verdict in {comparison.b.name}")
        for key in comparison.unverified
    ]
    return junit({f"{comparison.a.name} vs {comparison.b.name}": cases})


def comparative_junit(results: ComparativeResults) -> str:
    """A pairwise comparison as JUnit XML: a case for each pair, failed where b lost."""
    suites: dict[str, list[JUnitCase]] = {}
    for pair in results.pairs():
        is_worse = pair.verdict() == "a"
        outcome: Outcome = "failure" if is_worse else "" if pair.examples else "error"
        why = f"win rate {number(pair.win_rate)}, p {p_text(pair.p_adjusted)}"
        case = JUnitCase(f"{pair.a} vs {pair.b}", outcome, why)
        suites.setdefault(pair.key, []).append(case)
    return junit(suites, results.name)


def experiment_markdown(results: ExperimentResults, comparison: Comparison | None = None) -> str:
    """An experiment as Markdown, with a comparison if one is given."""
    parts = [
        f"# {markdown_cell(results.name)}",
        failed_targets(results) or f"{counted(len(results), 'run')}, 0 failed.",
        markdown_columns(figures_table(results)),
    ]
    if comparison is not None:
        parts.append(comparison_markdown(comparison, level=2))
    return "\n\n".join(parts).rstrip() + "\n"


def comparison_markdown(comparison: Comparison, level: int = 1) -> str:
    """A comparison as Markdown: the runs that broke, all other changes, then the statistics."""
    title = f"{'#' * level} {markdown_cell(comparison.a.name)} → {markdown_cell(comparison.b.name)}"
    shown = shown_changes(comparison)
    lines = [f"- {markdown_cell(change.line)}" for change in shown[:_MOST_CHANGES]]
    if len(shown) > _MOST_CHANGES:
        lines.append(f"- and {len(shown) - _MOST_CHANGES} more")
    unverified = [f"{key}: no verdict in {comparison.b.name}" for key in comparison.unverified]
    notes = [*unevaluated_lines(comparison), *unverified, *needed_lines(comparison)]
    return "\n".join(
        [
            *(title, "", *lines, *([""] if lines else [])),
            *(markdown_cell(changes_summary(comparison)), ""),
            markdown_columns(comparison_table(comparison)),
            *(["", *(f"- {markdown_cell(note)}" for note in notes)] if notes else []),
            "",
        ]
    )


def comparative_markdown(results: ComparativeResults) -> str:
    """A pairwise comparison as Markdown."""
    parts = [f"# {markdown_cell(results.name)}", markdown_columns(comparative_table(results))]
    if ranking := results.ranking():
        parts.append(markdown_columns(ranking_table(ranking)))
    return "\n\n".join(parts) + "\n"
