"""``oteval pull`` and ``oteval push``: traces from other backends, and scores back to them."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

import click

from ..base.errors import BackendError
from ..base.text import counted
from ..extras import (
    SOURCES,
    TARGETS,
    PullReport,
    open_source,
    open_target,
    pull as pull_spans,
    push as push_scores,
)
from ..model import select, time_of
from ..scoring import PushReport
from .common import (
    db_option,
    filters,
    json_option,
    open_store,
    out,
    print_json,
    progress,
    refresh_runs,
    store_in_turn,
    warn_of_problems,
)
from .options import header_option, headers_of

__all__ = ["pull", "push"]


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
        changed = refresh_runs(store)
    for report in reports:
        _print_pulled(report, source.url, as_json)
    if not as_json:
        out().print(f"{counted(changed, 'trajectory')} new or changed")
    if failure is not None:
        raise failure
    return 0


def _print_pulled(report: PullReport, url: str, as_json: bool) -> None:
    problems = [f"{report.project}: {problem}" for problem in report.problems]
    warn_of_problems(problems, len(problems), report.project, "span")
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


@click.command()
@click.argument("backend", type=click.Choice(TARGETS))
@click.argument("url", required=False)
@click.option("--evaluator", multiple=True, help="Scores by this evaluator; may be repeated.")
@header_option
@db_option
@filters
@json_option
def push(
    backend: str,
    url: str | None,
    evaluator: tuple[str, ...],
    headers: tuple[str, ...],
    db: str,
    as_json: bool,
    **filter_options: Any,
) -> int:
    """Write scores to the backend that has the traces.

    This writes the newest score of each evaluator on each selected run as an annotation on the
    judged span, with its label, reason and
    the evaluator's version. A second push changes nothing. Scores without a verdict are counted and
    not written, as are those of traces that the backend does not have.
    """
    selection = select(**filter_options)
    target = open_target(backend, url, headers_of(headers), os.environ)
    with closing(target), open_store(db) as store, progress("pushing", " scores") as update:
        report = push_scores(store, target, selection, evaluators=evaluator, on_progress=update)
    if as_json:
        print_json({"url": target.url, **vars(report)})
    else:
        out().print(f"{target.url}: {_pushed_text(report)}", markup=False, highlight=False)
    return 0


def _pushed_text(report: PushReport) -> str:
    parts = [f"{counted(report.written, 'annotation')} written, {report.unchanged:,} unchanged"]
    if report.unknown:
        parts.append(f"{counted(report.unknown, 'score')} of spans that it does not have")
    if report.errors:
        parts.append(f"{counted(report.errors, 'error')} not written")
    if report.not_evaluated:
        parts.append(f"{report.not_evaluated:,} not evaluated")
    return "; ".join(parts)
