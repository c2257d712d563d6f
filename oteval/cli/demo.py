"""``oteval demo``: every step on bundled traces."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from importlib import resources
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from ..base.errors import InputError
from ..base.files import make_folder, write_private
from ..model import RunRow
from ..scoring import ScoreCounts, check_gates, load, load_config, refresh, score as score_all
from ..store import Store
from ..views import load_summary, scores_table, tallies_table, trajectories_table, trajectory_view
from . import common
from .common import out

__all__ = ["demo"]


@click.command()
@click.option(
    "--dir",
    "folder",
    default="oteval-demo",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for the traces, the configuration and the database.",
)
def demo(folder: Path) -> int:
    """Load and score bundled traces: no server, no key.

    Five runs of a refund agent, each traced by a different framework, are loaded, reconstructed,
    matched against a reference and scored in a few seconds. All files stay in a folder to explore.
    """
    console = out()
    _copy(folder)
    database = folder / "demo.duckdb"
    for old in (database, folder / "demo.duckdb.wal"):
        old.unlink(missing_ok=True)
    with Store(database) as store:
        _load(console, store, folder)
        _score(console, store, folder)
    _next_steps(console, folder, database)
    return 0


def _copy(folder: Path) -> None:
    """Copy the bundled files into a folder."""
    source = resources.files("oteval.cli.bundled_demo")
    try:
        for name in ("traces", "references"):
            make_folder(folder / name)
            for entry in (source / name).iterdir():
                write_private(folder / name / entry.name, entry.read_bytes())
        write_private(folder / "oteval.yaml", (source / "oteval.yaml").read_bytes())
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}; give --dir") from error


def _step(console: Console, number: int, title: str, text: str) -> None:
    console.print()
    console.print(Text.assemble((f"{number}. {title}", "bold"), f"  {text}"))


def _load(console: Console, store: Store, folder: Path) -> None:
    paths = sorted((folder / "traces").iterdir())
    _step(console, 1, "Load", f"{len(paths)} OTLP files, written by four kinds of instrumentation.")
    report = load(store, paths)
    console.print(load_summary(report.read, report.stored, report.duplicate, report.bad))
    _step(
        console,
        2,
        "Reconstruct",
        "the message trajectory of each run, whichever framework wrote the spans.",
    )
    refresh(store)
    rows = [RunRow.of(trajectory) for trajectory in store.trajectories.read()]
    console.print(trajectories_table(rows, {}, common.now_ns()))


def _score(console: Console, store: Store, folder: Path) -> None:
    _step(
        console,
        3,
        "Score",
        "each run's calls against one reference. A match says why it fails. Calls that the trace "
        "does not hold are not evaluated, and never pass.",
    )
    config = load_config(folder / "oteval.yaml")
    run = ScoreCounts()
    console.print(scores_table(list(score_all(store, config, folder, run=run)), wraps=True))
    console.print()
    console.print(tallies_table(run.tallies.values()))
    for gate in check_gates(config.gates, run.tallies):
        state = Text("passed", "green") if gate.passed else Text("failed", "bold red")
        console.print(Text.assemble(f"gate {gate.evaluator}: ", state, f" ({gate.comment})"))
    _step(console, 4, "Look", "at the run that refunded the wrong amount.")
    failed = next(t for t in store.trajectories.read() if "traceloop" in t.dialects)
    console.print(trajectory_view(failed, store.scores.of([failed.id])[failed.id]))


def _next_steps(console: Console, folder: Path, database: Path) -> None:
    _step(console, 5, "Go on", f"everything is in {folder}/")
    # In an environment that is not activated, the command is found only by its path.
    program = "oteval" if shutil.which("oteval") else shlex.quote(os.path.relpath(sys.argv[0]))
    for command, description in (
        (f"{program} trajectories --db {database} --json", "messages and gaps, a run a line"),
        (
            f"{program} score -c {folder}/oteval.yaml --db {database}",
            "with the gate: exit status 1",
        ),
        (f"{program} view --db {database}", "the runs in the browser"),
        (f"{program} variants --db {database}", "the tool sequences the runs took"),
        (f"{program} ingest YOUR_TRACES.json && {program} trajectories", "your own"),
    ):
        console.print(Text(f"   # {description}", style="dim"))
        console.print(Text(f"   {command}", style="bold blue"))
