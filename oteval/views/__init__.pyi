"""The names of `oteval.views` for other rooms; `__init__.py` loads them on first use."""

from .calibration import (
    calibration_view as calibration_view,
)
from .ci_reports import (
    comparative_junit as comparative_junit,
    comparative_markdown as comparative_markdown,
    comparison_junit as comparison_junit,
    comparison_markdown as comparison_markdown,
    experiment_junit as experiment_junit,
    experiment_markdown as experiment_markdown,
    junit_report as junit_report,
    markdown_report as markdown_report,
)
from .columns import (
    Trimmed as Trimmed,
)
from .diff import (
    diff_view as diff_view,
)
from .doctor import (
    doctor_view as doctor_view,
)
from .experiments import (
    comparative_view as comparative_view,
    comparison_view as comparison_view,
    datasets_table as datasets_table,
    experiments_table as experiments_table,
    failed_targets as failed_targets,
    figures_table as figures_table,
    run_errors_table as run_errors_table,
)
from .frames.csv_files import (
    export_csv as export_csv,
)
from .frames.database import (
    Database as Database,
    open as open,  # noqa: A004  read as oteval.open
)
from .frames.frame import (
    ColumnInfo as ColumnInfo,
    Frame as Frame,
)
from .mcp.http import (
    McpHttpServer as McpHttpServer,
)
from .mcp.server import (
    create_server as create_server,
    serve_stdio as serve_stdio,
)
from .mcp.workspace import (
    AgentUnderTest as AgentUnderTest,
    Workspace as Workspace,
)
from .monitors import (
    change_line as change_line,
    changes_table as changes_table,
    doubt_lines as doubt_lines,
    episodes_table as episodes_table,
    evidence_text as evidence_text,
    monitors_table as monitors_table,
    simulations_table as simulations_table,
)
from .notebook import (
    Plot as Plot,
)
from .pages.server import (
    NewLink as NewLink,
    serve_locally as serve_locally,
)
from .replay import (
    replay_junit as replay_junit,
    replay_markdown as replay_markdown,
    replay_summary as replay_summary,
    replays_view as replays_view,
    what_if_summary as what_if_summary,
    what_if_table as what_if_table,
)
from .report import (
    Report as Report,
    ReportOptions as ReportOptions,
    ReportRun as ReportRun,
    build as build,
    build_stored as build_stored,
    comparisons_of as comparisons_of,
    from_experiments as from_experiments,
    from_keys as from_keys,
    grouping as grouping,
    pairwise_of as pairwise_of,
    render as render,
    run_groups as run_groups,
    stored_tallies as stored_tallies,
)
from .run_changes import (
    ShownComparison as ShownComparison,
)
from .run_texts import (
    CHOICES as CHOICES,
    JSON_CHOICES as JSON_CHOICES,
    check_choices as check_choices,
    columns_of as columns_of,
    json_row as json_row,
    run_title as run_title,
    unknown_costs as unknown_costs,
)
from .tables import (
    audit_table as audit_table,
    deleted_text as deleted_text,
    judge_summary as judge_summary,
    list_order_notes as list_order_notes,
    load_summary as load_summary,
    references_table as references_table,
    scores_table as scores_table,
    tallies_table as tallies_table,
    trajectories_table as trajectories_table,
    variants_table as variants_table,
)
from .terminal import (
    explanation_view as explanation_view,
    trajectory_view as trajectory_view,
)
from .text import (
    clock as clock,
    one_line as one_line,
)
from .what_if_samples import (
    recovery_rows as recovery_rows,
    recovery_view as recovery_view,
    samples_view as samples_view,
)
