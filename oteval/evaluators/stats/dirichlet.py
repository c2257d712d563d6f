"""Means under random Dirichlet weights, the distribution behind the intervals of differences.

The weights of n values have the distribution Dirichlet(1, ..., 1): each is an exponential variable
E divided by the sum of all. The mean is then at most t if the sum of E (value - t) is at most 0, a
tail of a sum of scaled gamma variables.

That tail is computed by inversion of the moment generating function along the vertical line through
its saddlepoint, with the trapezoidal rule after y = sinh(v). For many values it is the saddlepoint
approximation of R. Lugannani and S. Rice, "Saddle point approximation for the distribution of the
sum of independent random variables", Advances in Applied Probability 12 (1980).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from .rates import quantile_of_normal

__all__ = ["WeightedValues", "mean_quantile", "mean_tail", "weighted_values"]

# Values, each with the number of its weights.
WeightedValues = Sequence[tuple[float, int]]

# The step of the trapezoidal rule gives nine digits.
_STEP = 0.125
# From so many different values on, the tail is approximated. It is wrong by a twentieth at most,
# namely if one value outweighs the others.
_MANY = 200
# Beyond this quantile of the normal distribution a tail counts as 0.
_FAR = 8.0


def weighted_values(values: Iterable[float], extra: float) -> WeightedValues:
    """Return values and one more, each with the number of its weights.

    Args:
        values: The values; values that agree to twelve decimals count as equal.
        extra: One more value.
    """
    counts = Counter(round(value, 12) for value in values)
    counts[round(extra, 12)] += 1
    return list(counts.items())


def mean_tail(values: WeightedValues, at: float) -> float:
    """The probability that the weighted mean is at most `at`.

    Args:
        values: The values, with the numbers of their weights.
        at: The bound.
    """
    terms = [(value - at, count) for value, count in values if value != at]
    if not terms or max(terms)[0] <= 0:
        return 1.0
    if min(terms)[0] >= 0:
        return 0.0
    return _tail(terms, _saddlepoint(terms))


def mean_quantile(values: WeightedValues, probability: float) -> float:
    """The quantile of the weighted mean.

    Args:
        values: The values, with the numbers of their weights.
        probability: Between 0 and 1.
    """
    centre = _mean(values, 0.0)
    terms = [(value - centre, count) for value, count in values]
    least, most = min(terms)[0], max(terms)[0]
    if least == most:
        return centre
    normal_quantile = quantile_of_normal(probability)

    def distance(tilt: float) -> float:
        # The bound with this saddlepoint: the mean with weights that are tilted so far.
        tail = _tail(*_tilted(terms, tilt))
        if not 1e-15 < tail < 1 - 1e-15:
            return math.copysign(_FAR, tail - 0.5) - normal_quantile
        return quantile_of_normal(tail) - normal_quantile

    tilt = _root(distance, (1 - 1e-9) / least, (1 - 1e-9) / most)
    return centre + _mean(terms, tilt)


def _mean(values: WeightedValues, tilt: float) -> float:
    """The mean of values whose expected weights are tilted towards large ones."""
    weights = [count / (1 - tilt * value) for value, count in values]
    products = [weight * value for weight, (value, _) in zip(weights, values, strict=True)]
    return math.fsum(products) / math.fsum(weights)


def _tilted(terms: WeightedValues, tilt: float) -> tuple[WeightedValues, float]:
    bound = _mean(terms, tilt)
    return [(value - bound, count) for value, count in terms], tilt / (1 - tilt * bound)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where an increasing function is 0.

    Source: N. Anderson and A. Bjorck, "A new high order method of regula falsi type for computing a
    root of an equation", BIT 13 (1973).
    """
    below, above = function(low), function(high)
    for _ in range(100):
        middle = (low * above - high * below) / (above - below)
        if not low < middle < high:
            return middle
        value = function(middle)
        if abs(value) < 1e-10:
            return middle
        if value < 0:
            share = 1 - value / below
            low, below, above = middle, value, above * (share if share > 0 else 0.5)
        else:
            share = 1 - value / above
            high, above, below = middle, value, below * (share if share > 0 else 0.5)
    return (low + high) / 2


def _saddlepoint(terms: WeightedValues) -> float:
    """Where the cumulant generating function of the sum is least."""
    least, most = min(terms)[0], max(terms)[0]

    def slope(s: float) -> float:
        # Without its poles at both ends of the range.
        scale = (1 - least * s) * (1 - most * s)
        return scale * math.fsum(count * a / (1 - a * s) for a, count in terms)

    return _root(slope, (1 - 1e-12) / least, (1 - 1e-12) / most)


def _tail(terms: WeightedValues, point: float) -> float:
    return _approximated(terms, point) if len(terms) >= _MANY else _inverted(terms, point)


def _inverted(terms: WeightedValues, point: float) -> float:
    scale = math.sqrt(math.fsum(count * (a / (1 - a * point)) ** 2 for a, count in terms))
    if abs(point) * scale < 0.5:  # the line must not pass the pole at 0 too closely
        scale = math.sqrt(math.fsum(count * a * a for a, count in terms))
        point = -0.5 / scale
    logarithm = -math.fsum(count * math.log1p(-a * point) for a, count in terms)
    slopes = [(a / (1 - a * point), count) for a, count in terms]
    integral, v = 0.0, 0.0
    while True:
        y = math.sinh(v) / scale
        size = math.fsum(count * math.log1p((b * y) ** 2) for b, count in slopes) / 2
        angle = math.fsum(count * math.atan(b * y) for b, count in slopes)
        height = math.exp(logarithm - size) * math.cosh(v) / math.hypot(point, y)
        integral += (
            (0.5 if v == 0 else 1.0)
            * height
            * (point * math.cos(angle) + y * math.sin(angle))
            / math.hypot(point, y)
        )
        if height <= 1e-12 * abs(integral) or v > 40:
            break
        v += _STEP
    share = integral * _STEP / (math.pi * scale)
    return min(1.0, max(0.0, -share if point < 0 else 1 - share))


def _approximated(terms: WeightedValues, point: float) -> float:
    curvature = math.fsum(count * (a / (1 - a * point)) ** 2 for a, count in terms)
    slope = point * math.sqrt(curvature)
    if abs(slope) < 1e-4:
        return 0.5
    logarithm = math.fsum(count * math.log1p(-a * point) for a, count in terms)
    root = math.copysign(math.sqrt(max(0.0, 2 * logarithm)), point)
    density = math.exp(-root * root / 2) / math.sqrt(2 * math.pi)
    return math.erfc(-root / math.sqrt(2)) / 2 + density * (1 / root - 1 / slope)
