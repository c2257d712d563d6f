"""Bets against the hypothesis that the mean is at least a floor, and their accumulated wealth.

A bet of size L multiplies the wealth by ``1 + L * (floor - value)``. While the conditional mean of
the values is at least the floor, no bet gains in expectation. The wealth of a bet follows

    wealth <- (wealth + allowance) * (1 + L * (floor - value))

where the allowance is the budget of false alarms that the observation may spend. In expectation,
the wealth of every bet, and so their mean, is at most the sum of the allowances; by Doob's
inequality the probability that the mean ever reached 1 is at most that sum. With a constant
allowance of 1 / A this is the mixture Shiryaev-Roberts e-detector with the threshold A.

Source: Shin, Ramdas, Rinaldo 2022, "E-detectors: a nonparametric framework for sequential change
detection", https://arxiv.org/abs/2203.03532; bets on means: Waudby-Smith, Ramdas 2020,
https://arxiv.org/abs/2010.09686.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .detector import Floats, Ints

__all__ = ["DROPS", "bet_sizes", "highest_wealth", "wealth"]

DROPS = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Drops below the floor. For each of them, one bet is the best one on passes and failures. At a
floor of .93 the sizes are 0.8, 1.5, 3.1, 6.1 and 12.3; one of them suits most drops."""

_LARGEST_LOSS = 0.95
_STEP = 128
"""The factors are in [0.05, 20], and a product of 128 of them is far from the limits of floats."""

_MOST = 1e100
"""Wealth far beyond an alarm is capped, since a long bad stretch would overflow."""

_FEW_OTHERS = 0.25
"""If a larger share of values is not the best value, looking for stretches does not pay."""


def bet_sizes(floor: float, drops: Sequence[float] = DROPS, *, reach: float = 0.0) -> Floats:
    """The size of the best bet for each drop, capped so that it never loses over 95%.

    Args:
        floor: The floor.
        drops: Drops below it.
        reach: By how much values may be above 1.
    """
    best = np.asarray(drops) / max(floor * (1.0 - floor), 0.01)
    capped: Floats = np.minimum(best, _LARGEST_LOSS / max(1.0 + reach - floor, 0.05))
    return capped


def wealth(start: Floats, factors: Floats, allowances: Floats) -> Floats:
    """The wealth of every bet after every value, by prefix products.

    It equals the recursion, one value after the other, up to rounding, at a fraction of the time.

    Args:
        start: The wealth of each bet before.
        factors: One row per value, one column per bet.
        allowances: The allowance of each value.
    """
    count, bets = factors.shape
    steps = -(-count // _STEP)
    padding = steps * _STEP - count
    padded = np.concatenate([factors, np.ones((padding, bets))]).reshape(steps, _STEP, bets)
    added = np.concatenate([allowances, np.zeros(padding)]).reshape(steps, _STEP, 1)
    products = np.cumprod(padded, axis=1)
    shares = added * padded / products
    np.cumsum(shares, axis=1, out=shares)
    carried = np.empty((steps, 1, bets))
    for step in range(steps):
        carried[step] = start
        start = np.minimum(products[step, -1] * (start + shares[step, -1]), _MOST)
    result: Floats = (products * (carried + shares)).reshape(-1, bets)[:count]
    return result


def highest_wealth(gaps: Floats, sizes: Floats, *, allowance: float) -> Floats:
    """The highest mean wealth of the bets in each of many runs, from no wealth on.

    Where most values are the best one, as with passes and failures, wealth is looked at only after
    each of the other values: it hardly grows in between.

    Args:
        gaps: The floor minus each value: one row per value, one column per run.
        sizes: The sizes of the bets.
        allowance: The allowance of every value.
    """
    best = gaps.min()
    is_other = gaps > best
    # The last value ends the last stretch.
    is_other[-1:] = True
    if best <= 0 and int(is_other.sum(axis=0).max()) <= len(gaps) * _FEW_OTHERS:
        return _highest_by_stretches(gaps, is_other, sizes, allowance)
    return _highest_by_values(gaps, sizes, allowance)


def _highest_by_values(gaps: Floats, sizes: Floats, allowance: float) -> Floats:
    """Advance all runs by one value at a time, in memory that fits into the cache of a CPU."""
    runs = gaps.shape[1]
    current_wealth, grown = np.zeros((2, len(sizes), runs))
    highest = np.zeros(runs)
    for start in range(0, len(gaps), _STEP):
        part = gaps[start : start + _STEP]
        rows = part[:, None, :] * sizes[:, None]
        rows += 1.0
        for row in rows:
            np.add(current_wealth, allowance, out=grown)
            row *= grown
            current_wealth = row
        current_wealth = np.minimum(current_wealth, _MOST)
        np.maximum(highest, rows.sum(axis=1).max(axis=0), out=highest)
    highest /= len(sizes)
    return highest


def _highest_by_stretches(
    gaps: Floats, is_other: npt.NDArray[np.bool_], sizes: Floats, allowance: float
) -> Floats:
    """Advance all runs by a stretch of the best value, and the value after it, at a time.

    A stretch of k best values makes a wealth w into ``falls[k] * w + gains[k]``.
    """
    count, runs = gaps.shape
    falls = np.ones((len(sizes), count))
    falls[:, 1:] = (1.0 + sizes * gaps.min())[:, None]
    np.cumprod(falls, axis=1, out=falls)
    gains = allowance * (np.cumsum(falls, axis=1) - 1.0)
    lengths, gap_sums, allowances = _stretches(gaps, is_other, allowance)
    current_wealth = np.zeros((len(sizes), runs))
    highest = np.zeros(runs)
    for start in range(0, len(lengths), _STEP):
        part = slice(start, start + _STEP)
        factors = 1.0 + sizes[:, None, None] * gap_sums[part]
        slopes = falls.take(lengths[part], axis=1) * factors
        rows = (gains.take(lengths[part], axis=1) + allowances[part]) * factors
        for stretch_index in range(rows.shape[1]):
            row = rows[:, stretch_index]
            row += slopes[:, stretch_index] * current_wealth
            current_wealth = row
        current_wealth = np.minimum(current_wealth, _MOST)
        np.maximum(highest, rows.sum(axis=0).max(axis=0), out=highest)
    highest /= len(sizes)
    return highest


def _stretches(
    gaps: Floats, is_other: npt.NDArray[np.bool_], allowance: float
) -> tuple[Ints, Floats, Floats]:
    """The stretches of each run: their lengths, the gap after each, and its allowance.

    There is one row per stretch and one column per run. Runs with fewer stretches are filled with
    rows that change nothing.
    """
    count, runs = gaps.shape
    run, row = np.divmod(np.flatnonzero(is_other.T), count)
    numbers = np.bincount(run, minlength=runs)
    stretch_index = np.arange(len(run)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    lengths = np.zeros((int(numbers.max(initial=0)), runs), np.int64)
    lengths[stretch_index, run] = np.where(stretch_index, np.diff(row, prepend=-1) - 1, row)
    gap_sums, allowances = np.zeros((2, *lengths.shape))
    gap_sums[stretch_index, run] = gaps[row, run]
    allowances[stretch_index, run] = allowance
    return lengths, gap_sums, allowances
