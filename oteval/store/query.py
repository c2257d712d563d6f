"""Transactions, and small queries fetched whole.

DuckDB 2 refuses new work while a result is unfinished.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import duckdb
import pyarrow as pa

__all__ = ["number", "reader", "row", "transaction"]

_READ = 4096


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


def reader(
    connection: duckdb.DuckDBPyConnection, query: str, values: Sequence[Any] = ()
) -> pa.RecordBatchReader:
    """Return a query's result, to be read batch by batch while the connection does other work."""
    own = connection.cursor()
    own.execute("USE store")
    return own.sql(query, params=list(values)).to_arrow_reader(_READ)


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Make everything that is written inside the block count together, or not at all."""
    connection.begin()
    try:
        yield
        connection.commit()
    except BaseException:
        # A commit that failed has ended the transaction; the first error says why.
        with suppress(duckdb.Error):
            connection.rollback()
        raise
