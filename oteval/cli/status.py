"""``oteval status``: how much a database contains, and how much space it takes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
from rich.table import Table

from ..base.text import byte_size, counted
from ..store import ShardedStore, Store, StoreContents, is_result_folder
from ..views import clock
from .common import databases_option, json_option, out, print_json, store_in_turn

__all__ = ["status"]


@click.command()
@databases_option
@json_option
def status(db: tuple[str, ...], as_json: bool) -> int:
    """Show how much the database contains, and its size.

    Several databases are shown one after the other. Traces that are "not reconstructed yet" become
    runs with the next command that needs them.
    """
    for path in db:
        with _opened(path) as store:
            contents, pending, is_served = store.contents(), store.pending.count(), store.is_served
        if as_json:
            print_json(_record(path, contents, pending, is_served=is_served))
        else:
            out().print(_table(path, contents, pending, is_served=is_served))
    return 0


def _opened(path: str) -> Store:
    if is_result_folder(path):
        return ShardedStore([path])
    return store_in_turn(path, create=False)


def _record(db: str, contents: StoreContents, pending: int, *, is_served: bool) -> dict[str, Any]:
    """Return the object that ``--json`` prints."""
    return {
        "database": db,
        **asdict(contents),
        "bytes_per_span": contents.bytes_per_span,
        "pending_traces": pending,
        "is_served": is_served,
    }


def _table(db: str, contents: StoreContents, pending: int, *, is_served: bool) -> Table:
    """Return the lines for the terminal: names and counts."""
    table = Table.grid(padding=(0, 2))
    per_span = contents.bytes_per_span
    table.add_row(db, byte_size(contents.bytes) + (", used by a server" if is_served else ""))
    table.add_row(
        "spans", f"{contents.spans:,}" + (f", {per_span:,.0f} bytes each" if per_span else "")
    )
    table.add_row("log records", f"{contents.logs:,}")
    if contents.archived_spans or contents.archived_logs:
        table.add_row(
            "archive",
            f"{counted(contents.archived_spans, 'span')} and "
            f"{counted(contents.archived_logs, 'log record')}, {byte_size(contents.archive_bytes)}",
        )
    table.add_row("runs", _runs(contents))
    if pending:
        table.add_row("not reconstructed yet", counted(pending, "trace"))
    table.add_row("scores", f"{contents.scores:,}")
    return table


def _runs(contents: StoreContents) -> str:
    if not contents.trajectories:
        return "0"
    agents, services = counted(contents.agents, "agent"), counted(contents.services, "service")
    text = f"{contents.trajectories:,} of {agents} in {services}"
    if contents.first_ns is None or contents.last_ns is None:
        return f"{text}, without times"
    return f"{text}, {clock(contents.first_ns)} to {clock(contents.last_ns)} UTC"
