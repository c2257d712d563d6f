"""Requests that an endpoint refused for good: kept as files, and sent again when someone asks.

Each is a file named by when it was refused and what it holds. Only `send_again` deletes any, once
it was taken; whoever wants them gone deletes the files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from .posting import Answer, Target

__all__ = ["REFUSED", "Refused", "send_again"]

# The folder's name, beside the queue.
REFUSED = "refused"
_SUFFIXES = {"protobuf": "pb", "json": "json"}
_ENCODINGS = {f".{suffix}": encoding for encoding, suffix in _SUFFIXES.items()}
# The folder is looked at again no sooner: it may hold many files.
_LOOK = 5.0


class Refused:
    """The folder of an endpoint.

    Args:
        folder: The folder; made when there is something to keep.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._looked = 0.0
        self._kept = (0, 0)

    def keep(self, kind: str, encoding: str, body: bytes) -> Path:
        """Keep a request; return where.

        Raises:
            OSError: It cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{time.time_ns():020d}-{kind}.{_SUFFIXES[encoding]}"
        beside = path.with_suffix(".new")
        with beside.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        self._kept = (self._kept[0] + 1, self._kept[1] + len(body))
        return path

    def kept(self) -> tuple[int, int]:
        """Return how many requests are there and their bytes, as of some seconds ago."""
        now = time.monotonic()
        if not self._looked or now - self._looked > _LOOK:
            self._looked = now
            sizes = [path.stat().st_size for path in _files(self._folder)]
            self._kept = (len(sizes), sum(sizes))
        return self._kept


def send_again(folder: Path, target: Target) -> Iterator[tuple[Path, Answer]]:
    """Send what a folder holds, the oldest first, and delete what is taken.

    Args:
        folder: The folder.
        target: Where to.

    Yields:
        Each file with what was answered, until the endpoint is found to be away or busy.
    """
    for path in _files(folder):
        kind = path.stem.partition("-")[2]
        answer = target.post(kind, path.read_bytes(), _ENCODINGS[path.suffix])
        if answer.is_taken:
            path.unlink(missing_ok=True)
        yield path, answer
        if not answer.is_taken and not answer.is_refused:
            return


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix in _ENCODINGS)
