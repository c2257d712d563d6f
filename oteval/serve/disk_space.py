"""Wait for free disk space: a database that runs out of it while writing must be opened anew."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

__all__ = ["RESERVE", "DiskSpaceGate", "shortage"]

_log = logging.getLogger(__name__)
# Less than the spool leaves free, so that spooled requests can be stored on the same disk.
RESERVE = 32 << 20
_POLL = 0.1  # seconds


def shortage(path: str | Path) -> str:
    """Why nothing should be written to a database now; "" when there is enough space."""
    try:
        disk = os.statvfs(Path(path).absolute().parent)
    except OSError as error:
        return f"the database's folder: {error.strerror}"
    free = disk.f_bavail * disk.f_frsize
    if free >= RESERVE:
        return ""
    return f"the database's disk is full: {free >> 20} MiB free, {RESERVE >> 20} are needed"


class DiskSpaceGate:
    """Blocks a writer while there is too little disk space.

    Attributes:
        problem: The reason for waiting; "" while there is none.
    """

    def __init__(self, path: str | Path, closing: threading.Event) -> None:
        self._path, self._closing = path, closing
        self.problem = ""

    def wait(self) -> bool:
        """Wait until there is enough space; return False when closing."""
        while problem := shortage(self._path):
            if not self.problem:
                _log.error("nothing is stored: %s", problem)
            self.problem = problem
            if self._closing.wait(_POLL):
                return False
        if self.problem:
            _log.info("there is enough disk space again: storing continues")
        self.problem = ""
        return True
