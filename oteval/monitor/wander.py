"""Whether the level of a group wanders more than the margin below its mean allows for.

The guarantee of the e-detector is for values whose mean, given their past, is at least the floor.
Where the level itself goes up and down at random, bets win more in bad hours than they lose in good
ones. If the means of stretches of n values are independent, with the variance s^2 beyond chance, a
bet of size L does not win as long as

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
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .bets import DROPS
from .hours import Hours

__all__ = ["CERTAIN", "LIKELY", "Wander", "least_variance", "measured_wander"]

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
