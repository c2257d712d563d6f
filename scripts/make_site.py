"""Gathers the sources of the site in build/site-source, for Zensical; `make site` runs both.

The pages and the files that they link to keep their paths in the repository, so that links work on
the site as well.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from scripts.documentation import DOCS, PAGES, ROOT, links, outside_navigation

BUILD = ROOT / "build"


def site_files() -> set[Path]:
    """Return the pages of the site and all files that they link to."""
    return {*PAGES, *(target for page in PAGES for target, _ in links(page) if target.is_file())}


def gather(folder: Path) -> None:
    """Put the configuration of the site into a folder, and its files below that, anew."""
    source = folder / "site-source"
    shutil.rmtree(source, ignore_errors=True)
    for path in site_files():
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    shutil.copy(DOCS / "zensical.toml", folder)


if __name__ == "__main__":
    if pages := outside_navigation():
        raise SystemExit(f"not once in the navigation of docs/zensical.toml: {sorted(pages)}")
    gather(BUILD)
