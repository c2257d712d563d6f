"""Files of DuckDB that only their owner can read, whichever process creates them.

DuckDB creates a database, its write-ahead log and the folder of its temporary files with the modes
that the umask gives. In a process of oteval, that umask is private; see `oteval.base.files`. In any
other process,

- a new database is created in a private folder beside its place, and moved there when it is closed,
- the write-ahead log, which DuckDB deletes at each checkpoint, is created before each statement,
- the folder of temporary files is created before DuckDB needs it.
"""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb

from ..base.errors import StoreError
from ..base.files import has_private_umask, make_folder

__all__ = ["create_database", "private_connection", "spill_folder"]

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
