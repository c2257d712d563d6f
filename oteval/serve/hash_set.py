"""A compact set of strings: eight bytes for each, so that months of trace ids fit in memory.

The set compares hashes. A string that was never added may be reported as present when its hash
collides. A string that is reported as absent certainly is. Callers that need to be sure query the
store.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable

import pyarrow as pa

__all__ = ["HashSet"]

_MAX_UNSORTED = 16_384
_LOW_HALF = slice(8, 16)


def _hash(text: str) -> int:
    """The same number as ``md5_number_lower`` in SQL."""
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest[_LOW_HALF], "little")


class HashSet:
    """An append-only set of strings, stored as hashes.

    New hashes go to a small unsorted set, which is merged into sorted runs of decreasing length.

    Args:
        hashes: The initial hashes, sorted.
    """

    def __init__(self, hashes: pa.Array | None = None) -> None:
        self._unsorted: set[int] = set()
        self._runs: list[memoryview] = []
        if hashes is not None and len(hashes):
            self._runs.append(_buffer_of(hashes))

    def __len__(self) -> int:
        """The number of entries; a string that was added twice may count twice."""
        return len(self._unsorted) + sum(len(run) for run in self._runs)

    def __contains__(self, text: str) -> bool:
        """Whether a string, or another one with the same hash, was added."""
        key = _hash(text)
        return key in self._unsorted or any(_is_in_run(run, key) for run in self._runs)

    def add(self, texts: Iterable[str]) -> None:
        """Add strings."""
        self._unsorted.update(map(_hash, texts))
        if len(self._unsorted) >= _MAX_UNSORTED:
            self._merge()

    def _merge(self) -> None:
        """Turn the unsorted hashes into a run, and merge it with runs of similar length."""
        hashes = pa.array(sorted(self._unsorted), pa.uint64())
        self._unsorted.clear()
        while self._runs and len(self._runs[-1]) < 2 * len(hashes):
            older = pa.array(self._runs.pop(), pa.uint64())
            hashes = pa.concat_arrays([older, hashes]).unique().sort()
        self._runs.append(_buffer_of(hashes))


def _buffer_of(hashes: pa.Array) -> memoryview:
    """An array's values without copying them."""
    values = memoryview(hashes.buffers()[1]).cast("B").cast("Q")
    return values[hashes.offset : hashes.offset + len(hashes)]


def _is_in_run(run: memoryview, key: int) -> bool:
    index = bisect_left(run, key)
    return index < len(run) and run[index] == key
