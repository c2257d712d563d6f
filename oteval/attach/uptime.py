"""When a process ran, over its restarts: time in which it was down counts against no deadline."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

__all__ = ["Uptime"]

_RUN = struct.Struct("<QQ")  # from, to
# Deadlines reach over few restarts; without the older ones they come a little earlier.
_KEPT = 100
_EACH_NS = 250_000_000


class Uptime:
    """The times in which it ran, in a file whose last entry is brought up to date by `beat`.

    Args:
        path: The file; made when it is not there.
        now: The time (ns).
    """

    def __init__(self, path: Path, now: int) -> None:
        before = _read(path)[-_KEPT:]
        self._downs = _between([*before, (now, now)])
        self._begun, self._beaten = now, now
        self._at = len(before) * _RUN.size
        self._file = -1
        # On a full disk nothing is noted: deadlines after the next restart are off by this run.
        with suppress(OSError):
            self._file = _written(path, [*before, (now, now)])

    def beat(self, now: int) -> None:
        """Note that it still runs; often, since what follows the last time counts as down."""
        if now - self._beaten >= _EACH_NS:
            self._beaten = now
            with suppress(OSError):
                os.pwrite(self._file, _RUN.pack(self._begun, now), self._at)

    def due(self, since: int, wait: int) -> int:
        """Return when it has run for so long (ns) since a time (ns), if it goes on running."""
        until = since + wait
        if not self._downs or since >= self._downs[-1][1]:
            return until
        for begin, end in self._downs:
            if begin < until and end > since:
                until += end - max(begin, since)
        return until

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def _read(path: Path) -> list[tuple[int, int]]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    whole = len(data) // _RUN.size * _RUN.size
    return [(begin, end) for begin, end in _RUN.iter_unpack(data[:whole]) if 0 < begin <= end]


def _written(path: Path, runs: list[tuple[int, int]]) -> int:
    """Write a file of runs in place of the old one, and return it opened."""
    beside = path.with_suffix(".new")
    beside.write_bytes(b"".join(_RUN.pack(*run) for run in runs))
    beside.replace(path)
    return os.open(path, os.O_WRONLY)


def _between(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the times between runs; none where the clock was set back."""
    pairs = pairwise(runs)
    return [(end, begin) for (_, end), (begin, _) in pairs if begin > end]
