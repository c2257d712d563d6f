"""Tails and quantiles of the distributions that exact intervals need, in plain Python."""

from __future__ import annotations

import math

__all__ = ["beta_quantile", "binomial_tail", "t_quantile"]

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
