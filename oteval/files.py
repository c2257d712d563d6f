"""Files on disk: durable writes, exclusive locks, private folders, and stamps that show changes."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["exclusive_lock", "file_stamp", "private_folder", "sync", "sync_folder"]


def sync(descriptor: int) -> None:
    """Wait until the content of an open file is on the disk.

    Args:
        descriptor: The file's descriptor.

    Raises:
        OSError: The disk failed.
    """
    if sys.platform == "darwin":
        # fsync(2) on macOS leaves the data in the drive's buffers, and fdatasync(2) is missing.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the entries of a folder (files made, renamed or removed) are on the disk.

    Raises:
        OSError: The folder is missing, or the disk failed.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a lock file, which is created if missing and never removed.

    The operating system releases the lock when the process ends, however it ends.

    Args:
        path: The lock file; its folder must exist.

    Raises:
        BlockingIOError: Another process holds the lock.
    """
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def private_folder(path: Path) -> None:
    """Create a folder that only its owner may use, or check that an existing one is private.

    Raises:
        OSError: The path is a symbolic link, belongs to another user, or others may write to it.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.ELOOP, "it is a symbolic link; give a real folder", str(path))
    if found.st_uid not in (os.geteuid(), 0) and os.geteuid():
        raise OSError(errno.EPERM, "it belongs to another user", str(path))
    if not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return
    if not path.is_mount() or any(path.iterdir()):
        hint = f"others may write to it; run chmod 700 {path}"
        raise OSError(errno.EPERM, hint, str(path))
    # A freshly mounted, empty disk is often world-writable.
    path.chmod(0o700)


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes with the file (time, size, inode); None if it is missing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
