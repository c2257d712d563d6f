"""The resources of this process: memory, processors, open files, garbage collection, its user.

In a container the memory and processors are the container's limits, read from Linux control groups,
version 2 or version 1 (cgroups(7)). Without control groups they are the machine's.
"""

from __future__ import annotations

import ctypes
import gc
import getpass
import math
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = [
    "infrequent_gc",
    "memory",
    "processors",
    "raise_file_limit",
    "return_freed_memory",
    "user_name",
]

_ROOT = Path("/")
_V2_ROOTS = ("sys/fs/cgroup", "sys/fs/cgroup/unified")
_MAX_FILES = 65_536
# glibc's settings, as in malloc.h, and their values here. Once they are set, glibc no longer raises
# the first two by itself. From 256 kB on, columns of 50,000 rows would be mapped and cleared each
# time.
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD, _M_ARENA_MAX = -3, -1, -8
_MALLOC_SETTINGS = {_M_MMAP_THRESHOLD: 600 << 10, _M_TRIM_THRESHOLD: 1 << 20, _M_ARENA_MAX: 2}


def user_name() -> str:
    """The name of the user who runs the process."""
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return f"uid {os.getuid()}"


def memory(root: Path = _ROOT) -> int:
    """The bytes of memory that this process may use.

    Args:
        root: The folder that contains ``proc`` and ``sys``.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [
        *_numbers(root, "", "memory.max"),
        *_numbers(root, "memory", "memory.limit_in_bytes"),
    ]
    return min([machine, *(limit[0] for limit in limits if limit[0] > 0)])


def processors(root: Path = _ROOT) -> int:
    """The number of processors that this process may use, at least 1.

    Args:
        root: The folder that contains ``proc`` and ``sys``.
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


def return_freed_memory() -> None:
    """Let glibc return the memory of large blocks to the system when they are freed.

    By default it keeps blocks of up to 32 MB once it has freed a block of that size. Other C
    libraries are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for setting, value in _MALLOC_SETTINGS.items():
            mallopt(setting, value)


def _numbers(root: Path, controller: str, name: str) -> Iterator[list[int]]:
    """Yield the numbers in a file of this process's control group and of each group above it."""
    for folder in _groups(root, controller):
        try:
            words = (folder / name).read_text().split()
            yield [int(word) for word in words]
        except (OSError, ValueError):
            continue  # missing, or "max": no limit


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups, innermost first.

    Args:
        root: The folder that contains ``proc`` and ``sys``.
        controller: The controller of version 1; "" for version 2.
    """
    mounts = [f"sys/fs/cgroup/{controller}"] if controller else _V2_ROOTS
    path = _path(root, controller)
    for mount in mounts:
        top = root / mount
        # Inside a container the path may be the host's, while only its own group is mounted.
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


def raise_file_limit() -> int:
    """Raise the limit of open files as far as allowed, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (OSError, ValueError):
            return soft
        return limit
    return _MAX_FILES if soft == resource.RLIM_INFINITY else soft


@contextmanager
def infrequent_gc(after: int = 1_000_000) -> Iterator[None]:
    """Collect garbage less often inside the block, which creates millions of objects.

    With the default thresholds, the search for reference cycles takes 40% of the time of loading,
    and finds none. With a tenth of this threshold, it still takes 5% of the time of live scoring.

    Args:
        after: How many new objects start a collection.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(after, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
