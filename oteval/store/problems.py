"""One line for each kind of failure of a database: the cause, and the remedy.

DuckDB's errors are distinguished by their text, because a remote connection has only that. The text
may contain the path of the database, so the patterns are whole phrases.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import duckdb

from ..base.errors import (
    NotAStore,
    OtevalError,
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreTooNew,
)

__all__ = ["opening_problem", "require_log", "store_problem"]

_HOLDER = re.compile(r"held in (?P<program>.*?) \(PID (?P<pid>\d+)\)")
_RESTORE = "restore a backup, or give another --db"
# The positions of the second and third header in a DuckDB file, and the position of the block size
# in each header. The block size is one of these powers of two.
_HEADERS, _BLOCK_SIZE = (4096, 8192), 8 + 4 * 8
_BLOCK_SIZES = {1 << power for power in range(14, 19)}
# The first bytes of a write-ahead log: field 100 is an entry of the kind "version".
_LOG_START = b"\x64\x00\x62"
_LOG_PROBLEM = (
    "its write-ahead log is corrupt; restore a backup, or move {name}.wal away to open the "
    "database without its newest rows"
)


# A pattern of DuckDB's text, the error to raise, and the line after the path of the database,
# which is ``{name}`` in it.
_Problem = tuple[str, type[StoreError], str]


# The first match counts. While a database is used, only these failures are known to be its fault.
_PROBLEMS = (
    (
        r"No space left on device|Disk quota exceeded|File too large",
        StoreError,
        "the disk is full; free some space, and repeat the command (stored rows are kept)",
    ),
    (r"Failure while replaying WAL", StoreCorrupt, _LOG_PROBLEM),
    (
        r"[Cc]orrupt database file|[Cc]omputed checksum",
        StoreCorrupt,
        f"it is corrupt (a checksum is wrong); {_RESTORE}",
    ),
    (
        r"Could not read enough bytes|Could not read all bytes",
        StoreCorrupt,
        f"it is corrupt (its end is missing); {_RESTORE}",
    ),
    (
        r"attached in read-only mode|Read-only file system",
        StoreError,
        "it can only be read: its file or its folder cannot be written",
    ),
)
# Failures of the opening alone.
_AT_OPENING = (
    (
        r"Could not set lock on file",
        StoreLocked,
        "another process holds it; stop it, or give another --db",
    ),
    (r"already attached", StoreLocked, "this process has it open already"),
    (
        r"with version number|newer version of DuckDB|a newer DuckDB|storage version",
        StoreTooNew,
        "a newer DuckDB wrote it; upgrade (pip install -U duckdb)",
    ),
    (
        r"Permission denied|Operation not permitted",
        StoreError,
        "this user may not open it (permission denied); give another --db",
    ),
    (r"No such file or directory", StoreError, "its folder does not exist; create it first"),
    (
        r"Serialization Error|INTERNAL Error|Failed to deserialize|[Cc]orrupt",
        StoreCorrupt,
        f"it is corrupt (it cannot be decoded); {_RESTORE}",
    ),
)


def store_problem(error: BaseException, name: str) -> StoreError | None:
    """The error of one line for an error of DuckDB, or None if the database is not at fault.

    Args:
        error: The error while the database was used. Its cause may be one of DuckDB's errors, for
            instance if another thread was busy with the statement that failed.
        name: The path of the database.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, duckdb.Error):
            if problem := _first_problem(_PROBLEMS, str(cause), name):
                return problem
        elif isinstance(cause, OtevalError):
            return None  # it names the cause already
        cause = cause.__cause__ or cause.__context__
    return None


def opening_problem(error: BaseException, name: str) -> StoreError:
    """The error of one line for an error of DuckDB while a database was opened.

    Args:
        error: DuckDB's error.
        name: The path of the database.
    """
    reason = str(error)
    if holder := _HOLDER.search(reason):
        return StoreLocked(
            f"{name}: process {holder['pid']} ({holder['program']}) holds it; "
            "stop that process, or give another --db"
        )
    if "not a valid DuckDB database" in reason or Path(name).is_dir():
        return _foreign(name)
    if problem := _first_problem((*_PROBLEMS, *_AT_OPENING), reason, name):
        return problem
    first = next(iter(reason.splitlines()), "") or type(error).__name__
    return StoreError(f"{name}: cannot be opened: {first}")


def _first_problem(problems: Sequence[_Problem], reason: str, name: str) -> StoreError | None:
    for pattern, kind, text in problems:
        if re.search(pattern, reason):
            return kind(f"{name}: {text.format(name=name)}")
    return None


def require_log(name: str) -> None:
    """Check that the write-ahead log of a database begins like one.

    DuckDB mistakes other content for a log that was cut off at its beginning, and deletes it.

    Raises:
        StoreCorrupt: It does not.
    """
    try:
        with Path(f"{name}.wal").open("rb") as log:
            start = log.read(len(_LOG_START))
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{name}.wal: cannot be read: {error.strerror or error}") from error
    # After a loss of power, the content may be missing or zeros.
    if not _LOG_START.startswith(start) and any(start):
        raise StoreCorrupt(f"{name}: {_LOG_PROBLEM.format(name=name)}")


def _foreign(name: str) -> StoreError:
    """The error for a file without DuckDB's first header.

    If it has DuckDB's second or third header, only the first is destroyed.
    """
    try:
        with Path(name).open("rb") as file:
            for start in _HEADERS:
                file.seek(start + _BLOCK_SIZE)
                if int.from_bytes(file.read(8), "little") in _BLOCK_SIZES:
                    return StoreCorrupt(
                        f"{name}: it is corrupt (its header is destroyed); {_RESTORE}"
                    )
    except OSError:
        pass
    return NotAStore(f"{name}: not an oteval database; give another --db")
