"""``oteval status``, ``archive``, ``compact`` and ``backup``: maintain the database."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from ..base.text import byte_size, counted
from ..scoring import DEFAULT_PATH, Retention, archive_before, delete_expired
from ..store import (
    ArchiveReport,
    CopyReport,
    DeletedRows,
    ShardedStore,
    Store,
    StoreContents,
    is_result_folder,
)
from ..views import clock, deleted_text
from .common import (
    databases_option,
    db_option,
    json_option,
    open_store,
    out,
    print_json,
    progress,
    store_in_turn,
    warn,
)
from .options import default_config, default_config_option, duration

__all__ = ["archive", "backup", "compact", "status"]


@click.command()
@default_config_option("The file with `retention`.")
@click.option("--older-than", metavar="AGE", help="Move traces that ended this long ago: 14d, 12h.")
@click.option("--to", "folder", metavar="DIR", help="The folder of the archive.")
@db_option
@json_option
def archive(
    config_path: str | None, older_than: str | None, folder: str | None, db: str, as_json: bool
) -> int:
    """Move old spans and log records to Parquet.

    Whole traces move to DIR/date=YYYY-MM-DD/bucket=NN. They are deleted from the database after
    the files have been written and read back. Trajectories and scores stay, and all commands still
    find the spans. The defaults come from `retention` in oteval.yaml, or else are 14d and the
    folder `archive` beside the database.
    """
    retention, base = _retention(config_path, db)
    now = time.time_ns()
    age = duration("--older-than", older_than) if older_than else None
    before = archive_before(retention, now) if age is None else now - round(age * 1e9)
    root = Path(folder) if folder else base / retention.archive
    with open_store(db) as store, progress("archiving", " rows") as update:
        moved = store.archive.move(
            root,
            before,
            lambda total: update(total.spans + total.logs, None),
        )
        expired = delete_expired(store, retention, now)
    _print_archived(moved, root, as_json)
    if expired != DeletedRows():
        warn(deleted_text(expired))
    return 0


@click.command()
@db_option
@json_option
def compact(db: str, as_json: bool) -> int:
    """Reclaim disk space from deleted rows.

    This writes a compact copy of the database and then replaces the original. It needs as much
    free disk space as the copy takes, and no server may have the database open.
    """
    store = Store(db, create=False)
    try:
        done = store.compact()
    finally:
        store.close()
    if as_json:
        print_json({"database": db, "before_bytes": done.before, "after_bytes": done.after})
    else:
        out().print(f"{db}: {byte_size(done.before)} before, {byte_size(done.after)} after")
    return 0


@click.command()
@click.argument("file")
@db_option
@json_option
def backup(file: str, db: str, as_json: bool) -> int:
    """Copy the database to a file while it is in use.

    The backup does not contain the archive. Archived files never change, so copy their folder too.
    """
    with Store(db, create=False) as store:
        done = store.backup(file)
        archived = store.spans.archived()
    _print_backup(done, file, archived, as_json)
    return 0


def _retention(config_path: str | None, db: str) -> tuple[Retention, Path]:
    """Return the retention settings, and the base directory of their paths."""
    config = default_config(config_path)
    if config and config.retention:
        return config.retention, Path(config_path or DEFAULT_PATH).parent
    return Retention(), Path(db).parent


def _print_archived(moved: ArchiveReport, root: Path, as_json: bool) -> None:
    if as_json:
        print_json({"archive": str(root), **vars(moved)})
        return
    if not moved.spans and not moved.logs:
        out().print("nothing is old enough to archive")
        return
    archived_before = f", {moved.duplicates:,} already archived" if moved.duplicates else ""
    out().print(
        f"{counted(moved.traces, 'trace')} moved: {counted(moved.spans, 'span')} and "
        f"{counted(moved.logs, 'log record')}"
        f"{archived_before}; {counted(moved.files, 'file')}, {byte_size(moved.bytes)}, in {root}"
    )
    out().print("oteval compact reclaims their disk space")


def _print_backup(done: CopyReport, file: str, archived: int, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "file": file,
                "bytes": done.after,
                "rows": done.rows,
                "archived_rows": archived,
            }
        )
        return
    out().print(f"{file}: {counted(sum(done.rows.values()), 'row')}, {byte_size(done.after)}")
    if archived:
        out().print(
            f"{archived:,} archived rows are not in the backup; copy the folder of the archive too"
        )


@click.command()
@databases_option
@json_option
def status(db: tuple[str, ...], as_json: bool) -> int:
    """Show how much the database contains, and its size.

    Several databases are shown one after the other. Traces that are "not reconstructed yet" become
    runs with the next command that needs them.
    """
    for path in db:
        with _opened_for_status(path) as store:
            contents, pending, is_served = store.contents(), store.pending.count(), store.is_served
        if as_json:
            print_json(_status_record(path, contents, pending, is_served=is_served))
        else:
            out().print(_status_table(path, contents, pending, is_served=is_served))
    return 0


def _opened_for_status(path: str) -> Store:
    if is_result_folder(path):
        return ShardedStore([path])
    return store_in_turn(path, create=False)


def _status_record(
    db: str, contents: StoreContents, pending: int, *, is_served: bool
) -> dict[str, Any]:
    """Return the object that ``--json`` prints."""
    return {
        "database": db,
        **asdict(contents),
        "bytes_per_span": contents.bytes_per_span,
        "pending_traces": pending,
        "is_served": is_served,
    }


def _status_table(db: str, contents: StoreContents, pending: int, *, is_served: bool) -> Table:
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
