"""``oteval push``: write scores to the backend where people look at their traces."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

import click

from ..base.text import counted
from ..extras import TARGETS, open_target, push as push_scores
from ..model import select
from ..scoring import PushReport
from .common import db_option, filters, json_option, open_store, out, print_json, progress
from .options import header_option, headers_of

__all__ = ["push"]


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
    **given: Any,
) -> int:
    """Write scores to the backend that has the traces.

    This writes the newest score of each evaluator on each selected run as an annotation on the
    judged span, with its label, reason and
    the evaluator's version. A second push changes nothing. Scores without a verdict are counted and
    not written, as are those of traces that the backend does not have.
    """
    selection = select(**given)
    target = open_target(backend, url, headers_of(headers), os.environ)
    with closing(target), open_store(db) as store, progress("pushing", " scores") as update:
        report = push_scores(store, target, selection, evaluators=evaluator, on_progress=update)
    if as_json:
        print_json({"url": target.url, **vars(report)})
    else:
        out().print(f"{target.url}: {_summary(report)}", markup=False, highlight=False)
    return 0


def _summary(report: PushReport) -> str:
    parts = [f"{counted(report.written, 'annotation')} written, {report.unchanged:,} unchanged"]
    if report.unknown:
        parts.append(f"{counted(report.unknown, 'score')} of spans that it does not have")
    if report.errors:
        parts.append(f"{counted(report.errors, 'error')} not written")
    if report.not_evaluated:
        parts.append(f"{report.not_evaluated:,} not evaluated")
    return "; ".join(parts)
