"""Trajectories and scores for people to look at: in the terminal, and in report files. Read only.

What traces hold is hostile: everything from them is shown as plain text with its control
characters made visible, never as markup.
"""

from __future__ import annotations

from .explanation import explanation_view
from .reports import junit_report, markdown_report
from .tables import (
    load_summary,
    references_table,
    scores_table,
    tallies_table,
    trajectories_table,
    variants_table,
)
from .terminal import diff_view, trajectory_view
from .text import one_line

__all__ = [
    "diff_view",
    "explanation_view",
    "junit_report",
    "load_summary",
    "markdown_report",
    "one_line",
    "references_table",
    "scores_table",
    "tallies_table",
    "trajectories_table",
    "trajectory_view",
    "variants_table",
]
