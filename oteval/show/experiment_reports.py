"""Experiments and comparisons as files: JUnit XML for CI, Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from ..experiments import (
    ComparativeResults,
    Comparison,
    ExperimentResults,
    Feedback,
    Pair,
    ResultRow,
)
from ..text import counted
from .experiments import (
    difference_cells,
    failed_targets,
    interval_text,
    k_text,
    needed_lines,
    number,
    p_text,
)
from .reports import markdown_cell
from .run_titles import unique
from .text import clean, one_line, shorten

__all__ = [
    "comparative_junit",
    "comparative_markdown",
    "comparison_junit",
    "comparison_markdown",
    "experiment_junit",
    "experiment_markdown",
]

_LONGEST_NAME = 120
# A case of a suite: its name, and how and why it did not pass, if so.
_Case = tuple[str, str, str]


def experiment_junit(results: ExperimentResults) -> str:
    """Return an experiment as JUnit XML: a suite for each key and one for the target."""
    ran = [(_name(row), "error" if row.run.error else "", row.run.error) for row in results]
    suites: dict[str, list[_Case]] = {"target": ran}
    for key, members in results.feedback().items():
        suites[key] = [
            (_name(row), _outcome(feedback), feedback.comment) for row, feedback in members
        ]
    return _junit(results.name, suites)


def _name(row: ResultRow) -> str:
    repetition = row.run.repetition
    title = shorten(one_line(row.example.title), _LONGEST_NAME)
    return f"{title}#{repetition + 1}" if repetition else title


def _outcome(feedback: Feedback) -> str:
    if feedback.status == "error":
        return "error"
    if feedback.status == "not_evaluated":
        return "skipped"
    return "failure" if feedback.passed is False else ""


def comparison_junit(comparison: Comparison) -> str:
    """Return a comparison as JUnit XML: a case for each figure, failed where it regressed."""
    cases = [
        (
            difference.key,
            "failure" if difference.verdict == "regressed" else "",
            f"{difference.verdict}: {number(difference.mean_a)} to {number(difference.mean_b)} "
            f"({number(difference.delta, sign=True)}, p {p_text(difference.p_adjusted)})",
        )
        for difference in comparison.differences
    ]
    cases += [
        (key, "failure", f"no verdict in {comparison.b.name}") for key in comparison.unverified
    ]
    return _junit("oteval", {f"{comparison.a.name} vs {comparison.b.name}": cases})


def comparative_junit(results: ComparativeResults) -> str:
    """Return a pairwise comparison as JUnit XML: a case for each pair, failed where b lost."""
    suites: dict[str, list[_Case]] = {}
    for pair in results.pairs():
        outcome = "failure" if pair.verdict() == "a" else "" if pair.examples else "error"
        why = f"win rate {number(pair.win_rate)}, p {p_text(pair.p_adjusted)}"
        suites.setdefault(pair.key, []).append((f"{pair.a} vs {pair.b}", outcome, why))
    return _junit(results.name, suites)


def _junit(name: str, suites: dict[str, list[_Case]]) -> str:
    every_case = [case for cases in suites.values() for case in cases]
    root = ElementTree.Element("testsuites", {"name": clean(name), **_counts(every_case)})
    for title, cases in suites.items():
        attributes = {"name": clean(title), **_counts(cases)}
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        names = unique(case for case, _, _ in cases)
        for case, (_, outcome, why) in zip(names, cases, strict=True):
            element = ElementTree.SubElement(
                suite, "testcase", classname=clean(title), name=clean(case)
            )
            if outcome:
                message = clean(why).replace("\n", " ") or outcome
                ElementTree.SubElement(element, outcome, message=message)
    ElementTree.indent(root)
    return ElementTree.tostring(root, "unicode", xml_declaration=True) + "\n"


def _counts(cases: Sequence[_Case]) -> dict[str, str]:
    """Return the attributes that count cases by outcome."""
    outcomes = [outcome for _, outcome, _ in cases]
    counts = {
        "tests": len(cases),
        "failures": outcomes.count("failure"),
        "errors": outcomes.count("error"),
        "skipped": outcomes.count("skipped"),
    }
    return {key: str(value) for key, value in counts.items()}


def experiment_markdown(results: ExperimentResults, comparison: Comparison | None = None) -> str:
    """Return an experiment as Markdown, with a comparison if one is given."""
    figures = results.summary()
    rows = [
        [
            *(figure.key, str(figure.evaluated)),
            *("-" if figure.passed is None else str(figure.passed), str(figure.errors)),
            *(number(figure.mean), interval_text(figure.interval)),
            *(k_text(figure.pass_at), k_text(figure.pass_hat)),
        ]
        for figure in figures
    ]
    head = ("score", "evaluated", "passed", "errors", "mean", "95% interval", "pass@k", "pass^k")
    parts = [
        f"# {markdown_cell(results.name)}",
        failed_targets(results) or f"{counted(len(results), 'run')}, 0 failed.",
    ]
    parts.append(_rows(head, rows))
    if comparison is not None:
        parts.append(comparison_markdown(comparison, level=2))
    return "\n\n".join(parts).rstrip() + "\n"


def _short_cell(title: str) -> str:
    return markdown_cell(shorten(title, _LONGEST_NAME))


def comparison_markdown(comparison: Comparison, level: int = 1) -> str:
    """Return a comparison as Markdown."""
    title = f"{'#' * level} {markdown_cell(comparison.a.name)} → {markdown_cell(comparison.b.name)}"
    head = ("score", "first", "second", "delta", "95% interval", "p", "p adj.", "could see")
    rows = []
    for difference in comparison.differences:
        verdict = (
            f"**{difference.verdict}**" if difference.verdict == "regressed" else difference.verdict
        )
        rows.append([difference.key, *difference_cells(difference), verdict])
    table = _rows((*head, "pairs", "lost", "verdict"), rows, marked=1)
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
    return "\n".join([title, "", table, *needed, *more]) + "\n"


def comparative_markdown(results: ComparativeResults) -> str:
    """Return a pairwise comparison as Markdown."""
    head = ("question", "first", "second", "wins", "losses", "ties", "errors", "win rate")
    rows = [
        [
            *(pair.key, pair.a, pair.b),
            *(f"{value:g}" for value in (pair.wins_a, pair.wins_b, pair.ties, pair.errors)),
            *(number(pair.win_rate), interval_text(pair.interval), p_text(pair.p_adjusted)),
            *("-" if pair.flip_rate is None else f"{pair.flip_rate:.0%}", _better(pair)),
        ]
        for pair in results.pairs()
    ]
    parts = [f"# {markdown_cell(results.name)}"]
    parts.append(_rows((*head, "95% interval", "p adj.", "flips", "better"), rows))
    ranking = results.ranking()
    if ranking:
        ranks = [
            [each.key, each.name, number(each.strength, sign=True), interval_text(each.interval)]
            for each in ranking
        ]
        parts.append(_rows(("question", "experiment", "strength", "95% interval"), ranks))
    return "\n\n".join(parts) + "\n"


def _better(pair: Pair) -> str:
    verdict = pair.verdict()
    return {"a": pair.a, "b": pair.b}.get(verdict, verdict)


def _rows(head: Iterable[str], rows: Sequence[Sequence[str]], marked: int = 0) -> str:
    """Return a table; the last `marked` cells of a row are Markdown already."""
    names = list(head)
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for row in rows:
        split = len(row) - marked
        cells = [*(markdown_cell(cell) for cell in row[:split]), *row[split:]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
