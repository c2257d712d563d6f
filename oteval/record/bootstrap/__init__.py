"""Start a function in every Python process of a command, without changing its code.

`environment` returns the variables that a command has to run with. They put this folder in front of
PYTHONPATH, so that each Python interpreter imports `sitecustomize` from here when it starts. That
module calls the function, then the interpreter runs its program. The folder stays on the path for
the children of the program, and has no other module that could be imported by accident.

    variables = environment("oteval.record.child_setup:start", {"to": "spans.jsonl"})
    subprocess.run(["python", "agent.py"], env={**os.environ, **variables})

The function is called with the settings, before the program's first line, in the main thread.
Python ignores PYTHONPATH with ``-I`` and ``-E``, and starts no `sitecustomize` with ``-S``. Only
the reports of the processes show whether the function was started.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "VARIABLE", "ProcessReport", "environment", "read_reports"]

FOLDER = Path(__file__).parent
VARIABLE = "OTEVAL_BOOTSTRAP"


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """One Python process's account of its start.

    Attributes:
        pid: The process.
        python: The path of the interpreter.
        argv: The command line.
        problem: Why the function was not started, or "".
    """

    pid: int
    python: str
    argv: tuple[str, ...]
    problem: str = ""


def environment(
    entry: str,
    settings: Mapping[str, Any],
    *,
    reports: Path | None = None,
    required: bool = False,
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment variables that start a function in every Python child.

    Args:
        entry: The function, as ``module:name``. It is called with the settings.
        settings: Its settings; plain JSON.
        reports: A file that each process appends its `ProcessReport` to. Without it, the first
            process that cannot start the function reports this on standard error.
        required: End a process with status 2 if it cannot start the function. By default the
            program runs without the function.
        environ: The environment that the variables are added to; by default the environment of this
            process.
    """
    environ = os.environ if environ is None else environ
    start: dict[str, Any] = {"entry": entry, "settings": dict(settings), "required": required}
    if reports is not None:
        start["reports"] = str(reports.absolute())
    inherited = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    paths = [str(FOLDER), *(path for path in inherited if path != str(FOLDER))]
    return {"PYTHONPATH": os.pathsep.join(paths), VARIABLE: json.dumps(start)}


def read_reports(path: Path) -> list[ProcessReport]:
    """Read the reports that processes have appended to a file; none if the file is missing."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    reports = []
    for line in lines:
        try:
            pid, python, argv, problem = json.loads(line)
        except ValueError:
            # The disk was full in the middle of a line.
            continue
        reports.append(ProcessReport(pid, python, tuple(argv), problem))
    return reports
