"""The mean of paired differences: its interval, and the p-value that this interval implies.

A sign-flip or a t test assumes that differences are as likely as their opposites when neither side
is better. That is wrong if one side is a little better on most examples and fails on a few: such
samples mostly have only gains. So the interval adds one unseen difference, at the end of the range,
to the observed differences, and takes the quantiles of their mean under random weights. This is the
bound of N. Gaffke, "Three test statistics for a nonparametric one-sided hypothesis on the mean of a
nonnegative variable", Mathematical Methods of Statistics 14 (2005), rediscovered by E.
Learned-Miller and P. Thomas, "A new confidence interval for the mean of a bounded random variable"
(2019). No distribution is known whose mean it covers less often than it claims. It needs no spread,
no symmetry and no draws. For passes and fails, the p-value equals the p-value of the exact McNemar
test.

Each side of the interval has two bounds, and the wider one counts:

- The unseen difference is as large as the largest observed difference, with half of the error on
  each side, as is usual.
- If scores in 0 to 1 bound the differences, it is as large as can be, with all of the error on each
  side: a distribution that is skewed enough to exceed one end is far from exceeding the other.

Values without bounds can only have the first, and need more pairs: with fewer than 60 pairs, more
than 5% of the samples lack a difference that occurs in 5% of the pairs.

`python -m benchmarks --only coverage` measures coverage, false positives and power.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import stdev

from .dirichlet import mean_quantile, mean_tail, weighted_values
from .means import FEWEST_UNEQUAL, count_unequal
from .power import fewest_pairs
from .rates import Interval, mean, quantile_of_normal

__all__ = [
    "detectable_difference",
    "difference_interval",
    "difference_p_value",
    "more_pairs_needed",
]

_FEWEST_UNBOUNDED = 60


def difference_interval(
    differences: Sequence[float], *, bounded: bool, confidence: float = 0.95
) -> Interval | None:
    """An interval of the mean of paired differences.

    Args:
        differences: One per example.
        bounded: Whether they are of scores in 0 to 1.
        confidence: The interval's confidence.

    Returns:
        The interval; None if unbounded differences are too few or too similar.

    Raises:
        ValueError: `differences` is empty.
    """
    centre = mean(differences)
    if not _are_enough(differences, bounded=bounded):
        return None
    low, minus_high = (
        min(
            mean_quantile(weighted_values(side, -reach), (1 - confidence) * share)
            for reach, share in _unseen(side, bounded=bounded)
        )
        for side in _sides(differences)
    )
    return Interval(min(low, centre), max(-minus_high, centre))


def difference_p_value(
    differences: Sequence[float], *, bounded: bool, null: float = 0.0
) -> float | None:
    """The two-sided p-value that the mean of paired differences has a value.

    It is at most alpha exactly if the interval of confidence 1 - alpha excludes that value.

    Args:
        differences: One per example.
        bounded: Whether they are of scores in 0 to 1.
        null: The value.

    Returns:
        The p-value; None without an interval.
    """
    if not differences or not _are_enough(differences, bounded=bounded):
        return None
    return min(
        1.0,
        *(
            max(
                mean_tail(weighted_values(side, -reach), at) / share
                for reach, share in _unseen(side, bounded=bounded)
            )
            for side, at in zip(_sides(differences), (null, -null), strict=True)
        ),
    )


def detectable_difference(
    differences: Sequence[float], *, bounded: bool, alpha: float = 0.05, power: float = 0.8
) -> float:
    """The mean of paired differences that the interval is likely to distinguish from 0.

    It is the sum of two terms: the distance from the observed mean to the farther end of the
    interval, and the error of the mean that is exceeded with the probability `power`. Infinity
    means that none is found.

    Args:
        differences: One per example.
        bounded: Whether they are of scores in 0 to 1.
        alpha: The error of the interval.
        power: The probability of finding the difference.
    """
    if more_pairs_needed(len(differences), bounded=bounded, alpha=alpha):
        return math.inf
    interval = difference_interval(differences, bounded=bounded, confidence=1 - alpha)
    if interval is None:
        return math.inf
    centre = mean(differences)
    reach = max(centre - interval.low, interval.high - centre)
    if bounded:
        # The unseen difference is the farther away, the larger the mean.
        reach /= alpha ** (1 / len(differences))
    error = stdev(differences) / math.sqrt(len(differences))
    least = reach + quantile_of_normal(power) * error
    return math.inf if bounded and least > 1 else least


def more_pairs_needed(pairs: int, *, bounded: bool, alpha: float = 0.05) -> int:
    """How many more pairs are needed before any difference can be found; mostly 0.

    Args:
        pairs: The number of pairs.
        bounded: Whether they are of scores in 0 to 1.
        alpha: The error of the interval.
    """
    return max(0, (fewest_pairs(alpha) if bounded else _FEWEST_UNBOUNDED) - pairs)


def _are_enough(differences: Sequence[float], *, bounded: bool) -> bool:
    if bounded:
        return True
    if len(differences) < _FEWEST_UNBOUNDED:
        return False
    return count_unequal(differences) >= FEWEST_UNEQUAL


def _sides(differences: Sequence[float]) -> Iterator[Sequence[float]]:
    """Yield the differences for the lower end of their interval, and for the upper end."""
    yield differences
    yield [-value for value in differences]


def _unseen(differences: Sequence[float], *, bounded: bool) -> Iterator[tuple[float, float]]:
    """Yield how large the difference that was not seen may be, with its share of the error."""
    largest = max(map(abs, differences))
    yield largest, 0.5
    if bounded and largest < 1:
        yield 1.0, 1.0
