"""Writing the archive's files: one process at a time, and never half a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import duckdb
import pyarrow as pa

from ...base.errors import StoreError
from ...base.files import exclusive_lock, make_folder, open_private, sync_folder
from ..query import next_number

__all__ = ["ArchiveFile", "ArchiveFolder", "root_of", "unfinished_files"]

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
