"""Opening the database: its settings, and a clear error for each way in which it can't be used."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb

from ..errors import NotAStore, StoreError, StoreLocked, StoreTooNew
from .migrations import applied, migrate

__all__ = [
    "BUFFERS",
    "FEW_BUFFERS",
    "LOG",
    "MEMORY",
    "attach_new",
    "connect",
    "copy_files",
    "copy_path",
    "is_short_of_memory",
]

MEMORY = ":memory:"

_Settings = dict[str, str | bool | int | float | list[str]]

# The most memory that DuckDB may take for a database file, and the most while rows only come in:
# it would keep what it wrote, of which next to nothing is read again.
BUFFERS = "512MB"
FEW_BUFFERS = "100MB"

# A checkpoint rewrites the last row group of each table, and trajectories are wide: with 16,384
# rows a commit took up to 0.95 s at 3,000 spans/s, with 4,096 0.52 s, with 2,048 0.25 s, and
# inserts are no slower. The file does not keep the size: without it at every opening, the next
# checkpoint would rewrite all rows in DuckDB's default size (122,880).
_ROW_GROUPS = "ROW_GROUP_SIZE 2048"
# Either DuckDB, 1.5 and 2, reads files of v1.5.0.
_NEW_FILE = "STORAGE_VERSION 'v1.5.0'"
# How large the log beside the file may become before a checkpoint.
LOG = 16 << 20
# Where checkpoints are made by `Store.checkpoint` while others write, a commit makes one only
# should these fail again and again. They leave small row groups as they are: to merge them takes
# ten times as long as all else, and inserts wait for it.
_EACH_COMMIT: _Settings = {"checkpoint_threshold": f"{LOG}B"}
_APART: _Settings = {"checkpoint_threshold": f"{16 * LOG}B", "max_vacuum_tasks": 0}
_CONFIG: _Settings = {
    "preserve_insertion_order": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
# A checkpoint that lacks memory is told as an error of the disk.
_SHORT = re.compile(r"Out of Memory|failed to (?:pin|allocate)|could not (?:allocate|free up)")
_HOLDER = re.compile(r"held in (?P<program>.*?) \(PID (?P<pid>\d+)\)")


def connect(
    path: str | Path, *, create: bool = True, checkpoints: bool = True
) -> duckdb.DuckDBPyConnection:
    """Return a connection to a database with the newest schema.

    The connection can reach nothing but the database and, beside it, the one file that it may be
    copied to: external access is off and the configuration locked, but for the limit of memory.

    Args:
        path: The database's file, or ":memory:".
        create: Whether to make the file when it is not there.
        checkpoints: Whether commits make checkpoints when the log has become large.

    Raises:
        NotAStore: The file is no DuckDB database, or not one of oteval's.
        StoreLocked: Another process holds it.
        StoreTooNew: A newer oteval or DuckDB wrote it.
        StoreError: It cannot be opened for another reason.
    """
    name = str(path)
    if not name:
        raise StoreError("the database's name is empty; give --db FILE")
    is_new = name == MEMORY or not Path(name).exists()
    if is_new and not create:
        raise StoreError(f"{name}: no such database; load traces first: oteval ingest FILE")
    # A database in memory is all the memory there is for it; a file needs only its buffers.
    limit = "4GB" if name == MEMORY else BUFFERS
    config = {**_CONFIG, **(_EACH_COMMIT if checkpoints else _APART), "memory_limit": limit}
    if name != MEMORY:
        # By default it is in the folder that the process happens to be in.
        config["temp_directory"] = f"{Path(name).absolute()}.tmp"
    connection = duckdb.connect(MEMORY, config=config)
    try:
        _attach(connection, name, is_new)
        connection.execute("USE store")
        _refuse_foreign(connection, name, is_new)
        migrate(connection, name)
    except BaseException:
        connection.close()
        raise
    if name != MEMORY:
        paths = ", ".join("'{}'".format(str(p).replace("'", "''")) for p in copy_files(name))
        connection.execute(f"SET allowed_paths = [{paths}]")
    connection.execute("SET enable_external_access = false")
    # The second is set by COPY FROM DATABASE itself, which DuckDB 1.5 counts as a change.
    connection.execute(
        "SET allowed_configs = ['memory_limit', 'current_transaction_invalidation_policy']"
    )
    connection.execute("SET lock_configuration = true")
    return connection


def is_short_of_memory(error: BaseException) -> bool:
    """Return whether DuckDB may take less memory than what it was asked for needs."""
    return isinstance(error, duckdb.OutOfMemoryException) or bool(_SHORT.search(str(error)))


def copy_path(name: str) -> Path:
    """Return the file beside a database that it may be copied to."""
    return Path(f"{Path(name).absolute()}.copy")


def copy_files(name: str) -> list[Path]:
    """Return that file, and those that DuckDB has beside it while it writes."""
    copy = copy_path(name)
    return [copy, *(Path(f"{copy}{end}") for end in (".wal", ".wal.checkpoint", ".wal.recovery"))]


def attach_new(connection: duckdb.DuckDBPyConnection, path: Path, name: str) -> None:
    """Attach a file that is not there yet, made as every database of ours is.

    Args:
        connection: A connection that may reach the file.
        path: The file.
        name: The name that queries have for it.
    """
    quoted = str(path).replace("'", "''")
    connection.execute(f"ATTACH '{quoted}' AS {name} (TYPE duckdb, {_ROW_GROUPS}, {_NEW_FILE})")


def _attach(connection: duckdb.DuckDBPyConnection, name: str, is_new: bool) -> None:
    quoted = name.replace("'", "''")
    # The type is said, so that a file of another kind is not looked at with an extension.
    options = "TYPE duckdb"
    if name != MEMORY:
        options += f", {_ROW_GROUPS}" + (f", {_NEW_FILE}" if is_new else "")
    try:
        connection.execute(f"ATTACH '{quoted}' AS store ({options})")
    except duckdb.Error as error:
        raise _explained(name, str(error)) from error


def _explained(name: str, reason: str) -> StoreError:
    """Return the error that says what keeps a database from being opened, and what to do."""
    first = reason.splitlines()[0]
    holder = _HOLDER.search(reason)
    if holder:
        return StoreLocked(
            f"{name}: process {holder['pid']} ({holder['program']}) holds it; "
            "stop that process, or give another --db"
        )
    if "already attached" in reason:
        return StoreLocked(f"{name}: this process has it open already")
    if "lock" in first:
        return StoreLocked(f"{name}: another process holds it; stop it, or give another --db")
    if "not a valid DuckDB database" in reason or "Is a directory" in reason:
        return NotAStore(f"{name}: not an oteval database; give another --db")
    if "version number" in reason or "newer version" in reason or "serialization" in reason:
        return StoreTooNew(f"{name}: a newer DuckDB wrote it; upgrade (pip install -U duckdb)")
    if "No such file or directory" in reason:
        return StoreError(f"{name}: its folder does not exist; make it first")
    return StoreError(f"{name}: cannot be opened: {first}")


def _refuse_foreign(connection: duckdb.DuckDBPyConnection, name: str, is_new: bool) -> None:
    """Refuse a DuckDB database that holds somebody else's tables."""
    if is_new or applied(connection):
        return
    tables = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = 'store' LIMIT 3"
    ).fetchall()
    if tables:
        names = ", ".join(table for (table,) in tables)
        raise NotAStore(f"{name}: a DuckDB database of something else (tables {names})")
