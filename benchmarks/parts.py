"""The interface of every part of the benchmarks, and its command line.

A part is a module with

- a docstring that says which work is measured and which is not;
- ``FULL`` and ``QUICK``: the keyword arguments of ``measure`` for the sizes people want and for a
  first look;
- ``measure(...) -> dict``: the figures, as JSON values; ``missing`` lists the peers that could
  not be measured and how to install them;
- ``rows(figures) -> list[Row]``: the figures as a table.

``measure`` checks the outcome of the work with `checks.check`. A check that fails leaves the part,
or the rows that it is about, without a figure.

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
from .checks import FAILED, failures, figures_or_failure

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
PEERS = {
    "peer": ("PYTHON", "an interpreter that has agentevals"),
    "peer_cli": ("PATH", "agentevals-cli's agentevals command"),
    "phoenix": ("PATH", "Phoenix' phoenix command"),
}
"""The arguments of ``measure`` that name a peer, with the kind and the meaning of their values."""
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
    arguments: dict[str, Any] = dict(part.QUICK if options.quick else part.FULL)
    parameters = inspect.signature(part.measure).parameters
    for name in PEERS:
        if name in parameters:
            arguments[name] = getattr(options, name)
    return figures_or_failure(lambda: part.measure(**arguments))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all parts have."""
    parser.add_argument("--quick", action="store_true", help="small sizes, for a first look")
    for name, (kind, about) in PEERS.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, metavar=kind, type=_command, help=about)


def _command(text: str) -> str:
    """Return a command that starts the same program from any folder."""
    return str(Path(text).absolute()) if os.sep in text else text


def text(part: ModuleType, figures: dict[str, Any]) -> str:
    """Return a part's figures for people to read."""
    if FAILED in figures:
        name = part.__name__.rpartition(".")[2]
        return report.table([report.not_measured(name, figures[FAILED])])
    notes = [f"- {line}" for line in figures.get("missing", ())]
    return "\n\n".join(filter(None, [report.table(part.rows(figures)), "\n".join(notes)]))


def main(name: str) -> None:
    """Run one part from the command line; its exit status is 1 when a figure is missing."""
    part = load(name)
    parser = argparse.ArgumentParser(description=(part.__doc__ or "").split("\n\n")[0])
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    figures = measure(part, options)
    print(json.dumps(figures) if options.json else text(part, figures))
    if not options.json and any(failures(figures)):
        sys.exit(1)
