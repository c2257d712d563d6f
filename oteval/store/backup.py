"""Backups and compaction: both copy the whole database, without the space of deleted rows.

``COPY FROM DATABASE`` writes the copy to a file beside the database, the only other file that the
connection may open. The copy is checked table by table. It then becomes the backup, or replaces the
database, or is read beside other databases.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import duckdb

from ..base.errors import StoreError, StoreLocked
from ..base.files import open_private, sync_folder
from .connection import attach_new
from .database_files import locked_copy
from .migrations import declare_compression
from .problems import store_problem
from .query import column, number, transaction

__all__ = ["CopyReport", "copied", "copy_to", "replace_by_copy"]

# Seconds to wait for the end of the last statement of a client that was killed.
_DETACH_PATIENCE, _DETACH_INTERVAL = 60.0, 0.1


class CopyReport(NamedTuple):
    """The contents and sizes of a copy.

    Attributes:
        rows: The number of rows by table.
        before: The size of the database (bytes).
        after: The size of the copy (bytes).
    """

    rows: dict[str, int]
    before: int
    after: int


def copy_to(connection: duckdb.DuckDBPyConnection, database: str, target: Path) -> CopyReport:
    """Copy the database as it is at this moment. Other connections may write meanwhile.

    Args:
        connection: A connection to the database.
        database: The database's path.
        target: The file to create.

    Raises:
        StoreError: The file exists or cannot be written, or the copy is not complete.
    """
    if target.exists():
        raise StoreError(f"{target}: exists already; give another name, or remove it first")
    if not target.absolute().parent.is_dir():
        raise StoreError(f"{target}: its folder does not exist; create it first")
    with copied(connection, database) as (copy, rows):
        report = CopyReport(rows, Path(database).stat().st_size, copy.stat().st_size)
        try:
            _move(copy, target)
        except OSError as error:
            raise StoreError(f"{target}: cannot be written: {error.strerror or error}") from error
    return report


def replace_by_copy(connection: duckdb.DuckDBPyConnection, database: str) -> CopyReport:
    """Replace the database by a copy, and close the connection.

    Args:
        connection: The only connection to the database.
        database: The database's path.

    Raises:
        StoreError: The copy is not complete; the database is unchanged.
        StoreLocked: Another process opened the database meanwhile; it is unchanged.
    """
    path = Path(database).absolute()
    with copied(connection, database) as (copy, rows):
        connection.execute("CHECKPOINT store")
        connection.close()
        was = path.stat()
        with path.open("r+b") as file:
            try:
                # DuckDB does not open a file that another process has locked.
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StoreLocked(f"{path}: another process opened it; try again") from None
            now = path.stat()
            if (was.st_ino, was.st_size, was.st_mtime_ns) != (
                *(now.st_ino, now.st_size, now.st_mtime_ns),
            ) or Path(f"{path}.wal").exists():
                raise StoreLocked(f"{path}: another process changed it; try again")
            report = CopyReport(rows, was.st_size, copy.stat().st_size)
            copy.replace(path)
            sync_folder(path.parent)
    return report


@contextmanager
def copied(
    connection: duckdb.DuckDBPyConnection, database: str
) -> Iterator[tuple[Path, dict[str, int]]]:
    """Copy the database to the file beside it, and remove the copy at the end if it was not moved.

    If another process copies the database, this waits for it.

    Args:
        connection: A connection to the database.
        database: The database's path.

    Yields:
        The copy, and its number of rows by table.

    Raises:
        StoreError: It cannot be copied.
    """
    with locked_copy(database) as copy:
        try:
            _detach_leftover(connection)
            rows = _make_copy(connection, copy)
        except duckdb.Error as error:
            problem = store_problem(error, str(copy))
            raise problem or StoreError(f"{copy}: {str(error).splitlines()[0]}") from error
        with copy.open("rb") as file:
            os.fsync(file.fileno())
        yield copy, rows


def _detach_leftover(connection: duckdb.DuckDBPyConnection) -> None:
    """Detach the copy that a killed client has left attached, once its last statement has ended."""
    until = time.monotonic() + _DETACH_PATIENCE
    while True:
        try:
            connection.execute("DETACH DATABASE IF EXISTS copy")
            return
        except duckdb.Error:
            if time.monotonic() > until:
                raise
        time.sleep(_DETACH_INTERVAL)


def _make_copy(connection: duckdb.DuckDBPyConnection, copy: Path) -> dict[str, int]:
    """Create the copy, without a write-ahead log, and return its number of rows by table."""
    attach_new(connection, copy, "copy")
    log = Path(f"{copy}.wal")
    try:
        copy.chmod(0o600)  # nothing is in it yet
        open_private(log).close()
        with transaction(connection):
            connection.execute("COPY FROM DATABASE store TO copy (SCHEMA)")
            declare_compression(connection, "copy")
            connection.execute("COPY FROM DATABASE store TO copy (DATA)")
            rows = _rows_by_table(connection, "store")
            if rows != _rows_by_table(connection, "copy"):
                raise StoreError(f"{copy}: the copy is not complete; nothing was replaced")
        connection.execute("FORCE CHECKPOINT copy")
    finally:
        connection.execute("DETACH copy")
    if log.exists() and log.stat().st_size:
        raise StoreError(f"{copy}: the copy is not complete; nothing was replaced")
    return rows


def _rows_by_table(connection: duckdb.DuckDBPyConnection, name: str) -> dict[str, int]:
    tables = column(
        connection,
        "SELECT table_name FROM duckdb_tables() WHERE database_name = ? ORDER BY ALL",
        [name],
    )
    return {
        str(table): number(connection, f'SELECT count(*) FROM {name}."{table}"')  # noqa: S608
        for table in tables
    }


def _move(copy: Path, target: Path) -> None:
    """Move a file, also to another file system; the target is complete or missing."""
    try:
        copy.rename(target)
    except OSError:
        partial = target.with_name(f"{target.name}.partial")
        try:
            with copy.open("rb") as source, open_private(partial) as file:
                shutil.copyfileobj(source, file, 1 << 20)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    sync_folder(target.absolute().parent)
