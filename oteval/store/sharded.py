"""Several databases read as one.

Each database is a shard, attached read-only. A small temporary database has a view for each table:
the rows of all shards, one after the other. DuckDB applies conditions in each shard, so a query
reads no more than it would in the single databases. Tables with few rows, and tables that are
ordered by ``rowid``, are copied instead.

A shard that a server has open cannot be attached. The server makes a copy, and the copy is
attached. Readers therefore see a served shard as it was when they opened it.

``seq`` and the numbers of archived files get a distance between shards, so they stay unique. If
several shards have a run, it is read from the shard where it ends last. `ShardedStore.split_traces`
names the traces whose spans are in several shards.

A folder of results is a shard too; see `result_folder`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import duckdb

from ..base.errors import StoreError, StoreLocked
from .connection import attach_shard, begin_sharded, finish_sharded
from .database import Store, StoreContents, file_size, read_contents
from .migrations import applied, migrate, newest
from .problems import opening_problem
from .progress import PendingTraces
from .query import column, transaction
from .remote_client import connect_remote
from .result_folder import ResultFolder, is_result_folder, read_result_folder

__all__ = [
    "PATIENCE",
    "ShardedStore",
    "SplitTrace",
    "attach_results",
    "is_up_to_date",
]

PATIENCE = 20.0
"""The seconds that a reader of several databases waits for a process that has one open."""
_RETRY_INTERVAL = 0.05  # seconds

# The distances between the numbers of two shards.
_SEQ_STEP, _FILE_STEP = 1 << 40, 1 << 32
# Tables whose rows describe a single shard, and not the whole.
_OWN = ("migrations", "progress", "spool_position", "monitor_checks")
_COPIED = (
    *("references", "datasets", "examples", "experiments", "human_labels"),
    *("audit_log", "monitor_snoozes", "live_rules", "evaluator_spend"),
)
_OF_RUNS = ("trajectories", "superseded", "scores")
# Rows with the same values in these columns have the same content. Such content counts once.
_SAME_CONTENT = {"datasets": ("name", "version"), "examples": ("version",)}
_MOST_NAMED = 1000


class SplitTrace(NamedTuple):
    """A trace with rows in several databases, whose run cannot be reconstructed whole."""

    trace_id: str
    databases: tuple[str, ...]


class ShardedStore(Store):
    """Several databases or folders of results, which can only be read.

    Attributes:
        paths: The databases and folders.
        split_traces: Traces with rows in several of them, the first 1,000.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        """Open databases. A database that no server has open must have the newest schema.

        Args:
            paths: Their files, and folders of results.

        Raises:
            StoreError: One of them cannot be opened; the subclass says why.
        """
        self.paths = tuple(paths)
        results = {path: read_result_folder(path) for path in paths if is_result_folder(path)}
        with tempfile.TemporaryDirectory(prefix="oteval-shards-") as folder:
            connection = begin_sharded(Path(folder) / "views.duckdb")
            try:
                for index, path in enumerate(self.paths):
                    if path in results:
                        attach_results(connection, results[path], f"shard_{index}")
                    else:
                        _attach(connection, path, f"shard_{index}")
                self.split_traces = self._find_split_traces(connection)
                with transaction(connection):
                    _combine(connection, self.paths)
                places = [result.data for result in results.values()]
                finish_sharded(connection, Path(folder) / "views.duckdb", places)
            except BaseException:
                connection.close()
                raise
        self._use(", ".join(self.paths), connection)

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be written through this store: always."""
        return True

    def contents(self) -> StoreContents:
        """How much the databases contain together, and how much space they take."""
        sizes = (_size(path) for path in self.paths)
        return replace(read_contents(self._connection, ""), bytes=sum(sizes))

    def _find_split_traces(self, connection: duckdb.DuckDBPyConnection) -> list[SplitTrace]:
        if len(self.paths) == 1:
            return []
        parts = (
            f"SELECT {index} AS shard, trace_id FROM shard_{index}.main.current_trajectories "  # noqa: S608
            f"UNION ALL SELECT {index}, unnest(trace_ids) "
            f"FROM shard_{index}.main.current_trajectories WHERE len(trace_ids) > 1"
            for index in range(len(self.paths))
        )
        rows = connection.execute(
            f"SELECT trace_id, list_sort(list(DISTINCT shard)) AS shards "  # noqa: S608
            f"FROM ({' UNION ALL '.join(parts)}) GROUP BY trace_id "
            f"HAVING min(shard) < max(shard) ORDER BY trace_id LIMIT {_MOST_NAMED}"
        ).fetchall()
        return [
            SplitTrace(trace_id, tuple(self.paths[index] for index in shards))
            for trace_id, shards in rows
        ]


def _size(path: str) -> int:
    if is_result_folder(path):
        return read_result_folder(path).bytes
    return file_size(path)


def _attach(connection: duckdb.DuckDBPyConnection, path: str, name: str) -> None:
    """Attach a database, or a copy of it if a server has it open.

    Others may open the database for a moment to bring it up to date, or begin to serve it.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            if connect_remote(path) is not None:
                _attach_copy(connection, path, name)
            else:
                attach_shard(connection, path, name)
            return
        except StoreLocked:
            if time.monotonic() > until:
                raise
        time.sleep(_RETRY_INTERVAL)


def _attach_copy(connection: duckdb.DuckDBPyConnection, path: str, name: str) -> None:
    """Attach a copy of a database that a server has open."""
    try:
        with Store.of_server(path) as served, served.copied() as copy:
            with Store(copy, create=False, served=False):
                pass  # the newest schema
            # DuckDB keeps the file open, so its name is not needed any more.
            attach_shard(connection, str(copy), name)
    except OSError as error:
        parent, reason = Path(path).absolute().parent, error.strerror or error
        raise StoreError(f"{path}: cannot be copied to {parent}: {reason}") from error


def is_up_to_date(path: str) -> bool:
    """Whether a database has the newest schema, and all of its traces are reconstructed.

    Any number of processes can check at once.

    Raises:
        StoreLocked: Another process has it open for writing.
        StoreError: It cannot be opened; the subclass says why.
    """
    with closing(duckdb.connect()) as connection:
        attach_shard(connection, path, "store")
        try:
            connection.execute("USE store")
            return applied(connection) == newest() and not PendingTraces(connection).count()
        except duckdb.Error as error:
            raise opening_problem(error, path) from error


def _combine(connection: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> None:
    """Replace the tables of the current database by the rows of all shards."""
    repeats = _repeated_runs(connection, len(paths)) if len(paths) > 1 else set()
    table_rows = column(
        connection, "SELECT table_name FROM duckdb_tables() WHERE database_name = 'store'"
    )
    for table in table_rows:
        if table in _OWN or table == "shard_repeats":
            continue
        parts = [_part(connection, table, index, path) for index, path in enumerate(paths)]
        if table in _OF_RUNS:
            parts = [
                f"SELECT * FROM ({part}) p WHERE NOT EXISTS (FROM shard_repeats r "  # noqa: S608
                f"WHERE r.shard = {index} AND r.trajectory_id = p.trajectory_id)"
                if index in repeats
                else part
                for index, part in enumerate(parts)
            ]
        if table in _SAME_CONTENT:
            parts = [_new_content(part, table, index) for index, part in enumerate(parts)]
        query = " UNION ALL BY NAME ".join(parts)
        if table in _COPIED:
            connection.execute(f'INSERT INTO "{table}" BY NAME {query}')
        else:
            connection.execute(f'DROP TABLE "{table}"')
            connection.execute(f'CREATE VIEW "{table}" AS {query}')
    # Nothing is reconstructed here: each database does so itself.
    connection.execute("INSERT INTO progress VALUES ('reconstruct', ?)", [(1 << 63) - 1])


def _part(connection: duckdb.DuckDBPyConnection, table: str, index: int, path: str) -> str:
    """The query for the rows of one shard in a table."""
    # A query of `duckdb_columns()` would bind all views, which takes ten times as long.
    description = connection.execute(f'FROM "{table}" LIMIT 0').description
    columns = {str(column[0]) for column in description or ()}
    changed = []
    if "seq" in columns:
        changed.append(f"seq + {index * _SEQ_STEP} AS seq")
    if table in ("archived_files", "archived_traces"):
        changed.append(f'"file" + {index * _FILE_STEP} AS "file"')
    if table == "archived_files":
        changed.append(f"last_seq + {index * _SEQ_STEP} AS last_seq")
        base = str(Path(path).absolute().parent).replace("'", "''")
        changed.append(
            f"CASE WHEN starts_with(path, '/') THEN path ELSE '{base}/' || path END AS path"
        )
    columns_text = f"* REPLACE ({', '.join(changed)})" if changed else "*"
    return f'SELECT {columns_text} FROM shard_{index}.main."{table}"'  # noqa: S608


def _new_content(part: str, table: str, index: int) -> str:
    """The query for the rows of a shard whose content no earlier shard has."""
    for earlier in range(index):
        same = " AND ".join(f"e.{column} = p.{column}" for column in _SAME_CONTENT[table])
        part = (
            f"SELECT * FROM ({part}) p WHERE NOT EXISTS "  # noqa: S608
            f'(FROM shard_{earlier}.main."{table}" e WHERE {same})'
        )
    return part


def _repeated_runs(connection: duckdb.DuckDBPyConnection, count: int) -> set[int]:
    """Note the runs that each shard has too, but that are read from another shard.

    Returns:
        The shards with such runs.
    """
    parts = (
        f"SELECT {index} AS shard, trajectory_id, end_ns "  # noqa: S608
        f"FROM shard_{index}.main.trajectories"
        for index in range(count)
    )
    connection.execute(
        "CREATE TABLE shard_repeats AS "  # noqa: S608
        f"WITH runs AS (SELECT shard, trajectory_id, max(coalesce(end_ns, 0)) AS end_ns "
        f"FROM ({' UNION ALL '.join(parts)}) GROUP BY ALL), "
        "repeated AS (SELECT trajectory_id FROM runs GROUP BY trajectory_id HAVING count(*) > 1) "
        "SELECT shard, trajectory_id FROM runs SEMI JOIN repeated USING (trajectory_id) "
        "QUALIFY row_number() OVER (PARTITION BY trajectory_id ORDER BY end_ns DESC, shard) > 1"
    )
    rows = column(connection, "SELECT DISTINCT shard FROM shard_repeats")
    return set(rows)


def attach_results(connection: duckdb.DuckDBPyConnection, results: ResultFolder, name: str) -> None:
    """Attach a database in memory with the tables of a folder.

    Args:
        connection: A connection of `connection.begin_sharded`.
        results: The folder.
        name: The database's name in queries.

    Raises:
        StoreError: A file is not a Parquet file of its table.
    """
    connection.execute(f"ATTACH ':memory:' AS {name}")
    connection.execute(f"USE {name}")
    migrate(connection, str(results.path), is_new=True, name=name)
    for table, files in results.files.items():
        if not files:
            continue
        columns = ", ".join(
            f'CAST("{column}" AS {kind}) AS "{column}"'
            for column, kind, *_ in connection.execute(f'DESCRIBE "{table}"').fetchall()
        )
        places = ", ".join("'" + str(file.absolute()).replace("'", "''") + "'" for file in files)
        connection.execute(f'DROP TABLE "{table}"')
        try:
            connection.execute(
                f'CREATE VIEW "{table}" AS SELECT {columns} '  # noqa: S608
                f"FROM read_parquet([{places}], hive_partitioning = false)"
            )
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            raise StoreError(f"{results.path}: {table} cannot be read ({first})") from error
    connection.execute("USE store")
