"""The decisions in docs/decisions are few, complete, and their links resolve."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .make import ROOT

FOLDER = ROOT / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))
QUESTION = "What would make us change it:"
LINK = re.compile(r"decisions/\d{3}-[\w.-]+?\.md")


def linked(page: Path) -> set[str]:
    """Return the relative links of a page, without anchors."""
    return set(re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text("utf-8")))


def test_there_are_at_most_60_decisions_numbered_without_gaps() -> None:
    """A detail of one function belongs beside the function, and not on a page."""
    assert len(PAGES) <= 60
    assert [int(page.name[:3]) for page in PAGES] == list(range(1, len(PAGES) + 1))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_decision_ends_with_the_conditions_of_a_change(page: Path) -> None:
    """The title is first, the last paragraph says when to decide anew, and links resolve."""
    text = page.read_text("utf-8")

    assert text.startswith("# ")
    assert text.strip().rpartition("\n\n")[2].startswith(QUESTION)
    assert not {link for link in linked(page) if not (FOLDER / link).exists()}


def test_the_index_lists_each_decision_once_with_its_title() -> None:
    """docs/decisions/README.md has the title of every page, in the order of the numbers."""
    index = (FOLDER / "README.md").read_text("utf-8")

    assert re.findall(r"^- \[(.+)\]\((.+)\)$", index, re.MULTILINE) == [
        (page.read_text("utf-8").partition("\n")[0].removeprefix("# "), page.name) for page in PAGES
    ]


def test_decisions_that_other_files_cite_exist() -> None:
    """A path of a decision in code, settings or documentation is a page."""
    folders = ("oteval", "tests", "docs", "scripts", "benchmarks", "examples", "collector")
    files = [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile"]
    for folder in folders:
        files += [p for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".md", ".toml")]
    cited = {path for file in files for path in LINK.findall(file.read_text("utf-8", "replace"))}

    assert not {path for path in cited if not (ROOT / "docs" / path).exists()}
