"""Views of trajectories, scores and experiments: terminal tables and report files. Read only.

Trace content is hostile: it is shown as plain text with its control characters made visible, never
as markup.
"""

from __future__ import annotations

from .columns import Trimmed
from .deletions import audit_table, deleted_text
from .diff import diff_view
from .experiment_reports import (
    comparative_junit,
    comparative_markdown,
    comparison_junit,
    comparison_markdown,
    experiment_junit,
    experiment_markdown,
)
from .experiments import (
    comparative_view,
    comparison_view,
    datasets_table,
    experiments_table,
    figures_table,
    run_errors_table,
)
from .explanation import explanation_view
from .reports import junit_report, markdown_report
from .run_titles import run_title
from .tables import (
    judge_summary,
    list_order_notes,
    load_summary,
    references_table,
    scores_table,
    tallies_table,
    trajectories_table,
    variants_table,
)
from .terminal import trajectory_view
from .text import one_line

__all__ = [
    "Trimmed",
    "audit_table",
    "comparative_junit",
    "comparative_markdown",
    "comparative_view",
    "comparison_junit",
    "comparison_markdown",
    "comparison_view",
    "datasets_table",
    "deleted_text",
    "diff_view",
    "experiment_junit",
    "experiment_markdown",
    "experiments_table",
    "explanation_view",
    "figures_table",
    "judge_summary",
    "junit_report",
    "list_order_notes",
    "load_summary",
    "markdown_report",
    "one_line",
    "references_table",
    "run_errors_table",
    "run_title",
    "scores_table",
    "tallies_table",
    "trajectories_table",
    "trajectory_view",
    "variants_table",
]
