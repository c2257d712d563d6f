"""The times when a server ran, over its restarts: downtime counts against no deadline."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from ...base.files import write_private

__all__ = ["Uptime"]

_RUN = struct.Struct("<QQ")  # start, end
# Deadlines span few restarts. Without the older runs, they only pass a little earlier.
_MAX_RUNS = 100
_BEAT_NS = 250_000_000


class Uptime:
    """The runs of a server, in a file whose last entry `beat` extends.

    Args:
        path: The file; created if it is missing.
        now: The time (ns).
    """

    def __init__(self, path: Path, now: int) -> None:
        earlier = _read_runs(path)[-_MAX_RUNS:]
        self._downtimes = _gaps([*earlier, (now, now)])
        self._begun, self._last_beat = now, now
        self._at = len(earlier) * _RUN.size
        self._file = -1
        # If the disk is full, deadlines after the next restart are off by this run.
        with suppress(OSError):
            self._file = _write_runs(path, [*earlier, (now, now)])

    def beat(self, now: int) -> None:
        """Note that the server runs. Call it often: the time after the last call is downtime."""
        if now - self._last_beat >= _BEAT_NS:
            self._last_beat = now
            with suppress(OSError):
                os.pwrite(self._file, _RUN.pack(self._begun, now), self._at)

    def due(self, since: int, wait: int) -> int:
        """When the server will have run for `wait` ns since a time, if it keeps running.

        Args:
            since: The time (ns).
            wait: The running time to wait for (ns).
        """
        until = since + wait
        if not self._downtimes or since >= self._downtimes[-1][1]:
            return until
        for begin, end in self._downtimes:
            if begin < until and end > since:
                until += end - max(begin, since)
        return until

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def _read_runs(path: Path) -> list[tuple[int, int]]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    complete = len(data) // _RUN.size * _RUN.size
    return [(begin, end) for begin, end in _RUN.iter_unpack(data[:complete]) if 0 < begin <= end]


def _write_runs(path: Path, runs: list[tuple[int, int]]) -> int:
    """Replace the file of runs, and return its descriptor."""
    partial = path.with_suffix(".new")
    write_private(partial, b"".join(_RUN.pack(*run) for run in runs))
    partial.replace(path)
    return os.open(path, os.O_WRONLY)


def _gaps(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The times between runs, except where the clock was set back."""
    pairs = pairwise(runs)
    return [(end, begin) for (_, end), (begin, _) in pairs if begin > end]
