"""The pages of the documentation: their list, links, headings and blocks of code."""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
DECISIONS = DOCS / "decisions"
# The pages outside docs/ that are also on the site.
_OTHERS = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/RESULTS.md",
    "collector/README.md",
    "examples/README.md",
    "examples/extending.md",
)
PAGES = [*(ROOT / name for name in _OTHERS), *sorted(DOCS.rglob("*.md"))]
GUIDES = [
    page
    for page in PAGES
    if page == ROOT / "README.md" or (DOCS in page.parents and page.parent != DECISIONS)
]
"""The pages with tested examples: all except decisions and pages with other tests."""

_FENCE = re.compile(r"^( *)```(\w*).*?\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`|^ {4}.*$", re.MULTILINE)  # within a line, or an indented block
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    """Return a page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def navigation() -> list[str]:
    """Return the pages of the site in its order, as paths in the repository."""
    return list(
        _leaves(tomllib.loads((DOCS / "zensical.toml").read_text("utf-8"))["project"]["nav"])
    )


def _leaves(entry: Any) -> Iterator[str]:
    match entry:
        case str():
            yield entry
        case dict():
            yield from _leaves(list(entry.values()))
        case list():
            for item in entry:
                yield from _leaves(item)


def outside_navigation() -> set[str]:
    """Return the pages that the navigation lacks, has twice, or has although they do not exist.

    The navigation has the page of contents of the decisions instead of the decisions.
    """
    names = Counter(navigation())
    expected = {name_of(page) for page in PAGES if page.parent != DECISIONS}
    expected.add(name_of(DECISIONS / "README.md"))
    return (expected ^ names.keys()) | {name for name in names if names[name] > 1}


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """Yield the blocks of code of a page in some languages, without their indentation."""
    for _, language, code in _FENCE.findall(page.read_text("utf-8")):
        if language in languages:
            yield textwrap.dedent(code)


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Yield the target file and the anchor of each relative link of a page."""
    text = _CODE.sub("", _FENCE.sub("", page.read_text("utf-8")))
    for link in _LINK.findall(text):
        if not re.match(r"[a-z]+:", link):
            name, _, anchor = unquote(link).partition("#")
            target = (page.parent / name).resolve() if name else page
            yield target, anchor


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, in the form of GitHub and the site."""
    names: Counter[str] = Counter()
    result = set()
    for heading in re.findall(r"^#{1,6} (.*)$", _FENCE.sub("", page.read_text("utf-8")), re.M):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        result.add(f"{name}-{names[name]}" if names[name] else name)
        names[name] += 1
    return result
