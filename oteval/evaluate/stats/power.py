"""What a paired comparison could have seen: the minimal detectable difference."""

from __future__ import annotations

import math

from .rates import quantile_of_normal

__all__ = ["minimal_detectable_difference", "minimal_detectable_share"]


def minimal_detectable_difference(
    deviation: float, pairs: int, *, alpha: float = 0.05, power: float = 0.8
) -> float:
    """Return the smallest mean of paired differences that a two-sided test is likely to find.

    Source: J. Cohen, Statistical Power Analysis for the Behavioral Sciences (2nd ed.), section
    2.3: (z(1 - alpha/2) + z(power)) * deviation / sqrt(pairs). Fewer pairs than a sign-flip test
    needs to reach alpha at all (six at .05) find nothing: infinity.

    Args:
        deviation: The standard deviation of the pairs' differences.
        pairs: How many pairs there are.
        alpha: The test's level.
        power: How likely the difference shall be found.
    """
    if pairs < _fewest(alpha):
        return math.inf
    z = quantile_of_normal(1 - alpha / 2) + quantile_of_normal(power)
    return z * deviation / math.sqrt(pairs)


def minimal_detectable_share(pairs: int, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return the smallest difference of two paired pass rates that could be found at best.

    At best all pairs that disagree do so in one direction; then an exact McNemar test needs k of
    them, the least number with 2 * 0.5^k <= alpha. The share returned is the one at which at
    least k of the pairs disagree with the given probability (binomial, solved by bisection).

    Args:
        pairs: How many pairs there are.
        alpha: The test's level.
        power: How likely the difference shall be found.
    """
    needed = _fewest(alpha)
    if pairs < needed:
        return math.inf
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _at_least(needed, pairs, middle) >= power:
            high = middle
        else:
            low = middle
    return high


def _fewest(alpha: float) -> int:
    """Return how many differences of one sign a sign test needs to reach a level."""
    return max(1, math.ceil(1 - math.log2(alpha) - 1e-12))


def _at_least(needed: int, total: int, share: float) -> float:
    """Return P(X >= needed) for X binomial (total, share)."""
    if share >= 1:
        return 1.0
    below = math.fsum(
        math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(needed)
    )
    return 1 - below
