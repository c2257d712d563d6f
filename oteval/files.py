"""Files on disk: durable writes, locks, private folders, shared files, stamps that show changes."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import StoreError

__all__ = [
    "MEMORY",
    "KeptFile",
    "append_shared",
    "exclusive_lock",
    "file_identity",
    "file_stamp",
    "is_complete",
    "private_folder",
    "sync",
    "sync_folder",
    "take_shared",
]

# The path of a database in memory.
MEMORY = ":memory:"

# Seconds to wait for a process that appends to a file which is taken away.
_PATIENCE = 2.0


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


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return the device and the inode of a path, without following a link; None if missing."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class KeptFile:
    """An open file that must stay at its path: content written to another one would be lost.

    Args:
        path: Its path.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._target = self._path.resolve()
        self._known = file_identity(self._target)

    def require(self) -> None:
        """Check that the file is still there.

        Raises:
            StoreError: It was deleted or replaced.
        """
        if self._known is not None and file_identity(self._path.resolve()) != self._known:
            raise StoreError(
                f"{self._path} was deleted, moved or replaced while this process had it open; "
                "stop the process, and start it again"
            )


def append_shared(path: Path, data: bytes, *, are_lines: bool = False) -> None:
    """Append bytes to a file that other processes append to, and that `take_shared` may take away.

    The bytes are all in one file and follow each other, or none of them is written. The file is
    created, readable by its owner only, if it is missing.

    Args:
        path: The file.
        data: The bytes.
        are_lines: Whether the bytes are lines. Then they begin on a new line, even if another
            process was killed in the middle of its last one.

    Raises:
        OSError: The file cannot be written.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(path, descriptor):
                is_torn = are_lines and _last_byte(descriptor) not in (b"", b"\n")
                return _write_all(descriptor, b"\n" + data if is_torn else data)
        finally:
            # Closing is not enough: a process that was forked meanwhile shares the lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def take_shared(path: Path, target: Path) -> bool:
    """Move a file to which `append_shared` writes, so that nobody writes to it any more.

    Args:
        path: The file. Later data goes to a new file of this name.
        target: The new name, in the same folder.

    Returns:
        Whether the file is complete; False if a process holds it, because it was stopped in the
        middle of a write.

    Raises:
        OSError: The file cannot be moved, or was taken by another process.
    """
    path.rename(target)
    return is_complete(target)


def is_complete(taken: Path) -> bool:
    """Return whether nobody writes to a file any more that `take_shared` moved."""
    until = time.monotonic() + _PATIENCE
    with taken.open("r+b") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() > until:
                    return False
            time.sleep(0.01)


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether an open file is still the one at a path."""
    try:
        there, ours = path.stat(), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def _last_byte(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, 1, size - 1) if size else b""


def _write_all(descriptor: int, data: bytes) -> None:
    size = os.fstat(descriptor).st_size
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        with suppress(OSError):  # a device, which keeps nothing
            os.ftruncate(descriptor, size)
        raise
