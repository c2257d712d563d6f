"""The copy beside a database: its files, the lock of the process that makes it, and leftovers.

Besides the database, a connection may open only these files. Backups, compactions and readers of
several databases make such a copy, one after the other, and move or remove it before they release
the lock. If a process is killed, the operating system releases its lock. The next process that
makes a copy or opens the database removes the leftover files.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..base.errors import StoreError
from ..base.files import exclusive_lock, waiting_lock

__all__ = ["copy_files", "copy_path", "locked_copy", "remove_leftover_copy"]

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
