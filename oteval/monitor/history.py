"""The recent past of a detector in little space, and the time of a change estimated from it.

`History` keeps sums over cells of observations. The newest cells hold one block each; older ones
are merged in pairs, so that a cell is at most about 1/12 as long as its age, and 240 cells reach
back 24,000 blocks. The cells depend only on the sequence of blocks, not on how it was cut.

`estimate` finds the most likely time of a change of the mean, by the profile likelihood of 0/1
values with the mean before given and the mean after unknown, and an interval: all times whose
log-likelihood is within `WITHIN` of the best. For values of another variance, or dependent ones,
the log-likelihood is divided by the dispersion, their long-run variance relative to independent 0/1
values. The benchmark prints the simulated coverage of the interval.

Source: Hinkley 1970, "Inference about the change-point in a sequence of random variables"; the
quasi-likelihood: McCullagh, Nelder 1989, "Generalized linear models", chapter 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .detector import Floats, Ints

__all__ = ["WITHIN", "ChangePoint", "History", "estimate"]

WITHIN = 5.0
_CELLS = 24
_LEVELS = 10
# New blocks that are kept before they are merged: 32 kB.
_MERGED_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """The estimated time of a change, its interval, and the observations since."""

    time_ns: int
    from_ns: int
    to_ns: int
    mean: float
    observations: int


@dataclass(frozen=True, slots=True)
class _Cells:
    """Observations summed up: their counts, sums, and the times of the first and the last."""

    counts: Ints
    sums: Floats
    firsts: Ints
    lasts: Ints

    @classmethod
    def none(cls) -> _Cells:
        empty = np.empty(0, np.int64)
        return cls(empty, np.empty(0), empty, empty)

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, part: slice) -> _Cells:
        return _Cells(self.counts[part], self.sums[part], self.firsts[part], self.lasts[part])

    def __add__(self, other: _Cells) -> _Cells:
        return _Cells(
            np.concatenate([self.counts, other.counts]),
            np.concatenate([self.sums, other.sums]),
            np.concatenate([self.firsts, other.firsts]),
            np.concatenate([self.lasts, other.lasts]),
        )

    def merged(self) -> _Cells:
        """Return an even number of cells merged in pairs."""
        return _Cells(
            self.counts[::2] + self.counts[1::2],
            self.sums[::2] + self.sums[1::2],
            self.firsts[::2],
            self.lasts[1::2],
        )


class History:
    """Sums over cells of observations that double in length with their age."""

    def __init__(self) -> None:
        self._levels = [_Cells.none() for _ in range(_LEVELS)]
        self._new = _Cells.none()

    def add(self, counts: Ints, sums: Floats, firsts: Ints, lasts: Ints) -> None:
        """Add blocks: their sizes, sums, and the times of their first and last observations."""
        # Merging many blocks at once takes hardly longer than merging a few.
        self._new += _Cells(counts, sums, firsts, lasts)
        if len(self._new) >= _MERGED_AT_ONCE:
            self._merge()

    def _merge(self) -> None:
        """Sort the new blocks into the levels."""
        new, self._new = self._new, _Cells.none()
        for level, cells in enumerate(self._levels):
            if not len(new):
                return
            grown = cells + new
            surplus = max(0, len(grown) - _CELLS) // 2 * 2
            self._levels[level], new = grown[surplus:], grown[:surplus].merged()

    def clear(self) -> None:
        """Forget everything."""
        self._levels = [_Cells.none() for _ in range(_LEVELS)]
        self._new = _Cells.none()

    def cells(self) -> _Cells:
        """Return all cells, the oldest first."""
        self._merge()
        joined = _Cells.none()
        for cells in reversed(self._levels):
            joined += cells
        return joined

    def state(self) -> list[list[list[float]]]:
        """Return the cells as plain JSON."""
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
        self._new = _Cells.none()
        self._levels = [
            _Cells(
                np.array(counts, np.int64),
                np.array(sums, np.float64),
                np.array(firsts, np.int64),
                np.array(lasts, np.int64),
            )
            for counts, sums, firsts, lasts in state
        ]


def estimate(history: History, before: float, *, dispersion: float, worse: bool) -> ChangePoint:
    """Return the most likely change up to the last observation.

    Args:
        history: At least one block.
        before: The mean before the change.
        dispersion: The long-run variance of the values, relative to independent 0/1 values.
        worse: Whether the mean fell; else it rose.
    """
    cells = history.cells()
    counts = np.cumsum(cells.counts[::-1])[::-1]
    sums = np.cumsum(cells.sums[::-1])[::-1]
    means = np.clip(sums / counts, 1e-9, 1 - 1e-9)
    old = min(max(before, 1e-6), 1 - 1e-6)
    gains = sums * np.log(means / old) + (counts - sums) * np.log((1 - means) / (1 - old))
    gains[(means >= old) if worse else (means <= old)] = 0.0
    gains /= dispersion
    best = int(np.argmax(gains))
    plausible = np.flatnonzero(gains >= gains[best] - WITHIN)
    first, last = int(plausible[0]), int(plausible[-1])
    return ChangePoint(
        time_ns=int(cells.firsts[best]),
        from_ns=int(cells.lasts[first - 1] if first else cells.firsts[0]),
        to_ns=int(cells.lasts[last]),
        mean=float(np.clip(sums[best] / counts[best], 0.0, 1.0)),
        observations=int(counts[best]),
    )
