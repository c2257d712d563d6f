"""Files on disk: private ones, durable writes, locks, shared files, stamps that show changes.

**Who may read them.** Every file that oteval writes may contain messages of users, so only its
owner can read it. Two rules ensure that, and a test proves that all writing goes through this
module:

- oteval's own processes run in `private_umask`, so that each file they create is private, including
  the files that DuckDB and Arrow create themselves.
- In another program's process (an agent, a test), oteval must not change the umask. There,
  `open_private`, `write_private` and `make_folder` create files and folders.

`publish` is the exception: reports and tests that a user requested get the modes that follow from
the umask of the user's shell.
"""

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
from typing import IO, Any

from .errors import StoreError

__all__ = [
    "MEMORY",
    "KeptFile",
    "append_shared",
    "caller_umask",
    "exclusive_lock",
    "file_identity",
    "file_stamp",
    "has_private_umask",
    "is_complete",
    "make_folder",
    "open_private",
    "private_folder",
    "private_umask",
    "publish",
    "sync",
    "sync_folder",
    "take_shared",
    "waiting_lock",
    "with_caller_umask",
    "write_private",
]

# The path of a database in memory.
MEMORY = ":memory:"

# Seconds to wait for a process that appends to a file while it is taken away.
_PATIENCE = 2.0
# Seconds between two attempts to get a lock.
_LOCK_INTERVAL = 0.02
_PRIVATE_UMASK = 0o077
# The earlier umasks, one for each running block of `private_umask`.
_umasks: list[int] = []


@contextmanager
def private_umask() -> Iterator[None]:
    """Let this process create files and folders for its owner only, while a block runs.

    Only for oteval's own processes: the umask applies to all threads.
    """
    _umasks.append(os.umask(_PRIVATE_UMASK))
    try:
        yield
    finally:
        os.umask(_umasks.pop())


def has_private_umask() -> bool:
    """Whether a block of `private_umask` is running."""
    return bool(_umasks)


def caller_umask() -> int:
    """The umask for programs of the user that this process starts; -1 to leave it."""
    return _umasks[0] if _umasks else -1


@contextmanager
def with_caller_umask() -> Iterator[None]:
    """Restore this process's original umask, to start a program of the user."""
    if not _umasks:
        yield
        return
    os.umask(_umasks[0])
    try:
        yield
    finally:
        os.umask(_PRIVATE_UMASK)


def publish(path: Path) -> None:
    """Set the mode of a file that the user requested, by the umask of the user's shell.

    Outside of `private_umask`, the file has that mode already.
    """
    if _umasks:
        path.chmod(0o666 & ~_umasks[0])


def open_private(path: Path, mode: str = "wb", **options: Any) -> IO[Any]:
    """Open a file for writing that only its owner can read, even if it exists with another mode.

    Args:
        path: The file. A device or a pipe keeps its mode.
        mode: As for `open`.
        options: As for `open`.

    Raises:
        OSError: It cannot be written.
    """

    def opener(name: str, flags: int) -> int:
        descriptor = os.open(name, flags | os.O_CLOEXEC, 0o600)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_mode & _PRIVATE_UMASK:
            # The mode of another user's file must not change, although it may be written to.
            with suppress(PermissionError):
                os.fchmod(descriptor, 0o600)
        return descriptor

    return open(path, mode, opener=opener, **options)


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file that only its owner can read; text is UTF-8.

    Raises:
        OSError: It cannot be written.
    """
    with open_private(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def make_folder(path: Path) -> None:
    """Create a folder and its parents for its owner only. Existing folders stay as they are.

    Raises:
        OSError: It cannot be created.
    """
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(mode=0o700, exist_ok=True)


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
    with open_private(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@contextmanager
def waiting_lock(path: Path, patience: float, *, creates: bool = True) -> Iterator[None]:
    """Do as `exclusive_lock`, and wait for another process that holds the lock.

    The holder may remove the lock file before it releases the lock.

    Args:
        path: The lock file.
        patience: The seconds to wait.
        creates: Whether the lock file is created if it is missing.

    Raises:
        BlockingIOError: Another process holds the lock for longer.
        OSError: The lock file is missing, or cannot be created.
    """
    file = _locked_file(path, "a" if creates else "r+b", time.monotonic() + patience)
    try:
        yield
    finally:
        file.close()


def _locked_file(path: Path, mode: str, until: float) -> IO[Any]:
    """A lock file that this process has locked, and that is still at its path."""
    while True:
        file = open_private(path, mode)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, file.fileno()):
                return file
        except BlockingIOError:
            if time.monotonic() > until:
                file.close()
                raise
        except BaseException:
            file.close()
            raise
        file.close()
        time.sleep(_LOCK_INTERVAL)


def private_folder(path: Path) -> None:
    """Create a folder that only its owner may use, or check that an existing one is private.

    Raises:
        OSError: The path is a symbolic link, belongs to another user, or others may write to it.
    """
    make_folder(path)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(errno.ELOOP, "it is a symbolic link; give a real folder", str(path))
    if status.st_uid not in (os.geteuid(), 0) and os.geteuid():
        raise OSError(errno.EPERM, "it belongs to another user", str(path))
    if not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return
    if not path.is_mount() or any(path.iterdir()):
        hint = f"others may write to it; run chmod 700 {path}"
        raise OSError(errno.EPERM, hint, str(path))
    # A freshly mounted, empty disk is often world-writable.
    path.chmod(0o700)


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """A value that changes with the file (time, size, inode); None if it is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def file_identity(path: Path) -> tuple[int, int] | None:
    """The device and the inode of a path, without following a link; None if missing."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


class KeptFile:
    """An open file that must stay at its path: content written to another file would be lost.

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
    """Append bytes to a file that other processes append to, and that `take_shared` may move.

    Either all bytes are written, to one file and in a row, or none. A missing file is created,
    readable by its owner only.

    Args:
        path: The file.
        data: The bytes.
        are_lines: Whether the bytes are lines. Lines begin on a new line, even if another process
            was killed in the middle of its last line.

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
        Whether the file is complete; False if a process still writes to it, because it was stopped
        in the middle of a write.

    Raises:
        OSError: The file cannot be moved, or was taken by another process.
    """
    path.rename(target)
    return is_complete(target)


def is_complete(path: Path) -> bool:
    """Whether all writes to a file that `take_shared` moved have ended."""
    until = time.monotonic() + _PATIENCE
    with path.open("r+b") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() > until:
                    return False
            time.sleep(0.01)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is still the file at a path."""
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
    unwritten = memoryview(data)
    try:
        while unwritten:
            unwritten = unwritten[os.write(descriptor, unwritten) :]
    except OSError:
        with suppress(OSError):  # a device, which keeps nothing
            os.ftruncate(descriptor, size)
        raise
