"""What this process may use of the machine, and how the machine keeps what is written.

In a container it is the container's share: control groups are read as Linux has them, version 2 and
version 1 (cgroups(7)); where there are none, the machine's own figures hold.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import resource
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["file_stamp", "memory", "private_folder", "processors", "raise_file_limit", "sync"]

_ROOT = Path("/")
_V2_ROOTS = ("sys/fs/cgroup", "sys/fs/cgroup/unified")
_MOST_FILES = 65_536


def memory(root: Path = _ROOT) -> int:
    """Return the bytes of memory that this process may use.

    Args:
        root: The folder that has ``proc`` and ``sys``.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [
        *_numbers(root, "", "memory.max"),
        *_numbers(root, "memory", "memory.limit_in_bytes"),
    ]
    return min([machine, *(limit[0] for limit in limits if limit[0] > 0)])


def processors(root: Path = _ROOT) -> int:
    """Return how many processors this process may use, at least 1.

    Args:
        root: The folder that has ``proc`` and ``sys``.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quotas = [tuple(found) for found in _numbers(root, "", "cpu.max") if len(found) == 2]
    quotas += [
        (quota[0], period[0])
        for quota, period in zip(
            _numbers(root, "cpu", "cpu.cfs_quota_us"),
            _numbers(root, "cpu", "cpu.cfs_period_us"),
            strict=False,
        )
    ]
    shares = [math.ceil(quota / period) for quota, period in quotas if quota > 0 and period > 0]
    return max(1, min([count or 1, *shares]))


def sync(descriptor: int) -> None:
    """Wait until what was written to a file is on the disk.

    Args:
        descriptor: Of the file.

    Raises:
        OSError: The disk failed.
    """
    if sys.platform == "darwin":
        # There fsync(2) leaves it in the drive's buffers, and fdatasync(2) is not to be had.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def _numbers(root: Path, controller: str, name: str) -> Iterator[list[int]]:
    """Yield what a file says in the group of this process and in each above it."""
    for folder in _groups(root, controller):
        try:
            words = (folder / name).read_text().split()
            yield [int(word) for word in words]
        except (OSError, ValueError):
            continue  # not there, or "max": no limit


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of the groups of this process; of version 2 for the controller ""."""
    mounts = [f"sys/fs/cgroup/{controller}"] if controller else _V2_ROOTS
    path = _path(root, controller)
    for mount in mounts:
        top = root / mount
        # Inside a container the path may be the host's, while its group is what is mounted there.
        inside = top / path if (top / path).is_dir() else top
        for folder in (inside, *inside.parents):
            if folder.is_relative_to(top):
                yield folder


def _path(root: Path, controller: str) -> str:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.lstrip("/")
    return ""


def private_folder(path: Path) -> None:
    """Make a folder that only its owner may use, or see that it is one.

    Raises:
        OSError: It is a symbolic link, somebody else's, or others may write to it.
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
    # A new disk is open to all; nobody has used it.
    path.chmod(0o700)


def raise_file_limit() -> int:
    """Let this process open as many files as it may; return how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            return soft
        return wanted
    return _MOST_FILES if soft == resource.RLIM_INFINITY else soft


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return what changes whenever a file does (time, size, inode); None where it is missing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
