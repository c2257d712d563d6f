"""The archive's files: written by one process at a time, never half a file, and read by any.

The database lists the files. pyarrow reads them in the calling process, because the connections of
DuckDB can reach no file but the database.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from ..base.errors import ArchiveMissing, StoreError
from ..base.files import exclusive_lock, make_folder, open_private, sync_folder
from .query import column, next_number, number, wanted
from .telemetry_rows import LOG_SCHEMA, SPAN_SCHEMA

__all__ = [
    "SCHEMAS",
    "WANTED_ARCHIVED",
    "ArchiveFile",
    "ArchiveFolder",
    "ArchiveReader",
    "root_of",
    "rows_not_in",
    "unfinished_files",
]

_ROW_GROUP = 1024


class ArchiveFile(NamedTuple):
    """A file of the archive, with its number in ``archived_files``; it contains spans or logs."""

    number: int
    path: Path
    kind: str


class ArchiveFolder:
    """An archive's folder that only this process may write to while a block lasts.

    The rules:

    - A process that writes to a folder has an exclusive lock on ``FOLDER/.lock``. A second process
      is refused at once; the operating system releases the lock of a killed process. Readers need
      no lock, because a file that counts never changes.
    - A file is announced in ``archived_files`` with the state ``writing`` before it is created. The
      transaction that moves its rows changes the state to ``kept``, so it counts.
    - The transaction that makes a replacement count gives the replaced file the state ``deleting``.
    - Files in the states ``writing`` and ``deleting`` are therefore leftovers for the owner of the
      lock. `recover` removes them; entering the block does so first.

    Args:
        connection: The store's connection.
        base: The database's folder. Paths of files below it are stored relative to it.
        root: The archive's folder; it is created if missing.
        on_step: Called with the name of each step; for tests.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        base: Path,
        root: Path,
        on_step: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._base = base
        self._on_step = on_step
        self._lock = ExitStack()
        self.root = root

    def __enter__(self) -> ArchiveFolder:
        """Lock the folder and remove leftover files.

        Raises:
            StoreError: Another process has the lock.
            OSError: The folder cannot be written.
        """
        make_folder(self.root)
        try:
            self._lock.enter_context(exclusive_lock(self.root / ".lock"))
        except BlockingIOError:
            raise StoreError(
                f"{self.root}: another process is archiving into it; try again later"
            ) from None
        try:
            self.recover()
        except BaseException:
            self._lock.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the lock."""
        self._lock.close()

    def recover(self) -> None:
        """Remove files that are not complete and files that were replaced."""
        for file, path in unfinished_files(self._connection, self._base):
            if root_of(path) == self.root:
                path.unlink(missing_ok=True)
                _partial(path).unlink(missing_ok=True)
                self._forget(file)

    def announce(self, folder: Path, kinds: Iterable[str]) -> list[ArchiveFile]:
        """Announce new files, one of each kind, in a folder below this one."""
        first = next_number(self._connection, "archived_files", "file")
        files = []
        for file_number, kind in enumerate(kinds, first):
            path = _free_path(folder, kind, file_number)
            files.append(ArchiveFile(file_number, path, kind))
            self._connection.execute(
                "INSERT INTO archived_files VALUES (?, ?, ?, 'writing', 0, 0, 0)",
                [file_number, self._stored_path(path), kind],
            )
        self._on_step("announced")
        return files

    def withdraw(self, file: ArchiveFile) -> None:
        """Take back the announcement of a file that is not needed."""
        self._forget(file.number)

    def write(self, file: ArchiveFile, table: pa.Table) -> int:
        """Write a file that is complete or missing, and check that it contains exactly these rows.

        Returns:
            Its size (bytes).

        Raises:
            OSError: It cannot be written.
            StoreError: Other rows are read back.
        """
        import pyarrow.parquet as pq

        path = file.path
        make_folder(path.parent)
        partial = _partial(path)
        with open_private(partial) as output:
            pq.write_table(table, output, compression="zstd", row_group_size=_ROW_GROUP)
            output.flush()
            self._on_step("written")
            os.fsync(output.fileno())
        with partial.open("rb") as written:
            if not pq.ParquetFile(written).read().equals(table):
                raise StoreError(
                    f"{partial}: does not hold the rows that were written; nothing was deleted"
                )
        partial.replace(path)
        for folder in (path.parent, path.parent.parent, self.root):
            sync_folder(folder)
        self._on_step("verified")
        return path.stat().st_size

    def _forget(self, file: int) -> None:
        self._connection.execute("DELETE FROM archived_files WHERE file = ?", [file])

    def _stored_path(self, path: Path) -> str:
        return str(path.relative_to(self._base) if path.is_relative_to(self._base) else path)


def unfinished_files(connection: duckdb.DuckDBPyConnection, base: Path) -> list[tuple[int, Path]]:
    """The number and path of each file that is being written or was replaced.

    Args:
        connection: The store's connection.
        base: The database's folder.
    """
    rows = connection.execute(
        "SELECT file, path FROM archived_files WHERE state IN ('writing', 'deleting')"
    ).fetchall()
    return [(file, base / path) for file, path in rows]


def root_of(path: Path) -> Path:
    """The archive's folder of a file, above the folders for the date and the bucket."""
    return path.parent.parent.parent


def _free_path(folder: Path, kind: str, file_number: int) -> Path:
    """An unused path, since the folder may also contain files of another database."""
    path = folder / f"{kind}-{file_number:08}.parquet"
    extra = 0
    while path.exists():
        extra += 1
        path = folder / f"{kind}-{file_number:08}-{extra}.parquet"
    return path


def _partial(path: Path) -> Path:
    return path.with_suffix(".partial")


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
        rows = column(
            self._connection,
            "SELECT path FROM archived_files WHERE kind = ? AND state = 'kept' ORDER BY path",
            [kind],
        )
        for path in rows:
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
