"""Programs of agents in processes of their own, where exits, signals and forks are real."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TIMEOUT = 120.0


def start_program(code: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start a Python program with its output in pipes.

    Args:
        code: The program.
        arguments: Its arguments.
        variables: Environment variables, added to those of this process.
    """
    environment = {name: value for name, value in os.environ.items() if "OTEL" not in name}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT), **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_program(code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end, and return its status and output."""
    program = start_program(code, *arguments, **variables)
    out, err = program.communicate(timeout=TIMEOUT)
    return subprocess.CompletedProcess(program.args, program.returncode, out, err)
