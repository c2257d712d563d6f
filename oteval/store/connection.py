"""Opening the database: its settings, its migrations, and an error for each kind of failure.

One process at a time opens the database's file; DuckDB locks it. Other processes on the machine use
it through the server that has it open; see `remote_client`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import duckdb

from ..base.errors import NotAStore, StoreError
from ..base.files import MEMORY
from .database_files import (
    copy_files,
    create_database,
    private_connection,
    remove_leftover_copy,
    spill_folder,
)
from .migrations import applied, migrate, newest
from .problems import opening_problem, require_log

__all__ = [
    "CHECKPOINT_SIZE",
    "LOADING_MEMORY_LIMIT",
    "MEMORY",
    "MEMORY_LIMIT",
    "ROW_GROUP_ROWS",
    "attach_new",
    "attach_shard",
    "begin_sharded",
    "connect",
    "connect_in_memory",
    "finish_sharded",
    "is_writable",
]

_Settings = dict[str, str | bool | int | float | list[str]]

# DuckDB's memory limit for a database file, and the limit while rows are loaded. Without the lower
# limit it would keep the loaded rows in memory, although few of them are read again soon.
MEMORY_LIMIT = "512MB"
LOADING_MEMORY_LIMIT = "100MB"

# A checkpoint rewrites the last row group of each table, and trajectories are wide: at 3,000
# spans/s a commit took up to 0.95 s with 16,384 rows, 0.52 s with 4,096 and 0.25 s with 2,048, and
# inserts were as fast. The file does not store the size, so it is set at every opening. Otherwise
# the next checkpoint would rewrite all rows in DuckDB's default size (122,880).
ROW_GROUP_ROWS = 2048
_ROW_GROUPS = f"ROW_GROUP_SIZE {ROW_GROUP_ROWS}"
# DuckDB 1.5 and DuckDB 2 both read this format. A long column of a row group begins a new block, so
# small blocks leave less space empty than DuckDB's default (262,144). Blocks of 16,384 bytes save
# nothing more.
_NEW_FILE = "STORAGE_VERSION 'v1.5.0', BLOCK_SIZE 32768"
# A checkpoint is made once the write-ahead log has this size (bytes).
CHECKPOINT_SIZE = 16 << 20
_EACH_COMMIT: _Settings = {"checkpoint_threshold": f"{CHECKPOINT_SIZE}B"}
# `Store.checkpoint` makes the checkpoints while others write. Only if these keep failing does a
# commit make a checkpoint. Small row groups stay as they are: merging them takes ten times as long
# as the rest of a checkpoint, and inserts wait for it.
_SEPARATE: _Settings = {"checkpoint_threshold": f"{16 * CHECKPOINT_SIZE}B", "max_vacuum_tasks": 0}
_CONFIG: _Settings = {
    "preserve_insertion_order": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


def connect(
    path: str | Path, *, create: bool = True, checkpoints: bool = True
) -> duckdb.DuckDBPyConnection:
    """Open a database and migrate it to the newest schema.

    External access is off: besides the database, the connection can open only the file beside it to
    which the database may be copied. The configuration is locked, except the limits of memory and
    threads.

    Args:
        path: The database's file, or ":memory:".
        create: Create the file if it is missing.
        checkpoints: Make a checkpoint in a commit that makes the log large.

    Raises:
        NotAStore: The file is not a DuckDB database, or oteval did not create it.
        StoreLocked: Another process has it open.
        StoreTooNew: A newer oteval or DuckDB wrote it.
        StoreError: It cannot be opened for another reason.
    """
    name = str(path)
    if not name:
        raise StoreError("the database's name is empty; give --db FILE")
    is_new = name == MEMORY or not Path(name).exists()
    if is_new and not create:
        raise StoreError(f"{name}: no such database; load traces first: oteval ingest FILE")
    config = {**_CONFIG, **(_EACH_COMMIT if checkpoints else _SEPARATE)}
    if name == MEMORY:
        return connect_in_memory(config)
    config |= {"memory_limit": MEMORY_LIMIT, "temp_directory": str(spill_folder(Path(name)))}
    connection = duckdb.connect(MEMORY, config=config)
    try:
        return _opened(connection, name, is_new=is_new)
    except duckdb.Error as error:
        connection.close()
        raise opening_problem(error, name) from error
    except BaseException:
        connection.close()
        raise


def connect_in_memory(config: _Settings) -> duckdb.DuckDBPyConnection:
    """A connection to a new database in memory, with the newest schema."""
    # It needs memory for all of its rows; a database in a file only needs memory for buffers.
    connection = duckdb.connect(MEMORY, config={**config, "memory_limit": "4GB"})
    connection.execute("ATTACH ':memory:' AS store (TYPE duckdb)")
    connection.execute("USE store")
    migrate(connection, MEMORY, is_new=True)
    _lock(connection)
    return connection


def _opened(
    connection: duckdb.DuckDBPyConnection, name: str, *, is_new: bool
) -> duckdb.DuckDBPyConnection:
    """Attach a database to a connection, migrate it, and take all other rights away.

    Raises:
        StoreError: It cannot be opened; the subclass says why.
        duckdb.Error: It cannot be opened for a reason that DuckDB has found.
    """
    path = Path(name)
    is_new = is_new and create_database(
        connection, path, f"TYPE duckdb, {_ROW_GROUPS}, {_NEW_FILE}"
    )
    require_log(name)
    # Without the type, DuckDB would try extensions on a file of another kind.
    can_write = is_writable(path)
    options = f"TYPE duckdb, {_ROW_GROUPS}" if can_write else "TYPE duckdb, READ_ONLY"
    connection.execute(f"ATTACH {_quoted(name)} AS store ({options})")
    if can_write:
        remove_leftover_copy(name)
        connection = private_connection(connection, path)
    try:
        connection.execute("USE store")
        _refuse_foreign(connection, name, is_new)
        if can_write:
            migrate(connection, name, is_new=is_new)
        else:
            _refuse_older(connection, name)
        paths = ", ".join(_quoted(file) for file in copy_files(name))
        connection.execute(f"SET allowed_paths = [{paths}]")
        _lock(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_older(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Refuse a database with an older schema, because a read-only one cannot be migrated."""
    if applied(connection) < newest():
        raise StoreError(
            f"{name}: it has the schema of an older oteval, and its file or its folder cannot be "
            "written; copy it to another folder, and give that --db"
        )
    migrate(connection, name)  # refuses a newer one


def is_writable(path: Path) -> bool:
    """Whether a database can be written: its file, and other files in its folder."""
    return os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK)


def _lock(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a connection open no other file, and lock its configuration."""
    connection.execute("SET enable_external_access = false")
    # COPY FROM DATABASE itself sets the last setting, which DuckDB 1.5 counts as a change.
    allowed = "'memory_limit', 'threads', 'current_transaction_invalidation_policy'"
    connection.execute(f"SET allowed_configs = [{allowed}]")
    connection.execute("SET lock_configuration = true")


def begin_sharded(path: Path) -> duckdb.DuckDBPyConnection:
    """Create a small database for the views on several others; see `sharded`.

    Args:
        path: Its file, in a temporary folder.
    """
    spilled = str(spill_folder(path.parent))
    config = {**_CONFIG, "memory_limit": MEMORY_LIMIT, "temp_directory": spilled}
    connection = duckdb.connect(MEMORY, config=config)
    attach_new(connection, path, "store")
    connection.execute("USE store")
    migrate(connection, str(path), is_new=True)
    return connection


def attach_shard(connection: duckdb.DuckDBPyConnection, path: str, name: str) -> None:
    """Attach a database to read it.

    Args:
        connection: A connection of `begin_sharded`.
        path: The database's file.
        name: Its name in queries.

    Raises:
        StoreError: It cannot be opened; the subclass says why.
    """
    if not Path(path).exists():
        raise StoreError(f"{path}: no such database; load traces first: oteval ingest FILE")
    try:
        connection.execute(f"ATTACH {_quoted(path)} AS {name} (TYPE duckdb, READ_ONLY)")
    except duckdb.Error as error:
        raise opening_problem(error, path) from error


def finish_sharded(
    connection: duckdb.DuckDBPyConnection, path: Path, folders: Sequence[Path] = ()
) -> None:
    """Make the database of `begin_sharded` read-only; its file can be deleted then.

    Args:
        connection: A connection of `begin_sharded`.
        path: The database's file.
        folders: The folders whose files its views read.
    """
    connection.execute("USE memory")
    connection.execute("DETACH store")
    connection.execute(f"ATTACH {_quoted(path)} AS store (TYPE duckdb, READ_ONLY)")
    connection.execute("USE store")
    if folders:
        places = ", ".join(_quoted(folder) for folder in folders)
        connection.execute(f"SET allowed_directories = [{places}]")
    _lock(connection)


def attach_new(connection: duckdb.DuckDBPyConnection, path: Path, name: str) -> None:
    """Create a database file with oteval's settings, and attach it.

    Args:
        connection: A connection that may open the file.
        path: The file.
        name: The database's name in queries.
    """
    options = f"TYPE duckdb, {_ROW_GROUPS}, {_NEW_FILE}"
    connection.execute(f"ATTACH {_quoted(path)} AS {name} ({options})")


def _quoted(path: Path | str) -> str:
    """A path as a literal of SQL."""
    text = str(path).replace("'", "''")
    return f"'{text}'"


def _refuse_foreign(connection: duckdb.DuckDBPyConnection, name: str, is_new: bool) -> None:
    """Refuse a DuckDB database with tables of another program."""
    if is_new or applied(connection):
        return
    tables = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = 'store' LIMIT 3"
    ).fetchall()
    if tables:
        names = ", ".join(table for (table,) in tables)
        raise NotAStore(f"{name}: a DuckDB database of another program (tables {names})")
