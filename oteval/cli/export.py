"""``oteval export``: the content of the database, for other tools."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import __version__
from ..base.errors import ConfigError, InputError
from ..base.files import open_private
from ..base.text import counted, shown_url
from ..model import Selection
from ..scoring import Verdicts, export_atif, export_jsonl, export_parquet, export_sft
from ..store import Store
from .common import databases_option, filters, open_store, print_json, progress, select, warn
from .options import header_option, headers_of

if TYPE_CHECKING:
    from ..base.clients.otlp_client import HttpClient
    from ..scoring import SendReport

__all__ = ["export"]

# DuckDB's memory for --jsonl and --parquet. Both read rows once: page by page, or all rows.
_MEMORY_LIMIT, _PARQUET_MEMORY = "112MB", "128MB"


@click.command()
@click.option(
    "--jsonl", metavar="FILE", help='Write trajectories with scores as JSON lines; "-" prints them.'
)
@click.option(
    "--parquet", metavar="DIR", help="Write all spans, log records, trajectories and scores."
)
@click.option(
    "--csv", metavar="DIR",
    help="Write runs, messages, calls, scores, experiments and labels as CSV files.",
)  # fmt: skip
@click.option(
    "--sft", metavar="FILE",
    help='Write examples for fine-tuning, as JSON lines of messages and tools; "-" prints them.',
)  # fmt: skip
@click.option(
    "--atif", metavar="DIR", help="Write a file in the Agent Trajectory Interchange Format a run."
)
@click.option(
    "--passed", metavar="EVALUATOR", multiple=True,
    help="With --sft and --atif, only runs that pass this evaluator; may be repeated.",
)  # fmt: skip
@click.option(
    "--failed", metavar="EVALUATOR", multiple=True,
    help="With --sft and --atif, only runs that fail this evaluator; may be repeated.",
)  # fmt: skip
@click.option(
    "--otlp", metavar="URL", help="Send spans and their log records to an OTLP/HTTP endpoint."
)
@header_option
@click.option(
    "--scores", type=click.Choice(("attributes", "events", "both", "none")), default="attributes",
    show_default=True, help="How --otlp sends scores: as attributes of spans, or as log events.",
)  # fmt: skip
@click.option("--no-spans", is_flag=True, help="With --otlp, send only the events.")
@click.option("--gzip", is_flag=True, help="Compress requests to --otlp.")
@click.option(
    "--patience", type=click.FloatRange(min=0), default=60.0, show_default=True,
    help="How long --otlp retries a batch, in seconds.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the summary of --otlp as JSON.")
@databases_option
@filters
def export(
    jsonl: str | None,
    parquet: str | None,
    csv: str | None,
    sft: str | None,
    atif: str | None,
    passed: tuple[str, ...],
    failed: tuple[str, ...],
    otlp: str | None,
    headers: tuple[str, ...],
    scores: str,
    no_spans: bool,
    gzip: bool,
    patience: float,
    as_json: bool,
    db: tuple[str, ...],
    **filter_options: Any,
) -> int:
    """Export spans, trajectories and scores to other tools.

    The filters apply to all but --parquet. --sft leaves out runs with content that was not
    captured, cut or redacted. With --otlp, filters select runs and send their whole traces. The
    exit status is 2 if not everything arrived.
    """
    if not (jsonl or parquet or csv or sft or atif or otlp):
        raise click.UsageError(
            "give --jsonl FILE, --parquet DIR, --csv DIR, --sft FILE, --atif DIR or --otlp URL"
        )
    if (passed or failed) and not (sft or atif):
        raise click.UsageError("--passed and --failed choose runs of --sft and --atif; add one")
    if csv and csv.lower().endswith(".csv"):
        folder = csv[: -len(".csv")] or "tables"
        raise click.UsageError(f"--csv {csv}: writes a file a table into a folder: --csv {folder}")
    if no_spans and scores not in ("events", "both"):
        raise click.UsageError("--no-spans sends nothing; add --scores events")
    selection = select(**filter_options)
    url, header_by_name = (_url(otlp), headers_of(headers)) if otlp else ("", {})
    status = 0
    with open_store(db) as store:
        if jsonl:
            with store.reduced_memory(_MEMORY_LIMIT):
                _jsonl(store, jsonl, selection)
        verdicts = Verdicts(passed, failed)
        if sft:
            _sft(store, sft, selection, verdicts)
        if atif:
            _atif(store, atif, selection, verdicts)
        if parquet:
            with store.reduced_memory(_PARQUET_MEMORY):
                written = export_parquet(store, Path(parquet))
            for name, count in written.items():
                warn(f"{parquet}/{name}: {counted(count, 'row')}")
        if csv:
            from ..views import export_csv

            with store.reduced_memory(_MEMORY_LIMIT):
                rows = export_csv(store, Path(csv), selection)
            for name, count in rows.items():
                warn(f"{csv}/{name}: {counted(count, 'row')}")
        if url:
            # Imported only when sending.
            from ..base.clients.otlp_client import HttpClient

            client = HttpClient(url, header_by_name, compress=gzip)
            sent = _send(store, client, selection, scores, no_spans, patience)
            client.close()
            status = _print_sent(shown_url(url), sent, as_json)
    return status


def _send(
    store: Store,
    client: HttpClient,
    selection: Selection,
    scores: str,
    no_spans: bool,
    patience: float,
) -> dict[str, SendReport]:
    from ..scoring import send_events, send_logs, send_spans

    sent: dict[str, SendReport] = {}
    if not no_spans:
        with_scores = scores in ("attributes", "both")
        with progress("spans") as update:
            sent["spans"] = send_spans(
                store, client, selection,
                with_scores=with_scores, patience=patience, on_progress=update,
            )  # fmt: skip
        with progress("log records") as update:
            sent["log records"] = send_logs(
                store, client, selection, patience=patience, on_progress=update
            )
    if scores in ("events", "both"):
        with progress("score events") as update:
            sent["score events"] = send_events(
                store, client, selection,
                version=__version__, patience=patience, on_progress=update,
            )  # fmt: skip
    return sent


def _jsonl(store: Store, path: str, selection: Selection) -> None:
    if path == "-":
        warn(counted(export_jsonl(store, sys.stdout, selection), "trajectory"))
        return
    try:
        with open_private(Path(path), "w", encoding="utf-8") as file:
            count = export_jsonl(store, file, selection)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    warn(f"{path}: {counted(count, 'trajectory')}")


def _sft(store: Store, path: str, selection: Selection, verdicts: Verdicts) -> None:
    if path == "-":
        count = export_sft(store, sys.stdout, selection, verdicts)
    else:
        try:
            with open_private(Path(path), "w", encoding="utf-8") as file:
                count = export_sft(store, file, selection, verdicts)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    warn(f"{path}: {counted(count.written, 'example')}")
    if count.incomplete:
        left_out = counted(count.incomplete, "run")
        warn(f"{left_out} left out: the trace lacks content of them (oteval explain says which)")


def _atif(store: Store, path: str, selection: Selection, verdicts: Verdicts) -> None:
    try:
        count = export_atif(store, Path(path), selection, verdicts)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    warn(f"{path}: {counted(count.written, 'trajectory')}")


def _url(text: str) -> str:
    if not re.match(r"https?://[^/\s]+", text):
        raise ConfigError(f"--otlp {shown_url(text)!r}: write http://HOST:PORT or https://HOST")
    return re.sub(r"/v1/(traces|logs)/?$", "", text)


def _print_sent(url: str, sent: dict[str, SendReport], as_json: bool) -> int:
    failed = sum(report.failed for report in sent.values())
    if as_json:
        print_json({"url": url, **{name: vars(report) for name, report in sent.items()}})
    for name, report in sent.items():
        if report.sent or report.failed:
            lost = f", {report.failed} failed" if report.failed else ""
            warn(f"{url}: {report.sent} {name} sent{lost}")
        for reason in report.reasons:
            warn(f"{url}: {name}: {reason}")
    if not any(report.sent or report.failed for report in sent.values()):
        warn("nothing to send")
    return 2 if failed else 0
