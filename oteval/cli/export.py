"""``oteval export``: what the database holds, for other tools."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from ..pipeline import export_jsonl, export_parquet
from .common import db_option, filters, open_store, select, warn

__all__ = ["export"]


@click.command()
@click.option("--jsonl", metavar="FILE", help='Trajectories with scores, a line each; "-" prints.')
@click.option("--parquet", metavar="DIR", help="Spans, logs, trajectories and scores, all of them.")
@db_option
@filters
def export(jsonl: str | None, parquet: str | None, db: str, **given: Any) -> int:
    """Write out what the database holds; the filters apply to --jsonl."""
    if not jsonl and not parquet:
        raise click.UsageError("give --jsonl FILE or --parquet DIR")
    selection = select(**given)
    with open_store(db) as store:
        if jsonl == "-":
            warn(f"{export_jsonl(store, sys.stdout, selection)} trajectories")
        elif jsonl:
            try:
                with Path(jsonl).open("w", encoding="utf-8") as file:
                    count = export_jsonl(store, file, selection)
            except OSError as error:
                raise InputError(f"{jsonl}: cannot be written: {error.strerror}") from error
            warn(f"{jsonl}: {count} trajectories")
        if parquet:
            for name, count in export_parquet(store, Path(parquet)).items():
                warn(f"{parquet}/{name}: {count} rows")
    return 0
