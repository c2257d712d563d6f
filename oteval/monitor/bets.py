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

from .detector import Floats

__all__ = ["DROPS", "bet_sizes", "highest_wealth", "plain_wealth", "wealth"]

DROPS = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Drops below the floor, for each of which one bet is the best one on passes and failures. At a
floor of .93 the sizes are 0.8, 1.5, 3.1, 6.1 and 12.3; one of them suits most drops."""

_LARGEST_LOSS = 0.95
_STEP = 128
"""The factors are in [0.05, 20], and a product of 128 of them is far from the limits of floats."""

_MOST = 1e100
"""Wealth far beyond an alarm is capped, since a long bad stretch would overflow."""


def bet_sizes(floor: float, drops: Sequence[float] = DROPS, *, reach: float = 0.0) -> Floats:
    """Return the size of the best bet for each drop, capped so that it never loses over 95%.

    Args:
        floor: The floor.
        drops: Drops below it.
        reach: By how much values may be above 1.
    """
    best = np.asarray(drops) / max(floor * (1.0 - floor), 0.01)
    capped: Floats = np.minimum(best, _LARGEST_LOSS / max(1.0 + reach - floor, 0.05))
    return capped


def wealth(start: Floats, factors: Floats, allowances: Floats) -> Floats:
    """Return the wealth of every bet after every value, by prefix products.

    It equals `plain_wealth` up to rounding, at a small fraction of the time.

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
    """Return the highest mean wealth of the bets in each of many runs, from no wealth on.

    All runs go on together by one value at a time, in memory that fits into the cache of a CPU.

    Args:
        gaps: The floor minus each value: one row per value, one column per run.
        sizes: The sizes of the bets.
        allowance: The allowance of every value.
    """
    runs = gaps.shape[1]
    held, grown = np.zeros((2, len(sizes), runs))
    highest = np.zeros(runs)
    for start in range(0, len(gaps), _STEP):
        part = gaps[start : start + _STEP]
        rows = part[:, None, :] * sizes[:, None]
        rows += 1.0
        for row in rows:
            np.add(held, allowance, out=grown)
            row *= grown
            held = row
        held = np.minimum(held, _MOST)
        np.maximum(highest, rows.sum(axis=1).max(axis=0), out=highest)
    highest /= len(sizes)
    return highest


def plain_wealth(start: Floats, factors: Floats, allowances: Floats) -> Floats:
    """Return the same as `wealth` by its definition, one value after the other."""
    rows = np.empty_like(factors)
    for row, (factor, allowance) in enumerate(zip(factors, allowances, strict=True)):
        start = factor * (start + allowance)
        rows[row] = start
    return rows
