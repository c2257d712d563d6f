"""Migrations of the schema: each ``NNNN_name.sql`` in this folder is applied once, in order.

A migration that was released never changes. To add a column, add a file with the next number.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

import duckdb

from ...base.errors import StoreTooNew
from ..query import number

__all__ = [
    "applied",
    "declare_compression",
    "migrate",
    "newest",
]


def _scripts() -> dict[int, str]:
    """The text of each migration by its number."""
    scripts = {}
    for entry in resources.files(__name__).iterdir():
        if entry.name.endswith(".sql"):
            scripts[int(entry.name[:4])] = entry.read_text("utf-8")
    return dict(sorted(scripts.items()))


def newest() -> int:
    """The number of the newest migration that this version of oteval knows."""
    return max(_scripts())


def applied(connection: duckdb.DuckDBPyConnection) -> int:
    """The number of the last migration that was applied to a database, or 0."""
    try:
        return number(connection, "SELECT coalesce(max(number), 0) FROM main.migrations")
    except (duckdb.BinderException, duckdb.CatalogException):
        # Another program's table, or none. A query of `duckdb_columns()` first would take 25 ms.
        return 0


def migrate(
    connection: duckdb.DuckDBPyConnection, path: str, *, is_new: bool = False, name: str = "store"
) -> None:
    """Apply the missing migrations to a database.

    A new database gets all of them in one transaction. An older database gets each in a separate
    transaction.

    Args:
        connection: A connection with the database as its current one.
        path: The database's path, for the error message.
        is_new: Whether it is known to be empty.
        name: Its name in queries.

    Raises:
        StoreTooNew: A newer oteval wrote the database.
    """
    done = 0 if is_new else applied(connection)
    if done > newest():
        raise StoreTooNew(
            f"{path}: its schema is number {done}, and this oteval knows {newest()}; "
            "upgrade oteval (pip install -U oteval) or give another --db"
        )
    missing = [(position, text) for position, text in _scripts().items() if position > done]
    if is_new:
        # Each transaction is a write to the disk, and nobody needs the states between them.
        _apply(connection, missing)
        declare_compression(connection, name)
        return
    for script in missing:
        _apply(connection, [script])


def _apply(connection: duckdb.DuckDBPyConnection, scripts: Sequence[tuple[int, str]]) -> None:
    """Apply some migrations in one transaction."""
    connection.begin()
    for position, script in scripts:
        if position == 1:
            connection.execute("CREATE TABLE migrations (number INTEGER, applied_at TIMESTAMP)")
        connection.execute(script)
        connection.execute("INSERT INTO migrations VALUES (?, now()::TIMESTAMP)", [position])
    connection.commit()


_COLUMNS = {
    "spans": ("input", "output", "attributes", "events"),
    "logs": ("body", "attributes"),
    "trajectories": (
        *("messages", "steps", "tools", "gaps", "rewrites", "attributes", "documents"),
    ),
}


def declare_compression(connection: duckdb.DuckDBPyConnection, database: str) -> None:
    """Declare zstd for the columns of long texts, in a database whose tables are empty.

    DuckDB cannot change the compression of a column, so the tables are created anew. A database
    that an older oteval created keeps its compression until `oteval compact`.

    Args:
        connection: A connection with the database attached.
        database: The database's name in queries.
    """
    for table, compressed in _COLUMNS.items():
        # A query of `duckdb_columns()` would bind all views, which takes ten times as long.
        columns = connection.execute(f"DESCRIBE {database}.main.{table}").fetchall()
        definitions = [
            f'"{name}" {kind}'
            + (" USING COMPRESSION zstd" if name in compressed else "")
            + (" NOT NULL" if is_nullable == "NO" else "")
            for name, kind, is_nullable, *_ in columns
        ]
        connection.execute(
            f"CREATE OR REPLACE TABLE {database}.main.{table} ({', '.join(definitions)})"
        )
