"""docs/explanation/architecture.md and docs/reference/modules.md describe the code as it is."""

from __future__ import annotations

import re

import pytest

from scripts.make_architecture import (
    ARCHITECTURE,
    MODULES,
    ROOT,
    architecture,
    layers,
    modules_page,
    top_level,
)

PAGE = ARCHITECTURE.read_text("utf-8")
# Code in backticks that is a path: with a slash or an ending, and no spaces, stars or brackets.
PATHS = sorted(set(re.findall(r"`([\w./]+(?:/|\.py|\.md|\.toml))`", PAGE)))
FOLDERS = (
    "",
    "oteval",
    "oteval/reconstruct",
    "oteval/serve",
    "oteval/serve/publish",
    "oteval/ingest/receiver",
)


def test_every_package_has_a_layer() -> None:
    """The import contracts, and so the page, name each package and module below oteval."""
    assert {name for layer in layers() for name in layer} == top_level()


def test_the_generated_parts_are_current() -> None:
    """Layers, imports and descriptions follow the code; `make_architecture` writes them."""
    assert architecture() == PAGE
    assert MODULES.read_text("utf-8") == modules_page()


@pytest.mark.parametrize("path", PATHS)
def test_every_path_on_the_page_exists(path: str) -> None:
    """A path is relative to the repository, the package, or the package its section is about."""
    found = [ROOT / folder / path for folder in FOLDERS] + list((ROOT / "oteval").rglob(path))

    assert any(place.exists() for place in found)


def test_classes_on_the_page_exist() -> None:
    """Names in camel case are classes of the package."""
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "oteval").rglob("*.py"))
    for name in set(re.findall(r"\b[A-Z][a-z]+[A-Z][A-Za-z]+\b", PAGE)) - {
        "ClickHouse",
        "DuckDB",
        "OpenTelemetry",
    }:
        assert re.search(rf"^class {name}\b", source, re.MULTILINE), name
