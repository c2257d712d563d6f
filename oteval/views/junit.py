"""JUnit XML for CI: suites of cases, each passed or with an outcome and its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple
from xml.etree import ElementTree

from .run_titles import unique
from .text import clean

__all__ = ["JUnitCase", "Outcome", "junit"]

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
            _add(suite, {"classname": clean(title), "name": clean(unique_name)}, case)
    ElementTree.indent(root)
    return ElementTree.tostring(root, "unicode", xml_declaration=True) + "\n"


def _add(suite: ElementTree.Element, attributes: dict[str, str], case: JUnitCase) -> None:
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
