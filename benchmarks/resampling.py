"""The sign-flip test and the bootstrap, which the coverage of our intervals is compared with."""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeVar

from oteval.evaluators.stats.rates import Interval, mean, quantile_of_normal, sign_test

__all__ = ["Permutation", "bootstrap", "paired_permutation"]

Item = TypeVar("Item")

# The most differences for which all 2^n sign assignments are counted, by meeting in the middle.
_EXACT = 30
# If the fourth powers of the differences add up to at most this share of the square of the sum of
# their squares, their sum with random signs is nearly normal. A p-value of .05 is then wrong by
# .002 at most, even for a sum with few possible values. 10,000 draws have the same error.
_HARDLY_DISCRETE = 5e-4
# The relative tolerance for equal sums of differences.
_CLOSE = 1e-9


class Permutation(NamedTuple):
    """The outcome of a permutation test.

    Attributes:
        p_value: The two-sided p-value.
        exact: Whether all assignments were counted.
    """

    p_value: float
    exact: bool


def paired_permutation(
    differences: Sequence[float], *, resamples: int = 10_000, seed: int = 0
) -> Permutation:
    """The p-value of the sign-flip test that paired differences have no direction.

    It assumes that each difference is as likely as its opposite. Comparisons use
    `difference_p_value`, which does not assume it.

    Source: R. A. Fisher, The Design of Experiments (1935), section 21. When neither side is better,
    each difference has either sign with the same probability; the statistic is their sum.
    Differences of 0 change nothing. If all others have one size, this is the exact sign test, and
    for pass/fail McNemar's. For up to 30 differences, all assignments of signs are counted. For
    more differences, random assignments are counted, and the p-value is (b + 1) / (m + 1) (Phipson
    & Smyth, "Permutation p-values should never be zero", 2010). From some 3,000 differences on, the
    sum is normal.

    Args:
        differences: One per independent pair; average repetitions first.
        resamples: The number of random assignments.
        seed: Makes the draws repeatable.

    Raises:
        ValueError: A difference is not finite.
    """
    if not all(map(math.isfinite, differences)):
        raise ValueError("a difference is not finite")
    sizes = sorted(abs(value) for value in differences if value)
    if not sizes:
        return Permutation(1.0, exact=True)
    if sizes[-1] - sizes[0] <= _CLOSE * sizes[-1]:
        above = sum(value > 0 for value in differences)
        return Permutation(sign_test(above, len(sizes) - above), exact=True)
    observed = abs(math.fsum(differences))
    least = observed - _CLOSE * math.fsum(sizes)
    if len(sizes) <= _EXACT:
        return Permutation(_counted(sizes, least), exact=True)
    variance = math.fsum(size**2 for size in sizes)
    if math.fsum(size**4 for size in sizes) <= _HARDLY_DISCRETE * variance**2:
        return Permutation(math.erfc(max(0.0, least) / math.sqrt(2 * variance)), exact=False)
    return Permutation(_drawn(sizes, least, resamples, seed), exact=False)


def _counted(sizes: Sequence[float], least: float) -> float:
    """The share of assignments of signs whose sum is at least as far from 0."""
    if least <= 0:
        return 1.0
    half = len(sizes) // 2
    left, right = _signed_sums(sizes[:half]), sorted(_signed_sums(sizes[half:]))
    far = 0
    for value in left:
        far += bisect_right(right, -least - value)
        far += len(right) - bisect_left(right, least - value)
    return min(1.0, far / (len(left) * len(right)))


def _signed_sums(sizes: Sequence[float]) -> list[float]:
    sums = [0.0]
    for size in sizes:
        sums = [value + size for value in sums] + [value - size for value in sums]
    return sums


def _drawn(sizes: Sequence[float], least: float, resamples: int, seed: int) -> float:
    """The share of random assignments whose sum is at least as far from 0."""
    # The sums of every eight differences under all their signs: a byte of randomness looks up one.
    tables = [_table(sizes[start : start + 8]) for start in range(0, len(sizes), 8)]
    draw = random.Random(seed)
    far = 0
    for _ in range(resamples):
        signs = draw.randbytes(len(tables))
        total = sum([table[byte] for table, byte in zip(tables, signs, strict=True)])
        far += abs(total) >= least
    return (far + 1) / (resamples + 1)


def _table(sizes: Sequence[float]) -> list[float]:
    sums = _signed_sums(sizes)
    return sums * (256 // len(sums))


def bootstrap(
    clusters: Sequence[Item],
    statistic: Callable[[Sequence[Item]], float],
    *,
    confidence: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
    method: Literal["bca", "percentile"] = "bca",
) -> Interval:
    """A bootstrap interval of a statistic of independent clusters.

    Source: B. Efron, "Better bootstrap confidence intervals", JASA 82 (1987), equations 2.3 and
    6.6 (bias-corrected and accelerated), the acceleration by the jackknife. Whole clusters are
    drawn, so that an example's repetitions stay together.

    Args:
        clusters: One per independent unit.
        statistic: The estimate, as a function of a list of clusters of the same length.
        confidence: The interval's confidence.
        resamples: The number of draws.
        seed: Makes the draws repeatable.
        method: ``bca``, or plain ``percentile``.

    Raises:
        ValueError: `clusters` is empty.
    """
    if not clusters:
        raise ValueError("a bootstrap needs at least one cluster")
    draw = random.Random(seed)
    count = len(clusters)
    estimates = sorted(statistic(draw.choices(clusters, k=count)) for _ in range(resamples))
    tail = (1 - confidence) / 2
    ends = (tail, 1 - tail)
    if method == "bca" and count > 1:
        ends = _corrected(clusters, statistic, estimates, ends)
    return Interval(_quantile(estimates, ends[0]), _quantile(estimates, ends[1]))


def _corrected(
    clusters: Sequence[Item],
    statistic: Callable[[Sequence[Item]], float],
    estimates: Sequence[float],
    ends: tuple[float, float],
) -> tuple[float, float]:
    """The quantiles that bound the interval, corrected for bias and skewness."""
    actual = statistic(clusters)
    below = (bisect_left(estimates, actual) + bisect_right(estimates, actual)) / (
        2 * len(estimates)
    )
    if not 0 < below < 1:
        return ends
    bias = quantile_of_normal(below)
    acceleration = _acceleration(clusters, statistic)
    low, high = (_moved(end, bias, acceleration) for end in ends)
    return low, high


def _moved(end: float, bias: float, acceleration: float) -> float:
    shifted = bias + quantile_of_normal(end)
    z = bias + shifted / (1 - acceleration * shifted)
    return 0.5 * math.erfc(-z / math.sqrt(2))


def _acceleration(clusters: Sequence[Item], statistic: Callable[[Sequence[Item]], float]) -> float:
    # With many clusters, groups are left out instead of single ones, to bound the work.
    count = len(clusters)
    groups = min(count, 200)
    left_out = [
        statistic([item for at, item in enumerate(clusters) if at % groups != group])
        for group in range(groups)
    ]
    centre = mean(left_out)
    second = math.fsum((centre - value) ** 2 for value in left_out)
    third = math.fsum((centre - value) ** 3 for value in left_out)
    return third / (6 * second**1.5) if second > 0 else 0.0


def _quantile(values: Sequence[float], share: float) -> float:
    """The quantile of sorted values, interpolated linearly."""
    position = share * (len(values) - 1)
    at = min(int(position), len(values) - 1)
    above = min(at + 1, len(values) - 1)
    return values[at] + (position - at) * (values[above] - values[at])
