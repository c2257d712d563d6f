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

A level may *wander* more than the margin below its mean allows for (`measured_wander`). The
guarantee of the e-detector is for values whose mean, given their past, is at least the floor. Where
the level itself goes up and down at random, bets win more in bad hours than they lose in good ones.
If the means of stretches of n values are independent, with the variance s^2 beyond chance, a bet of
size L does not win as long as

    margin >= L * n * s^2 / 2

(a Gaussian level makes the product of its factors at most exp(L n (L n s^2 / 2 - margin)) in
expectation; Howard et al. 2021, "Time-uniform, nonparametric, nonasymptotic confidence sequences").
Here L is the smallest bet: a drop divided by the variance of a value. Since a level is bounded,
1.5 times s was enough in simulations, however many values a stretch has. The baseline's mean is
wrong by the wander too, and its standard error is added. The variance beyond chance is measured
from the means of 1, 2, 4, ... hours, at least eight of each. Its lower bound counts: at 99% to
lower a floor, which costs delay, and at 80% to report that the level wanders.

Source: variance of block means: Allan 1966, "Statistics of atomic frequency standards"; the bound:
Wilson, Hilferty 1931, "The distribution of chi-square".

A detector takes the mean of *blocks* of consecutive observations (`choose_block`). The means of
blocks nearly have it when blocks are longer than the autocorrelation time; longer blocks find a
drop later. So a block is

- one observation, if the baseline has 60 failures or more and shows no dependence;
- at least 3, if it has fewer failures, because dependence would be missed too often;
- 10, if it has fewer than 8 failures, which show nothing (a drop is easy to see there);
- about two autocorrelation times, if it shows dependence.

Then the baseline is resampled in stretches longer than its dependence, and bets on block means
(`bets.py`) run over the result. If more runs raise an alarm than a budget allows, blocks become
longer by half, until the runs are within the budget.

Source: moving blocks bootstrap, Künsch 1989, "The jackknife and the bootstrap for general
stationary observations".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .bets import DROPS, bet_sizes, highest_wealth
from .detector import Floats
from .hours import Hours

__all__ = [
    "ABOVE_BUDGET",
    "CERTAIN",
    "LIKELY",
    "Wander",
    "alarm_share",
    "autocorrelation_time",
    "autocorrelations",
    "block_noise",
    "choose_block",
    "least_slow_variance",
    "least_variance",
    "long_run_ratio",
    "low_runs",
    "measured_wander",
    "resampled",
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


_FEWEST = 8
_STRETCHES = (1, 2, 4, 8, 16, 24)
_DEVIATIONS = 1.5

CERTAIN, LIKELY = 2.326, 0.842
"""Standard errors of lower bounds of 99% and of 80%."""


@dataclass(frozen=True, slots=True)
class Wander:
    """How much the level of a group wanders beyond chance, at least.

    Attributes:
        deviation: The largest standard deviation of the level in stretches of one length.
        hours: This length.
        ratio: The variance of the level relative to the variance by chance, in stretches where it
            is largest.
        error: The largest standard error of the mean of one hour, if stretches are independent.
    """

    deviation: float = 0.0
    hours: int = 0
    ratio: float = 0.0
    error: float = 0.0

    def margin(self, hours: float) -> float:
        """The margin that keeps the smallest bet from winning by the wander.

        Args:
            hours: The length of the baseline.
        """
        by_gain = DROPS[0] * self.ratio / 2
        error = min(self.deviation, self.error / float(np.sqrt(max(hours, 1.0))))
        return min(by_gain, _DEVIATIONS * self.deviation) + min(by_gain, error)


def measured_wander(hours: Hours, noise: float, *, errors: float = CERTAIN) -> Wander:
    """The wander of a group, at least.

    Args:
        hours: Hours, less the pattern of hours and weekdays.
        noise: The variance of one value, as if they were independent.
        errors: How many standard errors the lower bound is below the estimate.
    """
    wander = Wander()
    for size in _STRETCHES:
        stretches = hours.joined(size)
        if not len(stretches.counts):
            break
        is_full = stretches.counts >= 0.5 * float(np.median(stretches.counts))
        if is_full.sum() < _FEWEST:
            break
        counts = stretches.counts[is_full]
        chance = noise * float((1 / counts).mean())
        variance = least_variance(
            float(stretches.means[is_full].var(ddof=1)), len(counts), chance, errors=errors
        )
        deviation = float(np.sqrt(variance))
        is_larger = deviation > wander.deviation
        wander = Wander(
            deviation=max(deviation, wander.deviation),
            hours=size if is_larger else wander.hours,
            ratio=max(variance / max(chance, 1e-12), wander.ratio),
            error=max(deviation * float(np.sqrt(size)), wander.error),
        )
    return wander


def least_variance(variance: float, count: int, noise: float, *, errors: float = CERTAIN) -> float:
    """A lower bound of the variance of a level.

    Args:
        variance: The variance of some means.
        count: Their number.
        noise: The variance of one of these means by chance.
        errors: The standard errors of the bound.
    """
    free = count - 1
    part = 2 / (9 * free)
    highest = (1 - part + errors * float(np.sqrt(part))) ** 3
    return max(0.0, variance / highest - noise)


ABOVE_BUDGET = "false alarms are above the budget even so"
"""In the reason for a length of blocks that is not long enough."""

_TIMES = 2.0
"""The length of blocks in autocorrelation times."""

_FEW, _MANY = 8.0, 60.0
"""The failures that show nothing about dependence, and the failures that suffice to exclude it."""

_CAUTIOUS, _CAREFUL = 10, 3
_LONGEST = 512

_RUNS = 50
_LENGTH = 1000
_LEVEL = 5000
"""The check: of 50 runs of 1,000 observations with an alarm level of 5,000, a fifth may alarm."""

_ALLOWED = _LENGTH / _LEVEL + 2 * math.sqrt(_LENGTH / _LEVEL * (1 - _LENGTH / _LEVEL) / _RUNS)


def choose_block(values: Floats, *, time: float, floor: float) -> tuple[int, str]:
    """The length of blocks for observations like these, and the reason.

    Args:
        values: The observations of a baseline.
        time: Their autocorrelation time.
        floor: The floor that a detector will defend.
    """
    size, reason = _first_choice(values, time)
    longest = min(_LONGEST, max(1, len(values) // 20))
    chosen = size
    while (share := alarm_share(values, size=chosen, time=time, floor=floor)) > _ALLOWED:
        if chosen >= longest:
            return chosen, f"{reason}; {ABOVE_BUDGET} ({share:.0%})"
        chosen = min(longest, max(chosen + 1, chosen * 3 // 2))
    if chosen > size:
        reason = f"{reason}; raised from {size} because the resampled baseline raised alarms"
    return chosen, reason


def alarm_share(values: Floats, *, size: int, time: float, floor: float) -> float:
    """The share of runs over the resampled baseline that raise a false alarm.

    Args:
        values: The observations of a baseline.
        size: The length of blocks.
        time: The autocorrelation time of the observations.
        floor: The floor that the bets defend.
    """
    if not len(values):
        return 0.0
    rng = np.random.default_rng(len(values))
    stretch = max(20, math.ceil(5 * time))
    blocks = max(1, _LENGTH // size)
    drawn = resampled(values, stretch=stretch, size=_RUNS * blocks * size, rng=rng)
    # This takes a third of the time of `mean` if blocks are short.
    means = (drawn.reshape(-1, size) @ np.full(size, 1 / size)).reshape(_RUNS, blocks).T
    sizes = bet_sizes(floor, reach=max(0.0, float(values.max()) - 1.0))
    highest = highest_wealth(floor - means, sizes, allowance=size / _LEVEL)
    return float(np.mean(highest >= 1.0))


def resampled(values: Floats, *, stretch: int, size: int, rng: np.random.Generator) -> Floats:
    """A sequence of the given size, joined from random stretches of the values."""
    stretch = min(stretch, len(values))
    count = -(-size // stretch)
    starts = rng.integers(0, len(values) - stretch + 1, count)
    drawn: Floats = sliding_window_view(values, stretch)[starts].ravel()[:size]
    return drawn


def _first_choice(values: Floats, time: float) -> tuple[int, str]:
    mean = float(values.mean())
    failures = len(values) * min(mean, 1 - mean)
    dependent = math.ceil(_TIMES * time) if time >= 1.1 else 1
    if failures < _FEW and dependent < _CAUTIOUS:
        return _CAUTIOUS, f"{failures:.0f} failures are too few to see dependence"
    if failures < _MANY and dependent < _CAREFUL:
        return _CAREFUL, f"{failures:.0f} failures are too few to exclude dependence"
    if dependent > 1:
        return min(dependent, _LONGEST), f"two autocorrelation times of {time:.1f} observations"
    return 1, "neighbours do not depend on each other"
