"""``oteval pull``: load traces from the backend where they are."""

from __future__ import annotations

import os
from contextlib import closing

import click

from ..base.errors import BackendError
from ..base.text import counted
from ..extras import SOURCES, PullReport, open_source, pull as pull_spans
from ..model import time_of
from ..scoring import refresh
from .common import db_option, json_option, out, print_json, progress, store_in_turn, warn
from .options import header_option, headers_of

__all__ = ["pull"]

_SHOWN = 10


@click.command()
@click.argument("backend", type=click.Choice(SOURCES))
@click.argument("url", required=False)
@click.option(
    "--since", default="24h", show_default=True,
    help="Where a first pull begins: 2026-11-20, 2026-11-20T08:00, or 2h ago.",
)  # fmt: skip
@click.option("--project", "projects", multiple=True, help="A project; all without this option.")
@header_option
@db_option
@json_option
def pull(
    backend: str,
    url: str | None,
    since: str,
    projects: tuple[str, ...],
    headers: tuple[str, ...],
    db: str,
    as_json: bool,
) -> int:
    """Load the new traces of another backend.

    Those are new that arrived there since the last pull. The backend's key comes from its usual
    environment variable, and reading rights are enough. The database remembers how far it has
    read, so that an interrupted pull continues, and a second one stores nothing twice. An earlier
    --since begins again there. The exit status is 2 if the backend does not answer; the pages
    before that are kept.
    """
    since_ns = time_of(since, "--since") or 0
    source = open_source(backend, url, headers_of(headers), os.environ)
    reports: list[PullReport] = []
    failure: BackendError | None = None
    with closing(source), store_in_turn(db) as store, store.loading():
        try:
            with progress("pulling", " spans") as update:
                pull_spans(
                    store, source, since_ns, projects,
                    on_project=reports.append, on_progress=update,
                )  # fmt: skip
        except BackendError as error:
            failure = error
        with progress("reconstructing", " traces") as update:
            changed = refresh(store, update)
    for report in reports:
        _print(report, source.url, as_json)
    if not as_json:
        out().print(f"{counted(changed, 'trajectory')} new or changed")
    if failure is not None:
        raise failure
    return 0


def _print(report: PullReport, url: str, as_json: bool) -> None:
    for problem in report.problems[:_SHOWN]:
        warn(f"{report.project}: {problem}")
    if len(report.problems) > _SHOWN:
        more = counted(len(report.problems) - _SHOWN, "more bad span")
        warn(f"{report.project}: {more} (--json lists them)")
    counts = {
        "stored": report.written.stored,
        "duplicate": report.written.duplicate,
        "bad": len(report.problems),
    }
    if as_json:
        print_json(
            {
                "url": url,
                "project": report.project,
                "spans": report.spans,
                **counts,
                "conflicts": report.written.conflicts,
                "problems": report.problems,
            }
        )
        return
    written = "  ".join(f"{name} {count}" for name, count in counts.items())
    out().print(f"{report.project}: read {report.spans}  {written}", markup=False, highlight=False)
