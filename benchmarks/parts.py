"""The interface of every part of the benchmarks, and its command line.

A part is a module with

- a docstring that says which work is measured and which is not;
- ``FULL`` and ``QUICK``: the keyword arguments of ``measure`` for the sizes people want and for a
  first look;
- ``measure(...) -> dict``: the figures, as JSON values; ``missing`` lists the peers that could
  not be measured and how to install them;
- ``rows(found) -> list[Row]``: the figures as a table.

A part that has a peer takes ``peer`` (an interpreter) or ``peer_cli`` (a command).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from . import report

PARTS = (
    "match",
    "stored_scoring",
    "variants",
    "large_store",
    "pages",
    "ingest",
    "memory",
    "reconstruct",
    "conversations",
    "histories",
    "imports",
    "instrument",
    "cli",
    "judge_rate",
    "judge_drift",
    "pairwise_bias",
    "coverage",
    "redaction",
    "replay_verify",
    "monitor",
    "monitor_compare",
    "monitor_store",
    "serve",
    "live_scoring",
)
MISSING_PEER = (
    "agentevals is not here to compare with: pip install 'oteval[peers]', or name an interpreter "
    "that has it with --peer PYTHON"
)
MISSING_CLI = (
    "agentevals-cli is not here to compare with: python -m venv ENV && ENV/bin/pip install "
    "agentevals-cli (a separate environment, since its package is also named agentevals), then "
    "--peer-cli ENV/bin/agentevals"
)


def load(name: str) -> ModuleType:
    """Return a part's module."""
    return importlib.import_module(f"benchmarks.{name}")


def find_peer(peer: str | None) -> str | None:
    """Return an interpreter that has agentevals: the one named, or this one if it has it."""
    if peer is not None:
        return peer
    return sys.executable if importlib.util.find_spec("agentevals") else None


def measure(part: ModuleType, options: argparse.Namespace) -> dict[str, Any]:
    """Measure a part as the command line asks."""
    wanted: dict[str, Any] = dict(part.QUICK if options.quick else part.FULL)
    taken = inspect.signature(part.measure).parameters
    for name in ("peer", "peer_cli", "phoenix"):
        if name in taken:
            wanted[name] = getattr(options, name)
    found: dict[str, Any] = part.measure(**wanted)
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all parts have."""
    parser.add_argument("--quick", action="store_true", help="small sizes, for a first look")
    for name, kind, about in (
        ("--peer", "PYTHON", "an interpreter that has agentevals"),
        ("--peer-cli", "PATH", "agentevals-cli's agentevals command"),
        ("--phoenix", "PATH", "Phoenix' phoenix command"),
    ):
        parser.add_argument(name, metavar=kind, type=_command, help=about)


def _command(text: str) -> str:
    """Return a command that starts the same program from any folder."""
    return str(Path(text).absolute()) if os.sep in text else text


def text(part: ModuleType, found: dict[str, Any]) -> str:
    """Return a part's figures for people to read."""
    notes = [f"- {line}" for line in found.get("missing", ())]
    return "\n\n".join(filter(None, [report.table(part.rows(found)), "\n".join(notes)]))


def main(name: str) -> None:
    """Run one part from the command line."""
    part = load(name)
    parser = argparse.ArgumentParser(description=(part.__doc__ or "").split("\n\n")[0])
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    found = measure(part, options)
    print(json.dumps(found) if options.json else text(part, found))
