"""A database in memory whose tables ``trajectories`` and ``scores`` are views on Parquet files."""

from __future__ import annotations

import duckdb

from ..base.errors import StoreError
from .migrations import migrate
from .result_folder import ResultFolder

__all__ = ["attach_results"]


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
