"""The power of a paired comparison: the minimal detectable difference."""

from __future__ import annotations

import math
from functools import lru_cache

from .distributions import binomial_tail, t_quantile
from .means import FEWEST
from .rates import quantile_of_normal, sign_test

__all__ = ["fewest_pairs", "minimal_detectable_difference", "minimal_detectable_share"]


def minimal_detectable_difference(
    deviation: float, pairs: int, *, alpha: float = 0.05, power: float = 0.8
) -> float:
    """The smallest mean of paired differences that a two-sided test is likely to find.

    Source: J. Cohen, Statistical Power Analysis for the Behavioral Sciences (2nd ed.), section
    2.3: (z(1 - alpha/2) + z(power)) * deviation / sqrt(pairs). With fewer than 40 pairs, the
    quantiles are Student's. With six to eight pairs, a factor compensates for the few p-values that
    a sign-flip test can then have. In a simulation, both corrections kept the power of .8. With
    fewer pairs than such a test needs to reach alpha (six at .05), nothing is found: the result is
    infinity.

    Args:
        deviation: The standard deviation of the pairs' differences.
        pairs: The number of pairs.
        alpha: The test's level.
        power: The probability of finding the difference.
    """
    if pairs < fewest_pairs(alpha):
        return math.inf
    if pairs < FEWEST:
        reach = t_quantile(1 - alpha / 2, pairs - 1) + t_quantile(power, pairs - 1)
        reach *= _FEW_P_VALUES.get(pairs - fewest_pairs(alpha), 1.0)
    else:
        reach = quantile_of_normal(1 - alpha / 2) + quantile_of_normal(power)
    return reach * deviation / math.sqrt(pairs)


# By the number of pairs beyond the minimum that a sign-flip test needs.
_FEW_P_VALUES = {0: 1.26, 1: 1.1, 2: 1.04}


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
