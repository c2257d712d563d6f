"""Room on the disk: without it a database that is written to would have to be opened anew."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["RESERVE", "shortage"]

# Less than the spool leaves free, so that what is spooled on the same disk can still be stored.
RESERVE = 32 << 20


def shortage(path: str | Path) -> str:
    """Return why nothing should be written beside a file now, "" when it can be."""
    try:
        disk = os.statvfs(Path(path).absolute().parent)
    except OSError as error:
        return f"the database's folder: {error.strerror}"
    free = disk.f_bavail * disk.f_frsize
    if free >= RESERVE:
        return ""
    return f"the database's disk is full: {free >> 20} MiB free, {RESERVE >> 20} are needed"
