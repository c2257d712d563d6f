"""Compression of long texts.

Each model call repeats the messages, system instructions and tool definitions of earlier calls.
DuckDB compresses the values of a column together, so zstd finds these repetitions. The compression
that DuckDB would choose finds only prefixes and short words, and makes a database three times as
large. Columns that are mostly empty, or contain few different texts, are left to DuckDB: zstd
stores the length of every value, even of NULL.
"""

from __future__ import annotations

import duckdb

__all__ = ["declare_compression"]

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
