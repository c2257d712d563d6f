"""Small queries, fetched whole: DuckDB 2 refuses new work while a result is unfinished."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

__all__ = ["number", "row"]


def row(
    connection: duckdb.DuckDBPyConnection, query: str, values: Sequence[Any] = ()
) -> tuple[Any, ...] | None:
    """Return a query's first row, or None where it has none."""
    rows = connection.execute(query, list(values)).fetchall()
    return rows[0] if rows else None


def number(connection: duckdb.DuckDBPyConnection, query: str, values: Sequence[Any] = ()) -> int:
    """Return a query's one number; 0 where it has no row."""
    found = row(connection, query, values)
    return int(found[0]) if found else 0
