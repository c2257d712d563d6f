"""A mean that a judge estimates and people's labels correct: prediction-powered inference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .rates import Interval, mean, quantile_of_normal

__all__ = ["Corrected", "ppi_mean"]


@dataclass(frozen=True)
class Corrected:
    """A corrected mean.

    Attributes:
        mean: The estimate.
        interval: Its interval.
        weight: How much the judge counts (the power-tuning lambda): 0 not at all, 1 fully.
        labelled: How many have a person's label.
        unlabelled: How many have only the judge's.
    """

    mean: float
    interval: Interval
    weight: float
    labelled: int
    unlabelled: int


def ppi_mean(
    labels: Sequence[float],
    predictions: Sequence[float],
    unlabelled: Sequence[float],
    *,
    confidence: float = 0.95,
    weight: float | None = None,
) -> Corrected:
    """Return a mean from few people's labels and many of a judge's, corrected for its bias.

    Source: A. N. Angelopoulos, J. C. Duchi and T. Zrnic, "PPI++: efficient prediction-powered
    inference" (2023), section 2 and example 6.1: with Y the labels, f the judge's values,
    mean(Y) + lambda * (mean(f, unlabelled) - mean(f, labelled)); lambda is
    Cov(Y, f) / ((1 + n/N) Var(f)), clipped to 0..1, so that the interval is in the limit never
    wider than that of the labels alone. The interval is normal: with fewer than some 30 labels
    it is too narrow.

    Args:
        labels: People's values (1.0 for a pass).
        predictions: The judge's values of the same things, in the same order.
        unlabelled: The judge's values of all else.
        confidence: The interval's confidence.
        weight: Lambda, if it is not to be tuned.

    Raises:
        ValueError: There are fewer than two labels, or not as many predictions.
    """
    count, others = len(labels), len(unlabelled)
    if count != len(predictions):
        raise ValueError(f"{count} labels against {len(predictions)} predictions of the same")
    if count < 2:
        raise ValueError("two labels are the least to correct with")
    if not others:
        weight = 0.0
    if weight is None:
        weight = _tuned(labels, predictions, unlabelled)
    rest = [y - weight * f for y, f in zip(labels, predictions, strict=True)]
    variance = _variance(rest) / count
    estimate = mean(rest)
    if others and weight:
        estimate += weight * mean(unlabelled)
        variance += weight * weight * _variance(unlabelled) / others
    reach = quantile_of_normal(0.5 + confidence / 2) * math.sqrt(variance)
    return Corrected(estimate, Interval(estimate - reach, estimate + reach), weight, count, others)


def _tuned(
    labels: Sequence[float], predictions: Sequence[float], unlabelled: Sequence[float]
) -> float:
    y, f = mean(labels), mean(predictions)
    pairs = zip(labels, predictions, strict=True)
    covariance = math.fsum((a - y) * (b - f) for a, b in pairs) / (len(labels) - 1)
    spread = _variance([*predictions, *unlabelled])
    if spread <= 0:
        return 0.0
    return min(1.0, max(0.0, covariance / ((1 + len(labels) / len(unlabelled)) * spread)))


def _variance(values: Sequence[float]) -> float:
    """Return the unbiased variance; 0 of a single value."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)
