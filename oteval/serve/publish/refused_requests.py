"""Requests that an endpoint refused for good: kept as files, and sent again on demand.

Each file is named by the time of the refusal and the signal. Only `resend` deletes files, once the
endpoint has accepted them. To give them up, delete the files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from ...base.clients.otlp_client import ExportResult, OtlpClient
from ...base.files import make_folder, open_private

__all__ = ["REFUSED_FOLDER", "RefusedRequests", "resend"]

# The folder next to the queue.
REFUSED_FOLDER = "refused"
_SUFFIXES = {"protobuf": "pb", "json": "json"}
_ENCODINGS = {f".{suffix}": encoding for encoding, suffix in _SUFFIXES.items()}
# Seconds between two looks at the folder, which may contain many files.
_LOOK_EVERY = 5.0


class RefusedRequests:
    """The requests that one endpoint refused.

    Args:
        folder: The folder of the files; created with the first of them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._looked = 0.0
        self._kept = (0, 0)

    def keep(self, signal: str, encoding: str, body: bytes) -> Path:
        """Write a request to a file, and return its path.

        Raises:
            OSError: The file cannot be written.
        """
        make_folder(self._folder)
        path = self._folder / f"{time.time_ns():020d}-{signal}.{_SUFFIXES[encoding]}"
        partial = path.with_suffix(".new")
        with open_private(partial) as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        self._kept = (self._kept[0] + 1, self._kept[1] + len(body))
        return path

    def kept(self) -> tuple[int, int]:
        """The number of requests and their bytes, at most some seconds old."""
        now = time.monotonic()
        if not self._looked or now - self._looked > _LOOK_EVERY:
            self._looked = now
            sizes = [path.stat().st_size for path in _files(self._folder)]
            self._kept = (len(sizes), sum(sizes))
        return self._kept


def resend(folder: Path, client: OtlpClient) -> Iterator[tuple[Path, ExportResult]]:
    """Send the requests in a folder, oldest first, and delete each that is accepted.

    Args:
        folder: The folder.
        client: The endpoint.

    Yields:
        Each file with its result, until the endpoint turns out to be away or busy.
    """
    for path in _files(folder):
        signal = path.stem.partition("-")[2]
        result = client.export(signal, path.read_bytes(), _ENCODINGS[path.suffix])
        if result.is_accepted:
            path.unlink(missing_ok=True)
        yield path, result
        if not result.is_accepted and not result.is_refused:
            return


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix in _ENCODINGS)
