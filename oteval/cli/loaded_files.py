"""Load trace files for a command, and report their unreadable parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.text import counted
from ..scoring import FileReport, LoadReport
from .common import progress, warn, warn_of_problems

if TYPE_CHECKING:
    from ..store import Store

__all__ = ["load_files"]


def load_files(store: Store, paths: tuple[str, ...]) -> LoadReport:
    """Load files and folders with a progress bar, and report unreadable parts on standard error."""
    from ..scoring import load

    with progress("reading", " bytes") as update:
        report = load(store, paths, update)
    for file in report.files:
        _report_problems(file)
    return report


def _report_problems(file: FileReport) -> None:
    warn_of_problems(file.problems, file.problem_count, file.path, "part")
    for name in file.written.conflicts:
        warn(
            f"{file.path}: span {name} appears again with different content; the first one is kept"
        )
    if file.error:
        warn(file.error)
    elif not (file.spans or file.logs or file.runs or file.problem_count):
        warn(f"{file.path}: contains no spans, log records or conversations")
    if file.traceless_logs and not file.spans:
        records = counted(file.traceless_logs, "log record")
        warn(f"{file.path}: contains no spans, and {records} without a trace id, so without a run")
