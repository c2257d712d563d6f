"""Backups and compaction: both copy the whole database, without the space of deleted rows.

``COPY FROM DATABASE`` copies it to the only file beside the database that its connection may open.
The copy is checked table by table. It then becomes the backup, or replaces the database.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import duckdb

from ..errors import StoreError, StoreLocked
from ..files import exclusive_lock, sync_folder
from .compression import declare_compression
from .connection import attach_new, copy_files, copy_path
from .query import transaction

__all__ = ["CopyReport", "copy_to", "replace_by_copy"]


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
    with _copy(connection, database) as (copy, rows):
        found = CopyReport(rows, Path(database).stat().st_size, copy.stat().st_size)
        try:
            _move(copy, target)
        except OSError as error:
            raise StoreError(f"{target}: cannot be written: {error.strerror or error}") from error
    return found


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
    with _copy(connection, database) as (copy, rows):
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
            found = CopyReport(rows, was.st_size, copy.stat().st_size)
            shutil.copymode(path, copy)
            copy.replace(path)
            sync_folder(path.parent)
    return found


@contextmanager
def _copy(
    connection: duckdb.DuckDBPyConnection, database: str
) -> Iterator[tuple[Path, dict[str, int]]]:
    """Copy the database to the file beside it, which is removed at the end if it was not moved."""
    copy = copy_path(database)
    with _locked(copy):
        try:
            with suppress(duckdb.Error):
                # A client that was killed while it copied through this server left it attached.
                connection.execute("DETACH DATABASE IF EXISTS copy")
            _remove(database)
            try:
                rows = _make_copy(connection, copy)
            except duckdb.Error as error:
                raise StoreError(f"{copy}: {str(error).splitlines()[0]}") from error
            with copy.open("rb") as file:
                os.fsync(file.fileno())
            yield copy, rows
        finally:
            _remove(database)


def _make_copy(connection: duckdb.DuckDBPyConnection, copy: Path) -> dict[str, int]:
    """Create the copy, without a write-ahead log, and return its number of rows by table."""
    attach_new(connection, copy, "copy")
    try:
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
    if Path(f"{copy}.wal").exists():
        raise StoreError(f"{copy}: the copy is not complete; nothing was replaced")
    return rows


def _rows_by_table(connection: duckdb.DuckDBPyConnection, name: str) -> dict[str, int]:
    tables = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = ? ORDER BY ALL", [name]
    ).fetchall()
    found = {}
    for (table,) in tables:
        (count,) = connection.execute(
            f'SELECT count(*) FROM {name}."{table}"'  # noqa: S608
        ).fetchall()[0]
        found[str(table)] = int(count)
    return found


def _move(copy: Path, target: Path) -> None:
    """Move a file, also to another file system; the target is complete or missing."""
    try:
        copy.rename(target)
    except OSError:
        partial = target.with_name(f"{target.name}.partial")
        try:
            shutil.copyfile(copy, partial)
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.rename(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    sync_folder(target.absolute().parent)


def _remove(database: str) -> None:
    for path in copy_files(database):
        path.unlink(missing_ok=True)


@contextmanager
def _locked(copy: Path) -> Iterator[None]:
    """Prevent other processes from copying the same database."""
    path = Path(f"{copy}.lock")
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(path))
        except BlockingIOError:
            raise StoreError(
                f"{copy}: another process is copying the database; try again later"
            ) from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
