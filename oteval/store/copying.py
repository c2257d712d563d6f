"""The database copied whole: the copy has no holes where rows were deleted, so it is smaller.

The copy is made by ``COPY FROM DATABASE`` into the one file beside the database that its connection
may reach, checked table by table, and then takes the place of a backup, or of the database itself.
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
from .connection import attach_new, copy_files, copy_path

__all__ = ["Copied", "copy_to", "replace_by_copy"]


class Copied(NamedTuple):
    """What a copy came to.

    Attributes:
        rows: How many rows it has, by table.
        before: The size of the database (bytes).
        after: The size of the copy (bytes).
    """

    rows: dict[str, int]
    before: int
    after: int


def copy_to(connection: duckdb.DuckDBPyConnection, database: str, target: Path) -> Copied:
    """Copy the database as it is at this moment; others may go on writing.

    Args:
        connection: The database's connection.
        database: Its path.
        target: The file to make.

    Raises:
        StoreError: There is such a file, it cannot be written, or the copy is not complete.
    """
    if target.exists():
        raise StoreError(f"{target}: is there already; give another name, or remove it first")
    if not target.absolute().parent.is_dir():
        raise StoreError(f"{target}: its folder does not exist; make it first")
    with _copy(connection, database) as (copy, rows):
        found = Copied(rows, Path(database).stat().st_size, copy.stat().st_size)
        try:
            _move(copy, target)
        except OSError as error:
            raise StoreError(f"{target}: cannot be written: {error.strerror or error}") from error
    return found


def replace_by_copy(connection: duckdb.DuckDBPyConnection, database: str) -> Copied:
    """Put a copy in the database's place; closes the connection.

    Args:
        connection: The only connection to the database.
        database: Its path.

    Raises:
        StoreError: The copy is not complete; the database is as it was.
        StoreLocked: Another process was quicker to open the database.
    """
    path = Path(database).absolute()
    with _copy(connection, database) as (copy, rows):
        connection.execute("CHECKPOINT store")
        connection.close()
        was = path.stat()
        with path.open("r+b") as file:
            try:
                # DuckDB refuses to open a file while somebody has this lock.
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StoreLocked(f"{path}: another process opened it; try again") from None
            now = path.stat()
            if (was.st_ino, was.st_size, was.st_mtime_ns) != (
                *(now.st_ino, now.st_size, now.st_mtime_ns),
            ) or Path(f"{path}.wal").exists():
                raise StoreLocked(f"{path}: another process changed it; try again")
            found = Copied(rows, was.st_size, copy.stat().st_size)
            shutil.copymode(path, copy)
            copy.replace(path)
            sync_folder(path.parent)
    return found


@contextmanager
def _copy(
    connection: duckdb.DuckDBPyConnection, database: str
) -> Iterator[tuple[Path, dict[str, int]]]:
    """Copy the database beside itself; the copy is removed at the end, unless it was moved."""
    copy = copy_path(database)
    with _locked(copy):
        try:
            with suppress(duckdb.Error):
                # Left by a process that was killed while it copied by way of this server.
                connection.execute("DETACH DATABASE IF EXISTS copy")
            _remove(database)
            try:
                rows = _copied(connection, copy)
            except duckdb.Error as error:
                raise StoreError(f"{copy}: {str(error).splitlines()[0]}") from error
            with copy.open("rb") as file:
                os.fsync(file.fileno())
            yield copy, rows
        finally:
            _remove(database)


def _copied(connection: duckdb.DuckDBPyConnection, copy: Path) -> dict[str, int]:
    """Make the copy, all of it in the file itself, and return how many rows it has by table."""
    attach_new(connection, copy, "copy")
    try:
        connection.begin()
        try:
            connection.execute("COPY FROM DATABASE store TO copy")
            rows = _rows(connection, "store")
            if rows != _rows(connection, "copy"):
                raise StoreError(f"{copy}: the copy is not complete; nothing was replaced")
            connection.commit()
        except BaseException:
            with suppress(duckdb.Error):
                connection.rollback()
            raise
        connection.execute("FORCE CHECKPOINT copy")
    finally:
        connection.execute("DETACH copy")
    if Path(f"{copy}.wal").exists():
        raise StoreError(f"{copy}: the copy is not complete; nothing was replaced")
    return rows


def _rows(connection: duckdb.DuckDBPyConnection, name: str) -> dict[str, int]:
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
    """Move a file, to another file system too; it is there whole or not at all."""
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
    """Keep every other process from copying the same database."""
    path = Path(f"{copy}.lock")
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(path))
        except BlockingIOError:
            raise StoreError(f"{copy}: another process is copying the database") from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
