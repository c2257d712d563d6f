"""Run the captures through oteval and its peers, and print the table.

    python -m benchmarks.fidelity [--data FOLDER] [--peer NAME=PYTHON ...] [--faults]

``make bench-fidelity`` makes the environments of the peers first. To add a capture, put its
OTLP/JSON into the folder, with an entry in ``truth.json``; `benchmarks.capture` writes both.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from .compare import Verdict, compare

HERE = Path(__file__).parent
DATA = HERE.parent.parent / "tests" / "data" / "frameworks"


class Tool(NamedTuple):
    """A tool that reads traces.

    Attributes:
        name: Its name.
        adapter: The module of its adapter.
        package: The package to install.
        module: The module whose warnings count as notes.
    """

    name: str
    adapter: str
    package: str
    module: str


TOOLS = (
    Tool("oteval", "oteval_runs", "oteval", "oteval"),
    Tool("agentevals-cli", "agentevals_turns", "agentevals-cli", "agentevals"),
    Tool("phoenix", "phoenix_spans", "arize-phoenix", "phoenix"),
    Tool("strands-evals", "strands_sessions", "strands-agents-evals", "strands_evals"),
    Tool("mlflow", "mlflow_traces", "mlflow", "mlflow"),
    Tool("inspect-scout", "scout_transcripts", "inspect-scout", "inspect_scout"),
)


COLUMNS = (
    "tool",
    "strict",
    "lenient",
    "failures flagged",
    "wrong, and says so",
    "silently wrong",
    "crashes",
    "right, with a note",
    "CPU",
    "memory",
)


def captures(folder: Path) -> dict[str, list[str]]:
    """Return the files of each capture of a folder that ``truth.json`` describes."""
    truth = json.loads((folder / "truth.json").read_text())
    return {
        name: [
            str(path)
            for suffix in (".json", ".logs.json")
            if (path := folder / f"{name}{suffix}").exists()
        ]
        for name in sorted(truth)
    }


def read_all(tool: Tool, python: str, files: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Return what a tool reads of each capture, and its figures at the end."""
    done = subprocess.run(
        [python, str(HERE / "adapters" / "driver.py"), tool.adapter, tool.package, tool.module],
        input=json.dumps(list(files.values())),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(lines) != len(files) + 1:
        raise SystemExit(f"{tool.name}: {done.stderr[-2000:]}")
    return lines


def main() -> None:
    """Print a row for each tool that has an environment."""
    parser = argparse.ArgumentParser(prog="benchmarks.fidelity", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="captures and truth.json")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument(
        "--faults", action="store_true", help="print the differences of each capture"
    )
    options = parser.parse_args()
    pythons = {"oteval": sys.executable, **dict(peer.split("=", 1) for peer in options.peer)}
    files = captures(options.data)
    truth = json.loads((options.data / "truth.json").read_text())
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for tool in (tool for tool in TOOLS if tool.name in pythons):
        *readings, figures = read_all(tool, pythons[tool.name], files)
        verdicts = {
            name: compare(reading, truth[name])
            for name, reading in zip(files, readings, strict=True)
        }
        print(row(tool, list(verdicts.values()), figures), flush=True)
        for name, verdict in verdicts.items() if options.faults else ():
            text = f"crash: {verdict.crash}" if verdict.crash else verdict.fault
            text += ", and a failure is not flagged" if verdict.failures is False else ""
            if text:
                print(f"    {name}{' (noted)' if verdict.notes else ''}: {text}", file=sys.stderr)


def row(tool: Tool, verdicts: list[Verdict], figures: dict[str, Any]) -> str:
    """Return a tool's row of the table."""
    wrong = [verdict for verdict in verdicts if not verdict.strict and not verdict.crash]
    with_failures = [verdict for verdict in verdicts if verdict.failures is not None]
    cells = (
        f"{tool.name} {figures['version']}",
        f"{sum(verdict.strict for verdict in verdicts)} of {len(verdicts)}",
        f"{sum(verdict.lenient for verdict in verdicts)} of {len(verdicts)}",
        f"{sum(bool(verdict.failures) for verdict in with_failures)} of {len(with_failures)}",
        str(sum(verdict.notes for verdict in wrong)),
        str(sum(not verdict.notes for verdict in wrong)),
        str(sum(bool(verdict.crash) for verdict in verdicts)),
        str(sum(verdict.strict and verdict.notes for verdict in verdicts)),
        f"{figures['cpu']:.1f} s",
        f"{figures['memory'] / 2**20:.0f} MB",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
