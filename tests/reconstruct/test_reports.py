"""Situations from public bug reports against tracing and evaluation tools come out right.

Each folder of `tests/data/reports` has the traces that such an emitter would send, or a script;
``right.json`` says what must come of them, and ``check.py`` compares by the command line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .builders import DATA

REPORTS = DATA / "reports"
CASES = sorted(json.loads((REPORTS / "right.json").read_text()))

pytestmark = pytest.mark.slow


def test_every_folder_is_a_case() -> None:
    """None is forgotten in ``right.json``."""
    folders = {path.name for path in REPORTS.iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_a_case_comes_out_right(case: str) -> None:
    """Messages, gaps, scores, conversations and costs are those of ``right.json``."""
    command = Path(sys.executable).parent / "oteval"
    done = subprocess.run(
        [sys.executable, "check.py", ".", case],
        cwd=REPORTS,
        env={**os.environ, "OTEVAL": str(command)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
