"""The recent past of a detector in little space.

`History` keeps sums over cells of observations. The newest cells hold one block each; older ones
are merged in pairs, so that a cell is at most about 1/12 as long as its age, and 240 cells reach
back 24,000 blocks. The cells depend only on the sequence of blocks, not on how it was cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .detector import Floats, Ints

__all__ = ["Cells", "History"]

_CELLS = 24
_LEVELS = 10
# New blocks that are kept before they are merged: 32 kB.
_MERGED_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Cells:
    """Observations summed up: their counts, sums, and the times of the first and the last."""

    counts: Ints
    sums: Floats
    firsts: Ints
    lasts: Ints

    @classmethod
    def none(cls) -> Cells:
        """No cells."""
        empty = np.empty(0, np.int64)
        return cls(empty, np.empty(0), empty, empty)

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, part: slice) -> Cells:
        return Cells(self.counts[part], self.sums[part], self.firsts[part], self.lasts[part])

    def __add__(self, later: Cells) -> Cells:
        return Cells(
            np.concatenate([self.counts, later.counts]),
            np.concatenate([self.sums, later.sums]),
            np.concatenate([self.firsts, later.firsts]),
            np.concatenate([self.lasts, later.lasts]),
        )

    def merged(self) -> Cells:
        """An even number of cells merged in pairs."""
        return Cells(
            self.counts[::2] + self.counts[1::2],
            self.sums[::2] + self.sums[1::2],
            self.firsts[::2],
            self.lasts[1::2],
        )


class History:
    """Sums over cells of observations that double in length with their age."""

    def __init__(self) -> None:
        self._levels = [Cells.none() for _ in range(_LEVELS)]
        self._new = Cells.none()

    def add(self, counts: Ints, sums: Floats, firsts: Ints, lasts: Ints) -> None:
        """Add blocks: their sizes, sums, and the times of their first and last observations."""
        # Merging many blocks at once takes hardly longer than merging a few.
        self._new += Cells(counts, sums, firsts, lasts)
        if len(self._new) >= _MERGED_AT_ONCE:
            self._merge()

    def _merge(self) -> None:
        """Sort the new blocks into the levels."""
        new, self._new = self._new, Cells.none()
        for level, cells in enumerate(self._levels):
            if not len(new):
                return
            grown = cells + new
            surplus = max(0, len(grown) - _CELLS) // 2 * 2
            self._levels[level], new = grown[surplus:], grown[:surplus].merged()

    def clear(self) -> None:
        """Forget everything."""
        self._levels = [Cells.none() for _ in range(_LEVELS)]
        self._new = Cells.none()

    def cells(self) -> Cells:
        """All cells, the oldest first."""
        self._merge()
        joined = Cells.none()
        for cells in reversed(self._levels):
            joined += cells
        return joined

    def state(self) -> list[list[list[float]]]:
        """The cells as plain JSON."""
        self._merge()
        return [
            [
                cells.counts.tolist(),
                cells.sums.tolist(),
                cells.firsts.tolist(),
                cells.lasts.tolist(),
            ]
            for cells in self._levels
        ]

    def restore(self, state: list[list[list[Any]]]) -> None:
        """Continue from a state that `state` returned."""
        self._new = Cells.none()
        self._levels = [
            Cells(
                np.array(counts, np.int64),
                np.array(sums, np.float64),
                np.array(firsts, np.int64),
                np.array(lasts, np.int64),
            )
            for counts, sums, firsts, lasts in state
        ]
