"""Load trace files for a command, and report their unreadable parts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..base.text import counted
from ..scoring import FileReport, LoadReport
from .common import progress, warn, warn_of_problems

if TYPE_CHECKING:
    from ..store import Store

__all__ = ["database_for", "load_files"]


def database_for(paths: Iterable[str], db: str) -> str:
    """The database to load files into: in memory if it is new and none of the files exists.

    A command that only reports missing files thus leaves no empty database.

    Args:
        paths: The files and folders; "-" is standard input.
        db: The named database.
    """
    from ..store import MEMORY

    # Path.exists would raise for a folder that may not be read.
    has_any = any(path == "-" or os.path.exists(path) for path in (*paths, db))  # noqa: PTH110
    return db if has_any else MEMORY


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
