"""Intervals of means that keep their coverage for few values and for values that hardly differ.

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
from collections.abc import Sequence

from .distributions import t_quantile
from .rates import Interval, clopper_pearson, mean

__all__ = ["FEWEST", "FEWEST_UNEQUAL", "count_unequal", "mean_interval"]

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
