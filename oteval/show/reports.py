"""Scores as files for other programs and people: JUnit XML for CI, Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from xml.etree import ElementTree

from ..model import Score
from ..pipeline import GateResult, Tally, worst_first
from .run_titles import unique
from .text import clean

__all__ = ["junit_report", "markdown_cell", "markdown_report"]


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
    suites: dict[str, list[Score]] = {}
    for score in scores:
        suites.setdefault(score.evaluator, []).append(score)
    root = ElementTree.Element("testsuites", name="oteval")
    for name, members in suites.items():
        counts = {
            "tests": len(members),
            "failures": sum(member.passed is False for member in members),
            "errors": sum(member.status == "error" for member in members),
            "skipped": sum(member.status == "not_evaluated" for member in members),
        }
        attributes = {key: str(value) for key, value in counts.items()}
        suite = ElementTree.SubElement(root, "testsuite", {"name": clean(name), **attributes})
        names = unique(titles.get(one.trajectory_id, one.trajectory_id) for one in members)
        for name_of_case, member in zip(names, members, strict=True):
            _case(suite, name_of_case, member)
    ElementTree.indent(root)
    return ElementTree.tostring(root, "unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, name: str, score: Score) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=clean(score.evaluator), name=clean(name)
    )
    message = clean(score.comment).replace("\n", " ")
    if score.status == "error":
        ElementTree.SubElement(case, "error", message=message)
    elif score.status == "not_evaluated":
        ElementTree.SubElement(case, "skipped", message=message)
    elif score.passed is False:
        ElementTree.SubElement(case, "failure", message=message or "failed")


def markdown_report(
    tallies: Mapping[str, Tally],
    gates: Sequence[GateResult],
    failures: Sequence[Score],
    left_out: int = 0,
) -> str:
    """Return the outcome of a scoring as Markdown.

    Args:
        tallies: The counts by evaluator.
        gates: The gates' results.
        failures: The scores to list: fails, errors and those not evaluated.
        left_out: How many more there are.
    """
    lines = ["# oteval", "", "| evaluator | passed | failed | errors | not evaluated | pass rate |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for counted in worst_first(tallies.values()):
        rate = "-" if counted.pass_rate is None else f"{counted.pass_rate:.3f}"
        cells = [counted.passed, counted.failed, counted.errors, counted.not_evaluated, rate]
        lines.append(f"| {markdown_cell(counted.evaluator)} | {' | '.join(map(str, cells))} |")
    if gates:
        lines += ["", "## Gates", ""]
        for gate in gates:
            state = "passed" if gate.passed else "**failed**"
            lines.append(
                f"- {markdown_cell(gate.evaluator)}: {state} ({markdown_cell(gate.comment)})"
            )
    if failures:
        lines += ["", "## Not passed", "", "| trajectory | evaluator | outcome | why |"]
        lines.append("|---|---|---|---|")
        for score in failures:
            outcome = score.label or score.status
            cells = [score.trajectory_id, score.evaluator, outcome, score.comment]
            lines.append(f"| {' | '.join(markdown_cell(str(cell)) for cell in cells)} |")
    if left_out:
        lines += ["", f"{left_out:,} more did not pass; `oteval scores` lists them by `--status`."]
    return "\n".join(lines) + "\n"


def markdown_cell(text: str) -> str:
    """Return text that can neither end a table's cell nor be taken for markup."""
    escaped = clean(text).replace("\n", " ")
    for mark in ("\\", "|", "<", ">", "`", "*", "_", "[", "]", "!"):
        escaped = escaped.replace(mark, f"\\{mark}")
    return escaped
