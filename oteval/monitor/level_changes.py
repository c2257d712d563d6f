"""The change of a level between two times, given how much the level wanders by itself.

Means of hours are modelled as a level that stays, a part that wanders (an Ornstein-Uhlenbeck
process, which forgets its deviation within hours or days), a part that is new in every hour, and
the error of sampling. How far and how slowly the level wanders is not known. It is estimated from
the same hours, and all plausible answers are weighed by their likelihood. So noise that is slower
than its neighbours widens the interval; steady hours do not.

Hours are compared with the same hours of the week before, where there are such hours, so that
nights and weekends cancel out. Without such hours, a difference of about 0.1 may be the pattern
of the week, and the interval allows for it.

Source: the structural model: Harvey 1989, "Forecasting, structural time series models and the
Kalman filter"; the likelihood without the mean: Harville 1974, "Bayesian inference for variance
components using only error contrasts"; the reason why the variance must not be taken for known:
Ibragimov, Müller 2010, "t-statistic based correlation and heterogeneity robust inference".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from .autocorrelation import autocorrelation_time
from .detector import Floats, Ints

__all__ = ["LevelChange", "TimedValues", "effective_size", "level_change"]

_HOUR_NS = 3600 * 10**9
_WEEK_HOURS = 168
_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 24)
"""Lengths of cells (hours)."""
_FEWEST_IN_CELL = 4.0
_MOST_CELLS = 700
_FEWEST_CELLS = 6
_LEAST_HOURS = 24
_ENOUGH_HOURS = 72
"""Hours that show enough about how the level wanders."""
_ERRORS = 2 * 1.96
"""The width of a 95% interval in standard errors."""
_WEEKLY_VARIANCE = 0.05**2
"""The variance of the difference of days that are not matched by their place in the week."""

_MEMORIES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 96.0)
"""Hours within which a wandering level forgets its deviation."""
_WANDERS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
_SHIFTS = (0.0, 0.1, 0.3, 1.0)
"""Variances of the parts, relative to the variance of the cells."""


@dataclass(frozen=True, slots=True)
class TimedValues:
    """Values in [0, 1] and their times (ns)."""

    values: Floats
    times: Ints


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A difference of levels.

    Attributes:
        delta: The level after minus the level before.
        low: The lower end of its 95% interval.
        high: The upper end.
        p: The two-sided p-value.
        is_matched: Whether hours were compared with the same hours of the week.
    """

    delta: float
    low: float
    high: float
    p: float
    is_matched: bool


@dataclass(frozen=True, slots=True)
class _LevelCells:
    """Stretches of time: their places (hours), means, variances by sampling, and length."""

    places: Floats
    means: Floats
    noise: Floats
    length: int

    def __len__(self) -> int:
        return len(self.means)

    @property
    def span(self) -> float:
        """The hours from the first to the last."""
        return float(self.places[-1] - self.places[0]) + self.length if len(self) else 0.0

    @property
    def is_short(self) -> bool:
        """Whether there are too few to estimate how the level wanders."""
        return len(self) < _FEWEST_CELLS or self.span < _LEAST_HOURS


@dataclass(frozen=True, slots=True)
class _Levels:
    """Plausible levels: the estimates under all parameters, and the weights of these."""

    means: Floats
    variances: Floats
    weights: Floats

    @property
    def mean(self) -> float:
        return float(self.weights @ self.means)

    @property
    def variance(self) -> float:
        spread = (self.means - self.mean) ** 2
        return float(self.weights @ (self.variances + spread))

    def below(self, level: float) -> float:
        """The probability that the level is lower."""
        steps = (level - self.means) / np.sqrt(2 * self.variances)
        return float(self.weights @ np.array([0.5 * math.erfc(-step) for step in steps]))

    def quantile(self, probability: float) -> float:
        reach = 12 * math.sqrt(self.variance)
        low, high = self.mean - reach, self.mean + reach
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self.below(middle) < probability else (low, middle)
        return (low + high) / 2


def level_change(before: TimedValues, after: TimedValues) -> LevelChange | None:
    """The change between two times; None if they are too short to estimate it.

    Args:
        before: The values before.
        after: The values after.
    """
    length = _cell_length(before, after)
    variance = _pooled_variance(before, after)
    old, new = (_cells(part, length, variance) for part in (before, after))
    levels, is_matched = _matched_levels(old, new), True
    if levels is None:
        parts = _without_wave(old), _without_wave(new)
        if any(part.is_short for part in parts):
            return None
        levels, is_matched = _levels(parts), False
    return LevelChange(
        delta=levels.mean,
        low=levels.quantile(0.025),
        high=levels.quantile(0.975),
        p=min(1.0, 2 * min(levels.below(0.0), 1 - levels.below(0.0))),
        is_matched=is_matched,
    )


def effective_size(part: TimedValues) -> float:
    """The number of independent values whose mean is as uncertain as the mean of these values.

    It is at most the number of values divided by their autocorrelation time. It is smaller where
    the level wanders. A daily wave counts as wandering if the values cover less than three days.
    """
    mean, size = float(part.values.mean()), len(part.values) / autocorrelation_time(part.values)
    length = _cell_length(part)
    cells = _cells(part, length, _pooled_variance(part))
    spread = mean * (1 - mean)
    if spread < 1e-9 or cells.is_short:
        return size
    levels = _levels([_without_wave(cells)])
    error = (levels.quantile(0.975) - levels.quantile(0.025)) / _ERRORS
    return min(size, spread / error**2)


def _pooled_variance(*parts: TimedValues) -> float:
    """The variance of single values around the mean of their time."""
    size = sum(len(part.values) for part in parts)
    total = sum(float(part.values.var()) * len(part.values) for part in parts)
    return max(total / size, 0.5 / size)


def _cell_length(*parts: TimedValues) -> int:
    """The length of cells (hours) that have a few values each."""
    for length in _LENGTHS:
        counts = [len(np.unique(part.times // (length * _HOUR_NS))) for part in parts]
        fullest = [len(part.values) / count for part, count in zip(parts, counts, strict=True)]
        if min(fullest) >= _FEWEST_IN_CELL and max(counts) <= _MOST_CELLS:
            return length
    return _LENGTHS[-1]


def _cells(part: TimedValues, length: int, variance: float) -> _LevelCells:
    places, indices = np.unique(part.times // (length * _HOUR_NS), return_inverse=True)
    counts = np.bincount(indices)
    means = np.bincount(indices, part.values) / counts
    return _LevelCells(places.astype(np.float64) * length, means, variance / counts, length)


def _without_wave(cells: _LevelCells) -> _LevelCells:
    """Return cells without the waves of a day and of half a day, if they cover three days."""
    if cells.span < _ENOUGH_HOURS:
        return cells
    phases = [2 * np.pi * cells.places / hours for hours in (24.0, 12.0)]
    waves = np.stack([wave(phase) for phase in phases for wave in (np.sin, np.cos)], axis=1)
    centred = np.column_stack([np.ones(len(cells)), waves])
    fit = np.linalg.lstsq(centred, cells.means, rcond=None)[0]
    return replace(cells, means=cells.means - waves @ fit[1:])


def _matched_levels(old: _LevelCells, new: _LevelCells) -> _Levels | None:
    """The change of cells from the cells at the same time of the week, the latest of each.

    The matched cells of a few days show too little about how the level wanders, so the other cells
    before are used as well. Returns None if too few cells have counterparts.
    """
    slots: dict[int, tuple[list[int], list[int]]] = {}
    for side, cells in enumerate((old, new)):
        for row, hour in enumerate(cells.places):
            slots.setdefault(int(hour) % _WEEK_HOURS, ([], []))[side].append(row)
    pairs = [
        pair
        for rows in slots.values()
        for pair in zip(reversed(rows[0]), reversed(rows[1]), strict=False)
    ]
    pairs.sort(key=lambda pair: pair[1])
    first = np.array([pair[0] for pair in pairs], np.int64)
    second = np.array([pair[1] for pair in pairs], np.int64)
    matched = _LevelCells(
        new.places[second],
        new.means[second] - old.means[first],
        new.noise[second] + old.noise[first],
        new.length,
    )
    if matched.is_short or 2 * len(matched) < min(len(old), len(new)):
        return None
    if matched.span >= _ENOUGH_HOURS:
        return _levels([matched])
    unmatched = np.setdiff1d(np.arange(len(old)), first)
    unmatched_cells = _LevelCells(
        old.places[unmatched], old.means[unmatched], old.noise[unmatched], old.length
    )
    return (
        _levels([matched], _without_wave(unmatched_cells))
        if unmatched_cells.span >= _ENOUGH_HOURS
        else None
    )


def _levels(parts: Sequence[_LevelCells], singles: _LevelCells | None = None) -> _Levels:
    """The plausible levels of the only part, or the change from the first to the second.

    Args:
        parts: The cells.
        singles: Cells that also show how the level wanders, if `parts` contains differences.
    """
    scale = sum(float(part.means.var()) * len(part) for part in parts)
    scale = max(scale / sum(map(len, parts)), float(np.mean(parts[0].noise)) * 1e-3)
    grid = np.array(list(_parameters()))
    memories, wanders, shifts = grid[:, 0], grid[:, 1] * scale, grid[:, 2] * scale
    results = [_filtered(part, memories, wanders, shifts) for part in parts]
    log_weights = sum((result[2] for result in results), np.zeros(len(grid)))
    if singles is not None:
        log_weights += _filtered(singles, memories, wanders / 2, shifts / 2)[2]
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    plausible = weights > 1e-5 * weights.max()
    means, variances = results[-1][0], results[-1][1]
    if len(results) == 2:
        means = means - results[0][0]
        variances = variances + results[0][1] + _WEEKLY_VARIANCE
    weights = weights[plausible] / weights[plausible].sum()
    return _Levels(means[plausible], variances[plausible], weights)


def _parameters() -> Iterator[tuple[float, float, float]]:
    """Yield the memory, and the variances of the wandering and of the hourly part."""
    for wander, shift in product(_WANDERS, _SHIFTS):
        for memory in _MEMORIES if wander else _MEMORIES[:1]:
            yield memory, wander, shift


def _filtered(
    cells: _LevelCells, memories: Floats, wanders: Floats, shifts: Floats
) -> tuple[Floats, Floats, Floats]:
    """The level, its variance and the log-likelihood for each of some parameters.

    A Kalman filter runs over the means and over ones at once. The innovations of both yield the
    regression of the means on the level.
    """
    state, unit_response, variance = (
        np.zeros(len(memories)),
        np.zeros(len(memories)),
        wanders.copy(),
    )
    precision, product_sum, squares, logs = (np.zeros(len(memories)) for _ in range(4))
    gaps = np.diff(cells.places, prepend=cells.places[0])
    for gap, mean, noise in zip(gaps, cells.means, cells.noise, strict=True):
        decay = np.exp(-gap / memories)
        state, unit_response = state * decay, unit_response * decay
        variance = wanders + (variance - wanders) * decay**2
        total = variance + shifts + noise
        innovation, regressor = mean - state, 1.0 - unit_response
        precision += regressor**2 / total
        product_sum += regressor * innovation / total
        squares += innovation**2 / total
        logs += np.log(total)
        gain = variance / total
        state, unit_response = state + gain * innovation, unit_response + gain * regressor
        variance = variance * (1 - gain)
    levels: Floats = product_sum / precision
    likelihood = -0.5 * (logs + np.log(precision) + squares - product_sum * levels)
    return levels, 1 / precision, likelihood
