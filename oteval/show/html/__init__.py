"""``oteval report --html``: one file with everything in it, for people to look at.

`sources` reads runs with their verdicts from a store, `build` counts and compares them, `page`
renders what came of it. What traces hold is hostile: every text is escaped by the template or put
into the page as text by the script, and the page's Content-Security-Policy allows no script or
style but its own and no request at all.
"""

from __future__ import annotations

from .build import Options, build
from .data import Item, Report, Verdict
from .page import render
from .sources import from_experiments, from_store, pairwise_of

__all__ = [
    "Item",
    "Options",
    "Report",
    "Verdict",
    "build",
    "from_experiments",
    "from_store",
    "pairwise_of",
    "render",
]
