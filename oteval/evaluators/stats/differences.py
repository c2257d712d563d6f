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
from functools import lru_cache
from statistics import stdev

from .dirichlet import mean_quantile, mean_tail, weighted_values
from .rates import (
    FEWEST_UNEQUAL,
    Interval,
    binomial_tail,
    count_unequal,
    mean,
    quantile_of_normal,
    sign_test,
)

__all__ = [
    "benjamini_hochberg",
    "detectable_difference",
    "difference_interval",
    "difference_p_value",
    "fewest_pairs",
    "minimal_detectable_share",
    "more_pairs_needed",
    "selected_confidence",
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


def minimal_detectable_share(
    pairs: int, differing: float = 0.0, *, alpha: float = 0.05, power: float = 0.8
) -> float:
    """The smallest difference of two paired pass rates that is likely to be found.

    It is found by bisection over the exact power. The number of pairs that disagree is binomial. Of
    these pairs, the number that disagree in the difference's direction is binomial as well. At
    best, all of them disagree in one direction; this is assumed if `differing` is smaller than the
    difference.

    Args:
        pairs: The number of pairs.
        differing: The share of pairs that disagree, either way.
        alpha: The test's level.
        power: The probability of finding the difference.
    """
    needed = fewest_pairs(alpha)
    if pairs < needed:
        return math.inf
    low, high = 0.0, 1.0
    for _ in range(60 if not differing else 30):
        middle = (low + high) / 2
        if _power(pairs, middle, max(differing, middle), alpha) >= power:
            high = middle
        else:
            low = middle
    return high


def _power(pairs: int, difference: float, differing: float, alpha: float) -> float:
    """The probability that an exact McNemar test finds a difference of two pass rates."""
    if differing == difference:
        return binomial_tail(fewest_pairs(alpha), pairs, differing)
    share = (differing + difference) / (2 * differing)
    power = 0.0
    for count in range(fewest_pairs(alpha), pairs + 1):
        likely = _probability(count, pairs, differing)
        if likely > 1e-9:
            power += likely * binomial_tail(_critical(count, alpha), count, share)
    return power


def _probability(count: int, total: int, share: float) -> float:
    """The binomial probability of a count; powers and coefficients may exceed a float."""
    if share >= 1:
        return float(count == total)
    ways = math.lgamma(total + 1) - math.lgamma(count + 1) - math.lgamma(total - count + 1)
    return math.exp(ways + count * math.log(share) + (total - count) * math.log1p(-share))


@lru_cache(maxsize=1000)
def _critical(count: int, alpha: float) -> int:
    """How many of `total` differences a significant sign test needs with one sign."""
    least = count // 2 + 1
    while least <= count and sign_test(least, count - least) > alpha:
        least += 1
    return least


def fewest_pairs(alpha: float) -> int:
    """How many differences of one sign a sign test needs to reach a level."""
    return max(1, math.ceil(1 - math.log2(alpha) - 1e-12))


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted so that the expected share of false discoveries is kept.

    Source: Y. Benjamini and Y. Hochberg, "Controlling the false discovery rate", JRSS B 57
    (1995). The discoveries at the rate alpha have adjusted p-values of at most alpha.

    Args:
        p_values: The tests' p-values.

    Returns:
        The adjusted p-values in the same order.

    Raises:
        ValueError: One is not in 0 to 1.
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError("a p-value is not in 0 to 1")
    total = len(p_values)
    order = sorted(range(total), key=lambda at: p_values[at], reverse=True)
    adjusted = [0.0] * total
    least = 1.0
    for rank, at in enumerate(order):
        least = min(least, p_values[at] * (total / (total - rank)))
        adjusted[at] = least
    return adjusted


def selected_confidence(p_values: Sequence[float], alpha: float = 0.05) -> float:
    """The confidence level at which exactly the intervals of discoveries exclude 0.

    Source: Y. Benjamini and D. Yekutieli, "False discovery rate-adjusted multiple confidence
    intervals for selected parameters", JASA 100 (2005). Of the discoveries' intervals, an expected
    share of at most alpha misses the true value. Without a discovery, each interval has the
    confidence 1 - alpha.

    Args:
        p_values: The tests' p-values, each of the same procedure as the interval.
        alpha: The false discovery rate.
    """
    if not p_values:
        return 1 - alpha
    discoveries = sum(p <= alpha for p in benjamini_hochberg(p_values))
    return 1 - alpha * max(1, discoveries) / len(p_values)
