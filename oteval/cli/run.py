"""``oteval run``: run a program with instrumentation, without a change to its code."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import click

from ..base.errors import ConfigError, InputError, NothingEvaluated, OtevalError
from ..base.files import MEMORY
from ..base.text import counted, shown_url
from ..model import Selection
from ..record import (
    CANNOT_START,
    NOT_FOUND,
    ChildSettings,
    RunResult,
    default_service,
    run_command,
    service_of,
)
from ..scoring import MAX_IDS, TraceFolder, TransferReport, open_patiently
from .common import db_option, warn

__all__ = ["run"]

_SHOWN = 3
# Seconds to wait for another command that has the database open.
_PATIENCE = 10.0
# The number of runs that are searched for gaps.
_CHECKED = 200


@click.command()
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
@db_option
@click.option(
    "--to",
    metavar="URL|FILE",
    default="",
    help="Export the traces to this OTLP endpoint or into this .jsonl file, not into a database.",
)
@click.option("--service", default="", help="The name of the service; by default the script's.")
@click.option("--no-content", is_flag=True, help="Record no messages and no arguments.")
@click.option("--no-record", is_flag=True, help="Record no HTTP exchanges, which replays need.")
@click.option(
    "--redact",
    multiple=True,
    metavar="KEY",
    help="Replace values with this key, such as *.password, or personal data of this kind: cards, "
    "ibans, emails, phones, presidio; may be repeated.",
)
@click.option(
    "--library",
    "libraries",
    multiple=True,
    help="Instrument only this library; may be repeated. oteval doctor lists the names.",
)
@click.option("--score", is_flag=True, help="Score the runs when the program has ended.")
@click.option(
    "-c",
    "--config",
    "config_path",
    help="The configuration for --score.  [default: oteval.yaml]",
)
@click.option(
    "--load-every",
    type=click.FloatRange(min=0.1),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the traces of a running program are loaded.",
)
@click.option("--quiet", is_flag=True, help="Print only problems.")
def run(
    command: tuple[str, ...],
    db: str,
    to: str,
    service: str,
    no_content: bool,
    no_record: bool,
    redact: tuple[str, ...],
    libraries: tuple[str, ...],
    score: bool,
    config_path: str | None,
    load_every: float,
    quiet: bool,
) -> int:
    """Run a program, and record its agents.

    Its code needs no change. Every Python process of the program is instrumented: scripts,
    modules, tests, servers with their workers, and processes that they start. The traces are
    loaded into the database, or sent to the oteval serve that has it open, while the program runs
    and when it ends.

    The exit status is the program's, or 128+n if signal n ended it; 126 if the program cannot be
    started, and 127 if there is none of this name. Only before the program starts is 2 oteval's
    own: an option is wrong. With --score, a program that ends with 0 gets the status of oteval
    score. oteval writes only to standard error.
    """
    if score:
        if to:
            raise click.UsageError("--score needs a database; leave out --to")
        # The configuration, the evaluators and the database are imported when they are needed.
        # Without them, the program starts a second earlier.
        from ..scoring import DEFAULT_PATH, load_config, require_evaluators

        config_path = config_path or DEFAULT_PATH
        require_evaluators(load_config(config_path), config_path)
    if redact:
        from ..base.redaction import CompiledRules, rule_from

        CompiledRules(rule_from(rule, "--redact") for rule in redact)
    if to:
        folder = None
    elif db == MEMORY:
        raise ConfigError("--db :memory: would be lost at the end; give a file")
    else:
        folder = TraceFolder(db)
    settings = ChildSettings(
        to=_destination(to),
        folder=str(folder.path) if folder else "",
        prefix=folder.prefix if folder else "",
        service=service or default_service(service_of(command)),
        capture_content=not no_content,
        record_http=not no_record,
        redact=redact,
        libraries=libraries,
        outer_trace=os.environ.get("TRACEPARENT", ""),
    )
    try:
        result = run_command(command, settings, folder, interval=load_every)
    except OSError as error:
        return _report_start(command[0], error)
    _report(result, command, to, db, quiet)
    if score and config_path and not result.traces.error and not result.traces.server:
        scored = _score(db, config_path, result.traces.changed)
        return result.status or scored
    return result.status


def _destination(to: str) -> str:
    """Return a destination that is valid in every working directory."""
    if not to or re.match(r"https?://[^/\s]+", to):
        return to
    if "://" in to or not to.endswith((".jsonl", ".jsonl.gz")):
        raise ConfigError(
            f"--to {shown_url(to)!r}: write http://HOST:PORT, https://HOST or FILE.jsonl; "
            "--db FILE is for a database"
        )
    try:
        path = Path(to).absolute()
    except FileNotFoundError:
        raise InputError(
            f"--to {to}: the working directory was deleted; give an absolute path"
        ) from None
    if not path.parent.is_dir():
        raise InputError(f"--to {to}: its folder does not exist")
    return str(path)


def _report_start(program: str, error: OSError) -> int:
    """Print why a program could not be started, and return the exit status that shells use."""
    if isinstance(error, FileNotFoundError):
        warn(f"{program}: command not found")
        return NOT_FOUND
    hint = f"; oteval run -- python {program} runs a script" if program.endswith(".py") else ""
    warn(f"{program}: cannot be started: {error.strerror or error}{hint}")
    return CANNOT_START


def _report(result: RunResult, command: Sequence[str], to: str, db: str, quiet: bool) -> None:
    """Print the number of recorded runs, and the reasons for missing runs."""
    problems = list(
        dict.fromkeys(process.problem for process in result.processes if process.problem)
    )
    for problem in problems[:_SHOWN]:
        affected = [process for process in result.processes if process.problem == problem]
        warn(f"{counted(len(affected), 'process')} not instrumented: {problem}")
    if not result.processes:
        warn(
            f"{command[0]}: no Python process was instrumented; either none ran, or it ignored "
            "PYTHONPATH (python -I, -E or -S, or a cleared environment)"
        )
    traces = result.traces
    for problem in traces.problems:
        warn(problem)
    if traces.error:
        warn(traces.error)
        folder = TraceFolder(db).path
        warn(f"the traces are kept in {folder}; the next oteval run or oteval ingest loads them")
    elif not quiet and (result.processes or traces.spans):
        warn(_summary(result, to, db))


def _summary(result: RunResult, to: str, db: str) -> str:
    traces = result.traces
    if to:
        on = sum(not process.problem for process in result.processes)
        exported = f"{counted(on, 'process')} exported to {shown_url(to)}"
        return exported if "://" in to else f"{exported}; oteval ingest {shlex.quote(to)} loads it"
    spans = counted(traces.spans, "span")
    if traces.server:
        return f"{spans} sent to oteval serve at {traces.server}, which has {db} open"
    if not traces.spans and result.has_losses:
        return f"no spans in {db}: all were lost"
    if not traces.spans:
        return "no spans: no instrumented library was used (oteval doctor lists them)"
    if not traces.changed and traces.duplicates:
        return f"{spans}, stored in {db} by the program itself; oteval trajectories lists its runs"
    if not traces.changed:
        return f"{spans} in {db}, none of an agent; oteval doctor lists the known libraries"
    runs = counted(len(traces.changed), "agent run")
    more = "more than " if len(traces.changed) >= MAX_IDS else ""
    pages_note = f"{traces.pages} shows them" if traces.pages else "oteval trajectories lists them"
    return f"{more}{runs}{_with_gaps(db, traces)}, {spans} in {db}; {pages_note}"


def _with_gaps(db: str, traces: TransferReport) -> str:
    """Return the number of runs with gaps, in parentheses; nothing if no run has gaps."""
    selection = Selection(ids=tuple(traces.changed[:_CHECKED]))
    try:
        with open_patiently(db, _PATIENCE) as store:
            count = sum(bool(run.gaps) for run in store.trajectories.read(selection))
    except OtevalError:
        # Another command has opened the database in the meantime.
        return ""
    return f" ({count} with gaps)" if count else ""


def _score(db: str, config_path: str, trajectory_ids: Sequence[str]) -> int:
    """Score the runs of the program, print the result, and return the exit status."""
    from .score import score_selection

    try:
        if not trajectory_ids:
            raise NothingEvaluated("no agent runs to score")
        # Standard output belongs to the program.
        with open_patiently(db, _PATIENCE) as store, redirect_stdout(sys.stderr):
            return score_selection(store, config_path, Selection(ids=tuple(trajectory_ids)))
    except NothingEvaluated as error:
        warn(str(error))
        return 3
