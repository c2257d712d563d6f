"""When a mean changed, and to which value, estimated when a detector decides.

The likelihood treats the values as 0/1 values with one mean before a time and another since. Both
means and the time are free; the baseline's observations count among the values before. The estimate
is the most likely pair of a time and a mean since. All pairs whose log-likelihood is nearly as high
are plausible, and the intervals of the time and of the mean span these pairs. So the interval of
the mean allows for a time that was chosen to suit the values.

An alarm is raised by values that are partly low by chance. So the limits are wider than the 1.9 of
a single mean and a fixed time: an interval that is valid at any stopping time needs about
log(1/.05) and half the logarithm of the effective number of observations.

Values of another variance, or dependent values, divide the log-likelihood by their dispersion:
their long-run variance relative to independent 0/1 values. It grows with the length of a stretch
where the mean varies slowly. So a slow variation over weeks does not hide a sudden change near the
end.

Sources: Hinkley 1970, "Inference about the change-point in a sequence of random variables"; the
quasi-likelihood: McCullagh, Nelder 1989, "Generalized linear models", chapter 9; the limits:
Robbins 1970, "Statistical methods related to the law of the iterated logarithm", and Howard,
Ramdas, McAuliffe, Sekhon 2021, "Time-uniform, nonparametric, nonasymptotic confidence sequences".

`History` has the recent past of a detector in little space: it keeps sums over cells of
observations. The newest cells hold one block each; older ones are merged in pairs, so that a cell
is at most about 1/12 as long as its age, and 240 cells reach back 24,000 blocks. The cells depend
only on the sequence of blocks, not on how it was cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .detector import Floats, Ints

__all__ = [
    "Cells",
    "ChangePoint",
    "History",
    "UsualMean",
    "estimate",
]

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


_TIMES_WITHIN = 5.5
_MEANS_WITHIN = 4.5
"""How much lower than the highest log-likelihood plausible times and means are."""

_MEANS = np.linspace(0.0005, 0.9995, 1000)
_PROBABLE = 1e-9


@dataclass(frozen=True, slots=True)
class UsualMean:
    """The mean before a change, with its precision.

    Attributes:
        value: The mean.
        observations: The number of observations it was estimated from.
        dispersion_of: Returns the dispersion of stretches of so many consecutive observations.
    """

    value: float
    observations: float
    dispersion_of: Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change: its time and the mean since, with intervals, and the observations since.

    Attributes:
        time_ns: The time of the first observation after it.
        from_ns: The earliest plausible time.
        to_ns: The latest plausible time.
        mean: The mean since that time.
        low: The lowest plausible mean since the change.
        high: The highest.
        observations: The number of observations since.
    """

    time_ns: int
    from_ns: int
    to_ns: int
    mean: float
    low: float
    high: float
    observations: int


def estimate(cells: Cells, usual: UsualMean, *, worse: bool) -> ChangePoint:
    """The most likely change up to the last observation.

    Args:
        cells: The observations since the mean before was estimated, at least one cell.
        usual: The mean before.
        worse: Whether the mean fell; else it rose.
    """
    stretches = _stretches(cells, usual, worse=worse)
    best = int(np.argmax(stretches.gains))
    times = np.flatnonzero(stretches.gains >= stretches.gains[best] - _TIMES_WITHIN)
    first, last = int(times[0]), int(times[-1])
    mean = float(stretches.means[best])
    low, high = _plausible_means(stretches)
    low, high = min(low, mean), max(high, mean)
    if not worse:
        low, mean, high = 1.0 - high, 1.0 - mean, 1.0 - low
    return ChangePoint(
        time_ns=int(cells.firsts[best]),
        from_ns=int(cells.lasts[first - 1] if first else cells.firsts[0]),
        to_ns=int(cells.lasts[last]),
        mean=mean,
        low=low,
        high=high,
        observations=int(stretches.counts[best]),
    )


@dataclass(frozen=True, slots=True)
class _Stretches:
    """For each cell, the observations from it to the last: how likely a change before it is.

    Attributes:
        counts: The numbers of observations.
        sums: Their sums.
        means: Their means.
        means_before: The means of all observations before.
        gains_before: The log-likelihood of the observations before, less the log-likelihood of all
            observations without a change.
        gains: The log-likelihood of a change, less the log-likelihood of no change.
        dispersion: The dispersion.
    """

    counts: Floats
    sums: Floats
    means: Floats
    means_before: Floats
    gains_before: Floats
    gains: Floats
    dispersion: Floats


def _stretches(cells: Cells, usual: UsualMean, *, worse: bool) -> _Stretches:
    """The stretches of observations where lower is worse, turned round if the mean rose."""
    counts = np.cumsum(cells.counts[::-1])[::-1].astype(np.float64)
    sums = np.cumsum(cells.sums[::-1])[::-1]
    sums = np.clip(sums if worse else counts - sums, 0.0, counts)
    usual_sum = usual.observations * (usual.value if worse else 1.0 - usual.value)
    counts_before = usual.observations + counts[0] - counts
    sums_before = np.clip(usual_sum + sums[0] - sums, 0.0, counts_before)
    means, means_before = sums / counts, sums_before / counts_before
    unchanged = _log_likelihood(sums_before + sums, counts_before + counts)
    gains_before = _log_likelihood(sums_before, counts_before) - unchanged
    dispersion = usual.dispersion_of(counts)
    gains = (gains_before + _log_likelihood(sums, counts)) / dispersion
    gains[means >= means_before] = 0.0
    return _Stretches(counts, sums, means, means_before, gains_before, gains, dispersion)


def _plausible_means(stretches: _Stretches) -> tuple[float, float]:
    """The lowest and highest mean since a change that some time makes plausible."""
    pairs = np.multiply.outer(stretches.sums, np.log(_MEANS))
    pairs += np.multiply.outer(stretches.counts - stretches.sums, np.log1p(-_MEANS))
    pairs = (pairs + stretches.gains_before[:, None]) / stretches.dispersion[:, None]
    pairs[stretches.means_before[:, None] <= _MEANS] = -np.inf
    highest = pairs.max(axis=0)
    plausible = _MEANS[highest >= highest.max() - _MEANS_WITHIN]
    return float(plausible[0]), float(plausible[-1])


def _log_likelihood(sums: Floats, counts: Floats) -> Floats:
    """The highest log-likelihood of each stretch, for any mean."""
    means = np.clip(sums / counts, _PROBABLE, 1.0 - _PROBABLE)
    likelihood: Floats = sums * np.log(means) + (counts - sums) * np.log1p(-means)
    return likelihood
