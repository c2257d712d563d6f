"""What was archived, read back: the rows of some traces, or all of them.

The files are read by pyarrow in the process that asks, not by DuckDB, whose connections reach no
file but the database. Which files they are, the database says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ..errors import ArchiveMissing
from .query import number
from .rows import LOG_SCHEMA, SPAN_SCHEMA

__all__ = ["SCHEMAS", "Cold", "key_table"]

SCHEMAS = {"spans": SPAN_SCHEMA, "logs": LOG_SCHEMA}
_IDENTITY = {"spans": ("trace_id", "span_id"), "logs": ("fingerprint",)}


def key_table(trace_ids: Sequence[str]) -> pa.Table:
    """Return trace ids as the table that queries call ``wanted``."""
    return pa.table({"trace_id": pa.array(trace_ids, pa.string())})


class Cold:
    """The archived spans and log records of a store.

    Args:
        connection: The store's connection.
        database: The store's path; paths of files are relative to its folder.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, database: str) -> None:
        self._connection = connection
        self.base = Path(database).absolute().parent

    def count(self, kind: str) -> int:
        """Return how many rows of a kind, ``spans`` or ``logs``, are archived."""
        return number(
            self._connection,
            'SELECT coalesce(sum("rows"), 0) FROM archived_files '
            "WHERE kind = ? AND state = 'kept'",
            [kind],
        )

    def of_traces(self, kind: str, trace_ids: Sequence[str]) -> pa.Table:
        """Return all rows of a kind that some traces have in the archive.

        Raises:
            ArchiveMissing: One of the files is not there.
        """
        paths = [path for path, _ in self.files(kind, trace_ids)]
        return pa.concat_tables(
            [SCHEMAS[kind].empty_table(), *(self.read(path, kind, trace_ids) for path in paths)]
        )

    def unreachable(self, trace_ids: Sequence[str]) -> set[str]:
        """Return those of some traces that are in files which are not there any more."""
        found: set[str] = set()
        for kind in SCHEMAS:
            for path, traces in self.files(kind, trace_ids):
                if not (self.base / path).exists():
                    found.update(traces)
        return found

    def batches(self, kind: str) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a kind, file by file.

        Raises:
            ArchiveMissing: One of the files is not there.
        """
        rows = self._connection.execute(
            "SELECT path FROM archived_files WHERE kind = ? AND state = 'kept' ORDER BY path",
            [kind],
        ).fetchall()
        for (path,) in rows:
            yield from self.read(path, kind).to_batches()

    def without_archived(self, kind: str, table: pa.Table) -> pa.Table:
        """Return rows less those that the archive has."""
        traces = sorted(set(filter(None, table["trace_id"].unique().to_pylist())))
        return without(kind, table, self.of_traces(kind, traces))

    def files(self, kind: str, trace_ids: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Return the files of a kind that hold some traces, each with those it holds."""
        if not trace_ids:
            return []
        self._connection.register("wanted", key_table(trace_ids))
        # Both are compared: numbers are quick, and two traces may have the same.
        rows = self._connection.execute(
            """
            SELECT f.path, list(DISTINCT t.trace_id)
            FROM archived_traces t
            JOIN (SELECT trace_id, md5_number_lower(trace_id) AS "key" FROM wanted) w
              ON t."key" = w."key" AND t.trace_id = w.trace_id
            JOIN archived_files f ON t.file = f.file
            WHERE f.kind = ? AND f.state = 'kept'
            GROUP BY f.path ORDER BY f.path
            """,
            [kind],
        ).fetchall()
        self._connection.unregister("wanted")
        return [(str(path), list(traces)) for path, traces in rows]

    def read(self, path: str, kind: str, trace_ids: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of a file, or those that some traces have in it.

        Raises:
            ArchiveMissing: It is missing, or cannot be read.
        """
        # Only who has an archive pays for the import.
        import pyarrow.dataset as ds

        place = self.base / path
        wanted: Any = None
        if trace_ids is not None:
            wanted = ds.field("trace_id").isin(pa.array(trace_ids, pa.string()))
        try:
            found = ds.dataset(place, format="parquet", partitioning=None).to_table(filter=wanted)
            return found.cast(SCHEMAS[kind])
        except (OSError, pa.ArrowException) as error:
            reason = "is not there" if not place.exists() else f"cannot be read ({error})"
            raise ArchiveMissing(
                f"{place}: archived {kind}, and the file {reason}; put the archive back in place"
            ) from error


def without(kind: str, table: pa.Table, others: pa.Table) -> pa.Table:
    """Return the rows of a table that are not among others, by what tells them apart."""
    if not table.num_rows or not others.num_rows:
        return table
    names = _IDENTITY[kind]
    known = set(zip(*(others[name].to_pylist() for name in names), strict=True))
    mine = zip(*(table[name].to_pylist() for name in names), strict=True)
    return table.filter(pa.array([key not in known for key in mine], pa.bool_()))
