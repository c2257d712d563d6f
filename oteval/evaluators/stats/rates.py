"""Rates: pass rates with exact intervals, exact sign and McNemar tests, pass@k and pass^k."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

from .distributions import beta_quantile

__all__ = [
    "Interval",
    "PassRate",
    "clopper_pearson",
    "fisher_exact",
    "mcnemar",
    "pass_at_k",
    "pass_hat_k",
    "pass_rate",
    "quantile_of_normal",
    "sign_test",
]

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


def mcnemar(only_first: int, only_second: int) -> float:
    """The two-sided p-value of the exact McNemar test of two paired shares.

    Source: Q. McNemar, "Note on the sampling error of the difference between correlated
    proportions or percentages", Psychometrika 12 (1947), in its exact (binomial) form: given the
    number of pairs that disagree, both directions are equally likely if the shares are equal.

    Args:
        only_first: The number of pairs where only the first passed.
        only_second: The number of pairs where only the second passed.
    """
    return sign_test(only_second, only_first)


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
