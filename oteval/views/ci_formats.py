"""Formats for CI: JUnit XML of cases, and Markdown tables for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple
from xml.etree import ElementTree

from .columns import Columns
from .run_texts import unique
from .text import clean

__all__ = ["JUnitCase", "Outcome", "junit", "markdown_cell", "markdown_columns", "markdown_table"]

Outcome = Literal["", "failure", "error", "skipped"]
"""How a case ended; "" for a pass."""


class JUnitCase(NamedTuple):
    """A case of a suite.

    Attributes:
        name: Its name; a name that is repeated in its suite gets a number.
        outcome: Its outcome.
        message: Why it did not pass, in one line.
        text: More about it.
        seconds: How long it took; None if unknown.
    """

    name: str
    outcome: Outcome = ""
    message: str = ""
    text: str = ""
    seconds: float | None = None


def junit(suites: Mapping[str, Sequence[JUnitCase]], name: str = "oteval") -> str:
    """Return suites of cases as JUnit XML."""
    every_case = [case for cases in suites.values() for case in cases]
    root = ElementTree.Element("testsuites", {"name": clean(name), **_counts(every_case)})
    for title, cases in suites.items():
        attributes = {"name": clean(title), **_counts(cases)}
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        names = unique(case.name for case in cases)
        for unique_name, case in zip(names, cases, strict=True):
            _add_case(suite, {"classname": clean(title), "name": clean(unique_name)}, case)
    ElementTree.indent(root)
    return ElementTree.tostring(root, "unicode", xml_declaration=True) + "\n"


def _add_case(suite: ElementTree.Element, attributes: dict[str, str], case: JUnitCase) -> None:
    if case.seconds is not None:
        attributes["time"] = f"{case.seconds:.3f}"
    element = ElementTree.SubElement(suite, "testcase", attributes)
    if case.outcome:
        unexplained = "failed" if case.outcome == "failure" else case.outcome
        message = clean(case.message).replace("\n", " ") or unexplained
        outcome = ElementTree.SubElement(element, case.outcome, message=message)
        outcome.text = clean(case.text) or None


def _counts(cases: Sequence[JUnitCase]) -> dict[str, str]:
    """The attributes that count cases by outcome."""
    outcomes = [case.outcome for case in cases]
    return {
        "tests": str(len(cases)),
        "failures": str(outcomes.count("failure")),
        "errors": str(outcomes.count("error")),
        "skipped": str(outcomes.count("skipped")),
    }


def markdown_cell(text: str) -> str:
    """Return text that can neither end a table's cell nor be taken for markup."""
    escaped = clean(text).replace("\n", " ")
    for mark in ("\\", "|", "<", ">", "`", "*", "_", "[", "]", "!"):
        escaped = escaped.replace(mark, f"\\{mark}")
    return escaped


def markdown_columns(table: Columns) -> str:
    """A table of the terminal with all of its columns; alarming cells are bold."""
    columns, rows = table.whole()
    cells = [
        [
            f"**{markdown_cell(cell.plain)}**"
            if str(cell.style) == "bold red"
            else markdown_cell(cell.plain)
            for cell in row
        ]
        for row in rows
    ]
    sides = ["---:" if column.right else "---" for column in columns]
    return _table([column.name for column in columns], sides, cells)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows of texts as a table."""
    return _table(head, ["---"] * len(head), [[*map(markdown_cell, row)] for row in rows])


def _table(head: Sequence[str], sides: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(sides)}|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
