"""Experiments and comparisons as files: JUnit XML for CI, Markdown for a pull request."""

from __future__ import annotations

from ..base.text import counted
from ..scoring import ComparativeResults, Comparison, ExperimentResults, ResultRow
from .experiments import (
    changed_lines,
    comparative_table,
    comparison_table,
    failed_targets,
    figures_table,
    needed_lines,
    number,
    p_text,
    ranking_table,
)
from .junit import JUnitCase, Outcome, junit
from .markdown import markdown_cell, markdown_columns
from .reports import outcome_of
from .text import one_line, shorten

__all__ = [
    "comparative_junit",
    "comparative_markdown",
    "comparison_junit",
    "comparison_markdown",
    "experiment_junit",
    "experiment_markdown",
]

_LONGEST_NAME = 120


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


def _short_cell(title: str) -> str:
    return markdown_cell(shorten(title, _LONGEST_NAME))


def comparison_markdown(comparison: Comparison, level: int = 1) -> str:
    """A comparison as Markdown."""
    title = f"{'#' * level} {markdown_cell(comparison.a.name)} → {markdown_cell(comparison.b.name)}"
    table = markdown_columns(comparison_table(comparison))
    worse = [
        f"- {markdown_cell(difference.key)}: {_short_cell(comparison.title_of(example))} "
        f"{number(first)} → {number(second)}"
        for difference in comparison.regressed
        for example, first, second in difference.changed[:5]
    ]
    more = ["", f"{'#' * (level + 1)} Regressions", "", *worse] if worse else []
    lines = [f"{key}: no verdict in {comparison.b.name}" for key in comparison.unverified]
    notes = [f"- {markdown_cell(line)}" for line in (*lines, *needed_lines(comparison))]
    needed = ["", *notes] if notes else []
    changed = [f"- {markdown_cell(line)}" for line in changed_lines(comparison)]
    return "\n".join([title, "", *changed, "", table, *needed, *more]) + "\n"


def comparative_markdown(results: ComparativeResults) -> str:
    """A pairwise comparison as Markdown."""
    parts = [f"# {markdown_cell(results.name)}", markdown_columns(comparative_table(results))]
    if ranking := results.ranking():
        parts.append(markdown_columns(ranking_table(ranking)))
    return "\n\n".join(parts) + "\n"
