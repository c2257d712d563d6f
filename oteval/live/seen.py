"""A set of texts in eight bytes each, for the traces of months.

It says of a text that it is in the set when another has the same hash: who needs to know for sure
asks the store; who is told that it is not there need not.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable

import pyarrow as pa

__all__ = ["Seen"]

_FEW = 16_384
_LOW = slice(8, 16)


def _key(text: str) -> int:
    """Return what SQL has as ``md5_number_lower``."""
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest[_LOW], "little")


class Seen:
    """A set that only grows: a few new keys, and sorted runs of older ones, each half the last.

    Args:
        keys: The hashes to begin with, sorted.
    """

    def __init__(self, keys: pa.Array | None = None) -> None:
        self._new: set[int] = set()
        self._runs: list[memoryview] = []
        if keys is not None and len(keys):
            self._runs.append(_numbers(keys))

    def __len__(self) -> int:
        """Return how many texts there are; those added twice may count twice."""
        return len(self._new) + sum(len(run) for run in self._runs)

    def __contains__(self, text: str) -> bool:
        """Return whether a text, or one of the same hash, was added."""
        key = _key(text)
        return key in self._new or any(_has(run, key) for run in self._runs)

    def add(self, texts: Iterable[str]) -> None:
        """Add texts."""
        self._new.update(map(_key, texts))
        if len(self._new) >= _FEW:
            self._settle()

    def _settle(self) -> None:
        """Make a run of what is new, and one of runs that are about as long."""
        keys = pa.array(sorted(self._new), pa.uint64())
        self._new.clear()
        while self._runs and len(self._runs[-1]) < 2 * len(keys):
            older = pa.array(self._runs.pop(), pa.uint64())
            keys = pa.concat_arrays([older, keys]).unique().sort()
        self._runs.append(_numbers(keys))


def _numbers(keys: pa.Array) -> memoryview:
    """Return an array's values in place."""
    values = memoryview(keys.buffers()[1]).cast("B").cast("Q")
    return values[keys.offset : keys.offset + len(keys)]


def _has(run: memoryview, key: int) -> bool:
    at = bisect_left(run, key)
    return at < len(run) and run[at] == key
