"""``oteval report --html``: one file with everything in it, for people to look at.

`sources` reads runs with their verdicts from a store, `build` counts and compares them, and `page`
renders the result. Trace content is hostile: the template escapes every text, the script inserts
it as text only, and the page's Content-Security-Policy allows only the page's own script and style
and no requests.
"""

from __future__ import annotations

from .build import ReportOptions, build, build_stored, stored_tallies
from .model import Report, ReportRun, RunVerdict
from .page import render
from .sources import (
    comparisons_of,
    from_experiments,
    from_keys,
    grouping,
    pairwise_of,
    run_groups,
)

__all__ = [
    "Report",
    "ReportOptions",
    "ReportRun",
    "RunVerdict",
    "build",
    "build_stored",
    "comparisons_of",
    "from_experiments",
    "from_keys",
    "grouping",
    "pairwise_of",
    "render",
    "run_groups",
    "stored_tallies",
]
