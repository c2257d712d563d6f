"""The files of a database and of the copy beside it, which only their owner can read.

DuckDB creates a database, its write-ahead log and the folder of its temporary files with the modes
that the umask gives. In a process of oteval, that umask is private; see `oteval.base.files`. In any
other process,

- a new database is created in a private folder beside its place, and moved there when it is closed,
- the write-ahead log, which DuckDB deletes at each checkpoint, is created before each statement,
- the folder of temporary files is created before DuckDB needs it.

Besides the database, a connection may open only the files of the copy. Backups, compactions and
readers of several databases make such a copy, one after the other, and move or remove it before
they release the lock. If a process is killed, the operating system releases its lock. The next
process that makes a copy or opens the database removes the leftover files.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from ..base.errors import StoreError
from ..base.files import exclusive_lock, has_private_umask, make_folder, waiting_lock

__all__ = [
    "copy_files",
    "copy_path",
    "create_database",
    "locked_copy",
    "private_connection",
    "remove_leftover_copy",
    "spill_folder",
]

# Errors of file systems without hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def create_database(connection: duckdb.DuckDBPyConnection, path: Path, options: str) -> bool:
    """Create an empty database that only its owner can read, unless the file exists.

    Other processes only ever see the complete file.

    Args:
        connection: A connection that may open other files.
        path: The file.
        options: The options of ``ATTACH``.

    Returns:
        Whether it was created; False if another process was faster.

    Raises:
        StoreError: It cannot be created.
    """
    target = path.resolve()  # behind a link whose file is missing
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=target.parent) as folder:
            new = Path(folder) / "new.duckdb"
            quoted = str(new).replace("'", "''")
            connection.execute(f"ATTACH '{quoted}' AS new ({options})")
            connection.execute("DETACH new")
            new.chmod(0o600)
            stray = _log_number(target)
            _move_new(new, target)
            _put_aside_log(target, stray)
    except FileExistsError:
        return False
    except FileNotFoundError:
        raise StoreError(f"{path}: its folder does not exist; create it first") from None
    except OSError as error:
        raise StoreError(f"{path}: cannot be created: {error.strerror or error}") from error
    return True


def _log_number(path: Path) -> int:
    """The inode of the write-ahead log beside a database; 0 if there is none."""
    try:
        return Path(f"{path}.wal").stat().st_ino
    except FileNotFoundError:
        return 0


def _put_aside_log(path: Path, number: int) -> None:
    """Rename a log that an earlier database left when it was moved away or deleted.

    Args:
        path: The new database.
        number: The inode of the log; a log with another inode belongs to the new database.
    """
    if number and _log_number(path) == number:
        Path(f"{path}.wal").rename(f"{path}.wal.stray-{number}")


def _move_new(new: Path, path: Path) -> None:
    """Give a file its name.

    Raises:
        FileExistsError: There is one of this name.
        OSError: The file system refuses it.
    """
    try:
        path.hardlink_to(new)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            raise FileExistsError(path) from None
        new.rename(path)


def private_connection(
    connection: duckdb.DuckDBPyConnection, path: Path
) -> duckdb.DuckDBPyConnection:
    """A connection whose files only their owner can read.

    Args:
        connection: The connection to a database.
        path: Its file.
    """
    if has_private_umask():
        return connection
    spilled = spill_folder(path)
    with suppress(OSError):
        make_folder(spilled)
    wrapped: Any = _PrivateConnection(connection, Path(f"{path.absolute()}.wal"), spilled)
    return wrapped  # type: ignore[no-any-return]


def spill_folder(path: Path) -> Path:
    """The folder of the temporary files of a database.

    By default DuckDB takes the working directory of the process.
    """
    return Path(f"{path.absolute()}.tmp")


class _PrivateConnection:
    """A connection that creates the write-ahead log for its owner only, before DuckDB does."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, log: Path, spilled: Path | None = None
    ) -> None:
        self._connection, self._log, self._spilled = connection, log, spilled

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, query: Any, params: Any = None) -> duckdb.DuckDBPyConnection:
        self._prepare()
        return self._connection.execute(query, params)

    def executemany(self, query: Any, params: Any = None) -> duckdb.DuckDBPyConnection:
        self._prepare()
        return self._connection.executemany(query, params)

    def commit(self) -> duckdb.DuckDBPyConnection:
        self._prepare()
        return self._connection.commit()

    def cursor(self) -> _PrivateConnection:
        return _PrivateConnection(self._connection.cursor(), self._log)

    def close(self) -> None:
        # Before others can open the database: a log that is empty now might be theirs later.
        if self._spilled is not None:
            with suppress(OSError):
                if not self._log.stat().st_size:
                    self._log.unlink()
        self._connection.close()
        if self._spilled is not None:
            with suppress(OSError):
                self._spilled.rmdir()

    def _prepare(self) -> None:
        """Create the log, or make one private that DuckDB has created during a checkpoint."""
        try:
            if self._log.stat().st_mode & 0o077:
                self._log.chmod(0o600)
        except FileNotFoundError:
            with suppress(OSError):
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
                os.close(os.open(self._log, flags, 0o600))
        except OSError:
            pass  # DuckDB's own error explains more


# Seconds to wait for others that copy the database, which may be large.
_PATIENCE = 600.0
# Folders of copies that earlier versions left when they were killed, and their least age (s).
_FORMER, _FORMER_AGE = ".oteval-copy-*", 3600.0


def copy_path(name: str) -> Path:
    """The only file beside a database that it may be copied to."""
    return Path(f"{Path(name).absolute()}.copy")


def copy_files(name: str) -> list[Path]:
    """The file of `copy_path`, and the files that DuckDB creates beside it while it writes."""
    copy = copy_path(name)
    return [copy, *(Path(f"{copy}{end}") for end in (".wal", ".wal.checkpoint", ".wal.recovery"))]


@contextmanager
def locked_copy(name: str) -> Iterator[Path]:
    """Be the only process that copies a database, while a block runs.

    Args:
        name: The path of the database.

    Yields:
        The path of the copy, which is missing. If the file exists at the end, it is removed.

    Raises:
        StoreError: Another process copies the database for minutes, or the folder cannot be
            written.
    """
    lock = _lock_path(name)
    try:
        with waiting_lock(lock, _PATIENCE):
            try:
                _remove(name)
                yield copy_path(name)
            finally:
                _remove(name)
                lock.unlink(missing_ok=True)
    except BlockingIOError:
        raise StoreError(
            f"{copy_path(name)}: another process is copying the database; try again later"
        ) from None


def remove_leftover_copy(name: str) -> None:
    """Remove the copy that a killed process has left beside a database.

    Args:
        name: The path of the database.
    """
    if not copy_path(name).exists():
        return
    lock = _lock_path(name)
    with suppress(OSError), exclusive_lock(lock):  # else another process is making it
        _remove(name)
        lock.unlink(missing_ok=True)


def _lock_path(name: str) -> Path:
    return Path(f"{copy_path(name)}.lock")


def _remove(name: str) -> None:
    for path in copy_files(name):
        path.unlink(missing_ok=True)
    for folder in copy_path(name).parent.glob(_FORMER):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _FORMER_AGE:
                shutil.rmtree(folder)
