"""Reads archived spans and log records, of some traces or of all.

The database lists the files. pyarrow reads them in the calling process, because the connections of
DuckDB can reach no file but the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ...base.errors import ArchiveMissing
from ..query import number, wanted
from ..telemetry_rows import LOG_SCHEMA, SPAN_SCHEMA

__all__ = ["SCHEMAS", "WANTED_ARCHIVED", "ArchiveReader", "rows_not_in"]

SCHEMAS = {"spans": SPAN_SCHEMA, "logs": LOG_SCHEMA}
_IDENTITY = {"spans": ("trace_id", "span_id"), "logs": ("fingerprint",)}


# The rows of ``archived_traces`` for the traces in the table ``wanted``. Comparing hashes is fast;
# comparing the ids as well is exact.
WANTED_ARCHIVED = """
    SELECT a.* FROM archived_traces a
    JOIN (SELECT trace_id, md5_number_lower(trace_id) AS "key" FROM wanted) w
    ON a."key" = w."key" AND a.trace_id = w.trace_id
    """


class ArchiveReader:
    """Reads the archived spans and log records of a store.

    ``kind`` is ``spans`` or ``logs`` everywhere.

    Args:
        connection: The store's connection.
        database: The store's path. Stored paths of files are relative to its folder.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, database: str) -> None:
        self._connection = connection
        self.base = Path(database).absolute().parent

    def count(self, kind: str) -> int:
        """The number of archived rows of a kind."""
        return number(
            self._connection,
            'SELECT coalesce(sum("rows"), 0) FROM archived_files '
            "WHERE kind = ? AND state = 'kept'",
            [kind],
        )

    def of_traces(self, kind: str, trace_ids: Sequence[str]) -> pa.Table:
        """All archived rows of a kind that some traces have.

        Raises:
            ArchiveMissing: One of the files is missing.
        """
        paths = [path for path, _ in self.files(kind, trace_ids)]
        return pa.concat_tables(
            [SCHEMAS[kind].empty_table(), *(self.read(path, kind, trace_ids) for path in paths)]
        )

    def unreachable(self, trace_ids: Sequence[str]) -> set[str]:
        """Return which of some traces have rows in missing files."""
        unreachable_traces: set[str] = set()
        for kind in SCHEMAS:
            for path, traces in self.files(kind, trace_ids):
                if not (self.base / path).exists():
                    unreachable_traces.update(traces)
        return unreachable_traces

    def batches(self, kind: str) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a kind, file by file.

        Raises:
            ArchiveMissing: One of the files is missing.
        """
        rows = self._connection.execute(
            "SELECT path FROM archived_files WHERE kind = ? AND state = 'kept' ORDER BY path",
            [kind],
        ).fetchall()
        for (path,) in rows:
            yield from self.read(path, kind).to_batches()

    def without_archived(self, kind: str, table: pa.Table) -> pa.Table:
        """The rows of a table that are not archived yet."""
        traces = sorted(set(filter(None, table["trace_id"].unique().to_pylist())))
        return rows_not_in(self.of_traces(kind, traces), table, kind)

    def files(self, kind: str, trace_ids: Sequence[str]) -> list[tuple[str, list[str]]]:
        """The files of a kind with rows of some traces, each with the traces it has."""
        if not trace_ids or not self._has_files():
            return []
        with wanted(self._connection, "trace_id", trace_ids):
            rows = self._connection.execute(
                f"""
                SELECT f.path, list(DISTINCT t.trace_id)
                FROM ({WANTED_ARCHIVED}) t JOIN archived_files f USING (file)
                WHERE f.kind = ? AND f.state = 'kept'
                GROUP BY f.path ORDER BY f.path
                """,  # noqa: S608
                [kind],
            ).fetchall()
        return [(str(path), list(traces)) for path, traces in rows]

    def _has_files(self) -> bool:
        """Whether there is an archive. Most databases have none, and the look-up is slow."""
        return bool(number(self._connection, "SELECT count(*) FROM archived_files"))

    def read(self, path: str, kind: str, trace_ids: Sequence[str] | None = None) -> pa.Table:
        """The rows of a file.

        Args:
            path: The file, relative to the database's folder.
            kind: The kind of its rows.
            trace_ids: Return only the rows of these traces.

        Raises:
            ArchiveMissing: The file is missing or cannot be read.
        """
        # A slow import that only databases with an archive need.
        import pyarrow.dataset as ds

        file_path = self.base / path
        condition: Any = None
        if trace_ids is not None:
            condition = ds.field("trace_id").isin(pa.array(trace_ids, pa.string()))
        try:
            file = ds.dataset(file_path, format="parquet", partitioning=None)
            return file.to_table(filter=condition).cast(SCHEMAS[kind])
        except (OSError, pa.ArrowException) as error:
            reason = f"cannot be read ({error})" if file_path.exists() else "is missing"
            raise ArchiveMissing(
                f"{file_path}: this file with archived {kind} {reason}; "
                "put the archive back in place"
            ) from error


def rows_not_in(hot_rows: pa.Table, table: pa.Table, kind: str) -> pa.Table:
    """The rows of a table that a second table of the same kind does not have."""
    if not table.num_rows or not hot_rows.num_rows:
        return table
    names = _IDENTITY[kind]
    known_keys = set(zip(*(hot_rows[name].to_pylist() for name in names), strict=True))
    keys = zip(*(table[name].to_pylist() for name in names), strict=True)
    return table.filter(pa.array([key not in known_keys for key in keys], pa.bool_()))
