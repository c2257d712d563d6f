"""Rates and means with intervals that keep their coverage, the exact sign test, pass@k and pass^k.

The bootstrap and the t interval rely on the spread of the observed values. For few or nearly equal
values, that spread misleads: ten scores of 1 would have the interval [1, 1]. In these cases the
bounds of the values decide: a mean of values in 0 to 1 varies no more than a share of passes.
Without bounds the interval is unknown, and None means that more examples are needed.

`python -m benchmarks --only coverage` measures the coverage of the intervals.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

__all__ = [
    "FEWEST",
    "FEWEST_UNEQUAL",
    "Interval",
    "PassRate",
    "beta_quantile",
    "binomial_tail",
    "clopper_pearson",
    "count_unequal",
    "fisher_exact",
    "mean_interval",
    "pass_at_k",
    "pass_hat_k",
    "pass_rate",
    "quantile_of_normal",
    "sign_test",
    "t_quantile",
]

_TINY = 1e-300


def beta_quantile(probability: float, a: float, b: float) -> float:
    """The quantile of a beta distribution.

    Args:
        probability: Between 0 and 1.
        a: The first shape, above 0.
        b: The second shape, above 0.
    """
    # Newton's method, with a bisection where a step leaves the bracket or does not halve the last.
    low, high, x, last = 0.0, 1.0, a / (a + b), 1.0
    log_scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    for _ in range(100):
        error = _beta_below(x, a, b) - probability
        low, high = (x, high) if error < 0 else (low, x)
        log_density = log_scale + (a - 1) * math.log(x) + (b - 1) * math.log1p(-x)
        step = error * math.exp(min(700.0, -log_density))
        if not low < x - step < high or abs(step) > last / 2:
            step = x - (low + high) / 2
        x, last = x - step, abs(step)
        if last <= 1e-15 * x or not low < x < high:
            break
    return x


def t_quantile(probability: float, degrees: float) -> float:
    """The quantile of Student's t distribution.

    Args:
        probability: Between 0 and 1.
        degrees: The degrees of freedom, above 0.
    """
    if probability == 0.5:
        return 0.0
    tail = min(probability, 1 - probability)
    # P(|T| > t) is the beta distribution's probability below degrees / (degrees + t^2).
    share = beta_quantile(2 * tail, degrees / 2, 0.5)
    size = math.sqrt(degrees * (1 - share) / share)
    return size if probability > 0.5 else -size


def binomial_tail(least: int, total: int, share: float) -> float:
    """P(X >= least) for X binomial (total, share)."""
    if least <= 0:
        return 1.0
    if least > total:
        return 0.0
    return _beta_below(share, least, total - least + 1)


def _beta_below(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function.

    Source: W. J. Lentz's evaluation of the continued fraction, DLMF 8.17.22.
    """
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    front = math.exp(log_front)
    if x < (a + 1) / (a + b + 2):
        return min(1.0, front * _fraction(x, a, b) / a)
    return max(0.0, 1 - front * _fraction(1 - x, b, a) / b)


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, _inverse(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = _inverse(1 + even * d), _not_zero(1 + even / c)
        fraction *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = _inverse(1 + odd * d), _not_zero(1 + odd / c)
        fraction *= d * c
        if abs(d * c - 1) < 1e-14:
            break
    return fraction


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def _inverse(value: float) -> float:
    return 1 / _not_zero(value)


_NORMAL = NormalDist()


class Interval(NamedTuple):
    """A confidence interval.

    Attributes:
        low: Its lower end.
        high: Its upper end.
    """

    low: float
    high: float


class PassRate(NamedTuple):
    """A pass rate with its 95% interval.

    Attributes:
        value: The rate, None if nothing passed or failed.
        low: The lower end of the exact interval; 0 without a rate.
        high: Its upper end; 1 without a rate.
    """

    value: float | None
    low: float
    high: float

    @property
    def interval(self) -> Interval | None:
        """The interval, None without a rate."""
        return None if self.value is None else Interval(self.low, self.high)


def quantile_of_normal(probability: float) -> float:
    """The standard normal distribution's quantile of a probability, 0 to 1 exclusive."""
    return _NORMAL.inv_cdf(probability)


@lru_cache(maxsize=10_000)
def clopper_pearson(successes: float, total: float, confidence: float = 0.95) -> Interval:
    """The exact interval of a share.

    Source: C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated
    in the case of the binomial", Biometrika 26 (1934). It covers the true share at least as often
    as it claims, whatever the share. Wilson's interval does so only on average (.85 at 1 of 8 for a
    share of .02). A sum of values in 0 to 1 is also accepted, since a mean of such values varies no
    more than a share does. The effective number of dependent values is accepted for the same
    reason.

    Args:
        successes: The number of successes, or the sum of values in 0 to 1.
        total: The number of trials; 0 returns the interval 0 to 1.
        confidence: The interval's confidence.

    Raises:
        ValueError: There are fewer than 0 successes, or more successes than trials.
    """
    if not 0 <= successes <= total + 1e-9:
        raise ValueError(f"{successes} of {total}: successes must be from 0 to the total")
    if not total:
        return Interval(low=0.0, high=1.0)
    tail, failures = (1 - confidence) / 2, total - successes
    low = beta_quantile(tail, successes, failures + 1) if successes > 1e-9 else 0.0
    high = beta_quantile(1 - tail, successes + 1, failures) if failures > 1e-9 else 1.0
    return Interval(low, high)


def pass_rate(passed: float, failed: float, errors: float = 0) -> PassRate:
    """The pass rate of an evaluator: passes over passes, fails and errors.

    Every surface shows this rate and this interval. A run on which the evaluator failed did not
    pass, so that it counts; if nothing passed or failed, the rate is unknown.

    Args:
        passed: The number of passes, or the sum of the examples' shares of passes.
        failed: The number of fails, or the sum of the shares of fails.
        errors: The number of runs on which the evaluator failed.
    """
    if not passed and not failed:
        return PassRate(value=None, low=0.0, high=1.0)
    total = passed + failed + errors
    return PassRate(passed / total, *clopper_pearson(passed, total))


def sign_test(positive: int, negative: int) -> float:
    """The two-sided p-value of the exact binomial test that both signs are equally likely.

    Source: W. J. Conover, Practical Nonparametric Statistics (3rd ed.), section 3.4; ties are
    left out before.

    Args:
        positive: The number of differences above 0.
        negative: The number of differences below 0.
    """
    total = positive + negative
    smaller = min(positive, negative)
    if 2 * smaller >= total:  # also none at all
        return 1.0
    return min(1.0, 2 * math.exp(_log_tail(total, smaller)))


def _log_tail(total: int, upto: int) -> float:
    """The logarithm of P(X <= upto) for X binomial (total, 1/2), upto below half."""
    # From the largest term down: each is the term before it times k / (total - k + 1).
    log_first = (
        math.lgamma(total + 1)
        - math.lgamma(upto + 1)
        - math.lgamma(total - upto + 1)
        - total * math.log(2)
    )
    share, ratio = 1.0, 1.0
    for k in range(upto, 0, -1):
        ratio *= k / (total - k + 1)
        share += ratio
        if ratio < share * 1e-17:
            break
    return log_first + math.log(share)


def fisher_exact(passed_a: int, total_a: int, passed_b: int, total_b: int) -> float:
    """The two-sided p-value of Fisher's exact test that two independent shares are equal.

    Source: R. A. Fisher, Statistical Methods for Research Workers (1934), section 21.02. All tables
    with the same margins that are at most as likely as the observed one are as extreme.

    Args:
        passed_a: The number of passes in the first sample.
        total_a: The size of the first sample.
        passed_b: The number of passes in the second sample.
        total_b: The size of the second sample.
    """
    passed = passed_a + passed_b
    lowest, highest = max(0, passed - total_b), min(passed, total_a)
    ways = [
        math.comb(total_a, count) * math.comb(total_b, passed - count)
        for count in range(lowest, highest + 1)
    ]
    observed = ways[passed_a - lowest]
    return sum(way for way in ways if way <= observed) / sum(ways)


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """The unbiased estimate that at least one of k samples passes.

    Source: Chen et al., "Evaluating large language models trained on code" (2021), equation 1:
    1 - C(n - c, k) / C(n, k).

    Args:
        samples: The number of samples (n).
        passed: The number of passes (c).
        k: The size of the group, 1 to `samples`; at least one of the group must pass.

    Raises:
        ValueError: `k` or `passed` does not fit.
    """
    _check_k(samples, passed, k)
    return 1.0 - math.comb(samples - passed, k) / math.comb(samples, k)


def pass_hat_k(samples: int, passed: int, k: int) -> float:
    """The unbiased estimate that all of k samples pass (pass^k).

    Source: Yao et al., "tau-bench: a benchmark for tool-agent-user interaction in real-world
    domains" (2024), section 3: C(c, k) / C(n, k).

    Args:
        samples: The number of samples (n).
        passed: The number of passes (c).
        k: The size of the group that must pass, 1 to `samples`.

    Raises:
        ValueError: `k` or `passed` does not fit.
    """
    _check_k(samples, passed, k)
    return math.comb(passed, k) / math.comb(samples, k)


def _check_k(samples: int, passed: int, k: int) -> None:
    if not 1 <= k <= samples:
        raise ValueError(f"k is {k}: it must be 1 to the number of samples, {samples}")
    if not 0 <= passed <= samples:
        raise ValueError(f"{passed} of {samples} samples cannot have passed")


def mean(values: Iterable[float]) -> float:
    """The mean of some values, summed without loss.

    Raises:
        ValueError: There are none.
    """
    numbers = list(values)
    if not numbers:
        raise ValueError("the mean of an empty list is undefined")
    return math.fsum(numbers) / len(numbers)


FEWEST = 40
"""With fewer values the bounds decide; from here on a studentised bootstrap covers .93 or more."""

FEWEST_UNEQUAL = 8
"""How many values must differ from the most common one before their spread is reliable."""

_FEWEST_UNBOUNDED = 20
# From so many values on, Student's interval replaces the bootstrap if their mean is hardly skewed:
# a skewness of .04 moves .003 of the probability from one tail to the other, less than the error of
# 2,000 draws (.0035).
_MANY, _HARDLY_SKEWED = 1_000, 0.04


def mean_interval(
    values: Sequence[float], *, confidence: float = 0.95, resamples: int = 2_000, seed: int = 0
) -> Interval | None:
    """An interval of the mean of independent values.

    If all values are in 0 to 1, they count as scores of that range.

    Args:
        values: One per example.
        confidence: The interval's confidence.
        resamples: The number of bootstrap draws.
        seed: Makes the draws of the bootstrap repeatable.

    Returns:
        The interval; None if the values are too few or too similar.

    Raises:
        ValueError: `values` is empty.
    """
    centre = mean(values)
    scores = min(values) >= 0 and max(values) <= 1
    enough = len(values) >= (FEWEST if scores else _FEWEST_UNBOUNDED)
    if enough and count_unequal(values) >= FEWEST_UNEQUAL:
        low, high = _studentised(values, confidence, resamples, seed)
        return Interval(max(0.0, low), min(1.0, high)) if scores else Interval(low, high)
    if not scores:
        return None
    return clopper_pearson(min(centre * len(values), len(values)), len(values), confidence)


def count_unequal(values: Sequence[float]) -> int:
    """The number of values that differ from the most common one."""
    return len(values) - max(Counter(round(value, 12) for value in values).values(), default=0)


def _error(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error."""
    centre, count = mean(values), len(values)
    square = math.fsum((value - centre) ** 2 for value in values)
    return centre, math.sqrt(square / (count - 1) / count)


def _skewness_of_mean(values: Sequence[float], centre: float, error: float) -> float:
    """How skewed the distribution of the mean of some values is, whatever its direction."""
    cubes = math.fsum((value - centre) ** 3 for value in values)
    return abs(cubes) / len(values) ** 3 / error**3 if error else math.inf


def _studentised(values: Sequence[float], confidence: float, resamples: int, seed: int) -> Interval:
    """The bootstrap-t interval, or Student's if both differ only by chance.

    Source: P. Hall, "Theoretical comparison of bootstrap confidence intervals", Annals of
    Statistics 16 (1988). A draw without spread is uninformative and counts as extreme on its side.
    """
    centre, error = _error(values)
    count = len(values)
    if count >= _MANY and _skewness_of_mean(values, centre, error) <= _HARDLY_SKEWED:
        reach = t_quantile(0.5 + confidence / 2, count - 1) * error
        return Interval(centre - reach, centre + reach)
    draw = random.Random(seed)  # noqa: S311
    t_values = []
    for _ in range(resamples):
        drawn = draw.choices(values, k=count)
        there = sum(drawn) / count
        spread = sum([value * value for value in drawn]) / count - there * there
        away = there - centre
        if spread > 1e-18 * (1 + there * there):
            t_values.append(away / math.sqrt(spread / (count - 1)))
        else:
            t_values.append(math.copysign(math.inf, away))
    t_values.sort()
    tail = (1 - confidence) / 2
    low = t_values[math.ceil((1 - tail) * (resamples - 1))]
    high = t_values[int(tail * (resamples - 1))]
    return Interval(centre - low * error, centre - high * error)
