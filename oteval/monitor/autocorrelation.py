"""The dependence of observations on each other: between neighbours, and slow variation.

``n`` observations with the autocorrelation time ``t`` estimate a mean as well as ``n / t``
independent ones. For a pass/fail chain that keeps its last value with probability r, t is
(1 + r) / (1 - r). The estimate sums autocorrelations from lag 1 up to the first pair of lags that
is within the noise. So it counts the dependence between neighbours, which blocks remove. It does
not count a slow variation from hour to hour, which blocks would not remove. Where there are enough
values, the means of 24 windows are subtracted first.

Slow variation is measured by itself: the standard deviation of the means of 24 windows, beyond the
standard deviation that noise causes. For a baseline of one day, a window is an hour.

Source: the initial positive sequence of Geyer 1992, "Practical Markov chain Monte Carlo"; noise
limit: Bartlett 1946; means of windows: the method of batch means.
"""

from __future__ import annotations

import math

import numpy as np

from .detector import Floats
from .wander import least_variance

__all__ = [
    "autocorrelation_time",
    "autocorrelations",
    "block_noise",
    "least_slow_variance",
    "long_run_ratio",
    "low_runs",
    "slow_deviation",
    "window_length",
]

_NOISE = 2.0
"""Standard errors above which an autocorrelation counts as real."""

_WINDOWS = 24
_LONG_WINDOW = 200
"""In shorter windows, subtracting their means would hide dependence as well."""

_OF_BLOCKS = 4
"""Twice the length of a block, in autocorrelation times."""

_DEPENDENT = 1.1
_UNSTEADY = 1.9
"""Three standard errors of the variance of 24 means."""

_UPPER = 1.6
"""The variance of 24 means is estimated with a relative standard error of 0.3; two of them up."""


def autocorrelations(values: Floats) -> Floats:
    """The autocorrelations of the lags 0, 1, 2, ...; zeros if all values are equal."""
    count = len(values)
    centred = values - values.mean() if count else values
    size = 1 << (2 * max(count, 1) - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    products = np.fft.irfft(spectrum * np.conj(spectrum), size)[:count]
    if not count or products[0] <= 1e-12 * count:
        return np.zeros(count)
    return np.asarray(products / products[0], np.float64)


def autocorrelation_time(values: Floats) -> float:
    """The autocorrelation time, at least 1; 1 if all values are equal."""
    correlations = autocorrelations(_without_slow_variation(values))
    pairs = correlations[1 : 1 + (len(correlations) - 1) // 2 * 2].reshape(-1, 2).sum(axis=1)
    noise = _NOISE * np.sqrt(2.0 / max(len(values), 1))
    below = np.flatnonzero(pairs <= noise)
    real = pairs[: below[0]] if below.size else pairs
    return float(max(1.0, 1.0 + 2.0 * real.sum()))


def low_runs(values: Floats) -> int:
    """The number of maximal runs of values below the mean.

    It bounds how much a baseline shows about dependence: ten failures in one run are one incident.
    """
    if not len(values):
        return 0
    low = values < values.mean()
    return int(np.sum(low[1:] & ~low[:-1])) + int(low[0])


def slow_deviation(values: Floats, time: float) -> float:
    """An upper bound of the standard deviation of the slowly varying mean.

    Args:
        values: Observations that cover at least a day.
        time: Their autocorrelation time.
    """
    length = len(values) // _WINDOWS
    if not length:
        return 1.0
    noise = float(values.var()) * time / length
    return float(np.sqrt(max(0.0, _variance_of_windows(values) * _UPPER - noise)))


def least_slow_variance(values: Floats, noise: float) -> float:
    """A lower bound of the variance of the slowly varying mean.

    Args:
        values: Observations that cover at least a day.
        noise: The variance of one value, as if they were independent.
    """
    length = len(values) // _WINDOWS
    if not length:
        return 0.0
    return least_variance(_variance_of_windows(values), _WINDOWS, noise / length)


def block_noise(values: Floats, time: float) -> float:
    """The variance of one value, as if they were independent, that blocks see.

    It contains the dependence between neighbours, since blocks are as long as that lasts. It hardly
    contains slow variation, which the autocorrelation time may contain. Two standard errors are
    added.

    Args:
        values: Observations.
        time: Their autocorrelation time.
    """
    size = _OF_BLOCKS * math.ceil(time) if time >= _DEPENDENT else 1
    count = len(values) // size
    if size == 1 or count < _WINDOWS:
        return float(values.var()) * time
    means = values[: size * count].reshape(count, size).mean(axis=1)
    return float(means.var()) * size * (1 + _NOISE * math.sqrt(2 / count))


def is_unsteady(values: Floats, time: float) -> bool:
    """Whether the means of 24 windows differ by clearly more than the noise.

    Args:
        values: Observations that cover at least a day.
        time: Their autocorrelation time.
    """
    length = len(values) // _WINDOWS
    noise = float(values.var()) * time
    return bool(length) and noise > 0 and _variance_of_windows(values) * length > _UNSTEADY * noise


def window_length(count: int) -> int:
    """The length of the windows for measuring slow variation of observations."""
    return max(1, count // _WINDOWS)


def long_run_ratio(values: Floats) -> float:
    """The variance of the sum of a window, relative to independent values."""
    length = len(values) // _WINDOWS
    if not length or (variance := float(values.var())) <= 1e-12:
        return 1.0
    return _variance_of_windows(values) * length / variance


def _without_slow_variation(values: Floats) -> Floats:
    """The values minus the means of windows, if windows are long."""
    length = len(values) // _WINDOWS
    if length < _LONG_WINDOW:
        return values
    size = _WINDOWS * length
    means = values[:size].reshape(_WINDOWS, length).mean(axis=1)
    slow: Floats = np.append(np.repeat(means, length), np.full(len(values) - size, means[-1]))
    return values - slow


def _variance_of_windows(values: Floats) -> float:
    length = len(values) // _WINDOWS
    means = values[: _WINDOWS * length].reshape(_WINDOWS, length).mean(axis=1)
    return float(means.var(ddof=1))
