"""``oteval ingest``: load trace files into the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from ..base.text import counted
from ..model import IDENTITIES, name_attribute
from ..scoring import FileReport, TraceFolder, TransferReport
from ..views import load_summary
from .common import db_option, json_option, out, print_json, refresh_runs, store_in_turn, warn
from .loaded_files import database_for, load_files

__all__ = ["ingest"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _attribute_options(command: _Command) -> _Command:
    """Add the options that name the application's attributes."""
    for kind, about in reversed([*IDENTITIES.items()]):
        command = click.option(
            f"--{kind}-attribute",
            metavar="NAME",
            envvar=about.variable,
            show_envvar=True,
            help=f"The attribute with {about.description}; also '{kind}' in oteval.yaml.",
        )(command)
    return command


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@_attribute_options
@db_option
@json_option
def ingest(paths: tuple[str, ...], db: str, as_json: bool, **attributes: str | None) -> int:
    """Load files with traces and conversations.

    PATHs are files and folders of files; "-" is standard input.

    \b
    OTLP        JSON or protobuf, such as files of the Collector's file exporter
    Jaeger      JSON: downloads, API responses, spans from Elasticsearch
    Tempo       JSON: API responses
    ClickHouse  otel_traces and otel_logs: Parquet, JSONEachRow
    Python SDK  the output of ConsoleSpanExporter and ConsoleLogRecordExporter
    oteval      files of oteval export: Parquet; JSON lines, which are runs without spans
    messages    lists of messages in any form: JSON, JSON lines; LangSmith's datasets, ShareGPT
    benchmarks  results of tau2-bench, ATIF trajectories, logs of Inspect (.eval, .json)
    sessions    of Claude Code (~/.claude/projects) and Codex (~/.codex/sessions)

    Files may be plain, gzip or zstd; their content tells the format. Spans and runs that the
    database has already are not stored again; a session that went on gets the rest. Bad lines and
    rows are reported and skipped. The exit status is 2 if a file could not be read at all.
    """  # noqa: D301  \b makes click keep the line breaks
    names = {kind: name for kind in IDENTITIES if (name := attributes[f"{kind}_attribute"])}
    for kind, name in names.items():
        name_attribute(kind, name)
    if len(names) < len(IDENTITIES) and Path("oteval.yaml").is_file():
        from ..scoring import load_config  # takes 100 ms, and most loads have no configuration

        load_config("oteval.yaml")
    folder, left = TraceFolder(db), TransferReport()
    database = database_for([*paths, str(folder.path)], db)
    with store_in_turn(database) as store, store.loading():
        if store.server is not None:
            warn(f"{db}: {store.server.program} has it open; the traces are loaded through it")
        report = load_files(store, tuple(path for path in paths if not folder.holds(path)))
        folder.load_into(store, left)
        agentless: list[str] = []
        changed = report.new_runs + refresh_runs(store, agentless.extend)
    folder.release()
    if left.spans or left.problems:
        warn(f"{folder.path}: {counted(left.spans, 'span')} that oteval run had left there")
        for problem in left.problems:
            warn(problem)
    if as_json:
        for file in report.files:
            print_json(_as_dict(file))
    else:
        console = out()
        console.print(load_summary(report.read, report.stored, report.duplicate, report.bad))
        if changed:
            console.print(
                f"{counted(changed, 'trajectory')} new or changed; oteval trajectories lists them"
            )
        if agentless:
            console.print(_agentless_line(agentless))
    return 2 if any(file.error for file in report.files) else 0


def _agentless_line(traces: Sequence[str]) -> str:
    """Return a line about traces without a run, such as traces of requests and MCP servers."""
    holds = "holds" if len(traces) == 1 else "hold"
    return (
        f"{counted(len(traces), 'trace')} without a run: {holds} neither an agent's span nor a "
        f"model call (oteval explain {traces[0]})"
    )


def _as_dict(file: FileReport) -> dict[str, object]:
    return {
        "path": file.path,
        "spans": file.spans,
        "logs": file.logs,
        **({"runs": file.runs} if file.runs else {}),
        "stored": file.written.stored,
        "duplicate": file.written.duplicate,
        "conflicts": file.written.conflicts,
        "bad": file.problem_count,
        "problems": [{"line": problem.line, "reason": problem.reason} for problem in file.problems],
        "error": file.error or None,
    }
