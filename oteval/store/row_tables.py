"""Rows in a temporary DuckDB database, for queries that the store's own connection must not run.

The rows are on disk, so that memory does not grow with them, and the store is free again once they
are copied. Times are in UTC and have no zone: DuckDB returns times with a zone to Python only where
pytz is installed.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path

import duckdb
import pyarrow as pa

from .query import insert

__all__ = ["Relation", "RowTables"]

Relation = duckdb.DuckDBPyRelation

_MEMORY_LIMIT = "256MB"


class RowTables:
    """Tables of a temporary database; its files are deleted with the object."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="oteval-rows-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._numbers = itertools.count(1)
        self._connection = duckdb.connect(
            folder / "rows.duckdb",
            config={
                "memory_limit": _MEMORY_LIMIT,
                "temp_directory": str(folder),
                "autoinstall_known_extensions": False,
            },
        )

    def add(self, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Relation:
        """Copy rows to a new table.

        Args:
            name: The beginning of the table's name.
            schema: The columns.
            batches: The rows.

        Returns:
            The table. Relations of one object may be joined.
        """
        table = f'"{name}_{next(self._numbers)}"'
        schema = pa.schema([_without_zone(field) for field in schema])
        self._connection.register("empty", schema.empty_table())
        self._connection.execute(f"CREATE TABLE {table} AS FROM empty")
        self._connection.unregister("empty")
        for batch in batches:
            insert(self._connection, table, pa.Table.from_batches([batch]).cast(schema))
        return self._connection.table(table)


def _without_zone(field: pa.Field) -> pa.Field:
    is_time = pa.types.is_timestamp(field.type)
    return field.with_type(pa.timestamp(field.type.unit)) if is_time else field
