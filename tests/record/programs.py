"""Programs of agents in processes of their own, where exits, signals and forks are real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
TIMEOUT = 60.0


@contextmanager
def start_program(code: str, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run a Python program with its output in pipes, and kill it if the block leaves it running.

    Args:
        code: The program.
        arguments: Its arguments.
        variables: Environment variables, added to those of this process.
    """
    environment = {name: value for name, value in os.environ.items() if "OTEL" not in name}
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def run_program(code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end, and return its status and output."""
    with start_program(code, *arguments, **variables) as program:
        out, err = program.communicate(timeout=TIMEOUT)
    return subprocess.CompletedProcess(program.args, program.returncode, out, err)


def exported(path: Path) -> list[dict[str, Any]]:
    """Return the spans in a file of OTLP/JSON lines: service, name, attributes."""
    spans = []
    for line in path.read_text().splitlines():
        for resource in json.loads(line).get("resourceSpans", []):
            named = {one["key"]: one["value"] for one in resource["resource"]["attributes"]}
            service = named["service.name"]["stringValue"]
            for scope in resource["scopeSpans"]:
                spans += [
                    {
                        "service": service,
                        "name": span["name"],
                        "attributes": {one["key"]: one["value"] for one in span["attributes"]},
                    }
                    for span in scope["spans"]
                ]
    return spans
