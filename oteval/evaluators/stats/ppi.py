"""Prediction-powered inference: a judge's mean, corrected by labels from people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .rates import FEWEST, Interval, clopper_pearson, mean, mean_interval, quantile_of_normal

__all__ = ["Corrected", "normal_interval", "ppi_mean"]


@dataclass(frozen=True)
class Corrected:
    """A corrected mean.

    Attributes:
        mean: The estimate.
        interval: Its interval; of values in 0 to 1 it stays within them.
        weight: The weight of the judge (the power-tuning lambda), from 0 to 1.
        labelled: The number of runs with a label from a person.
        unlabelled: The number of runs with only the judge's verdict.
        needed: The number of further labels before the judge counts; 0 if it counts.
        method: The source of the interval: the ``labels`` alone (exact), the labels by the
            judge's verdict (``stratified``), or ``normal``.
    """

    mean: float
    interval: Interval
    weight: float
    labelled: int
    unlabelled: int
    needed: int = 0
    method: Literal["labels", "stratified", "normal"] = "normal"


def ppi_mean(
    labels: Sequence[float],
    predictions: Sequence[float],
    unlabelled: Sequence[float],
    *,
    confidence: float = 0.95,
    weight: float | None = None,
) -> Corrected:
    """The mean of many verdicts of a judge, corrected for bias by few labels from people.

    Source: A. N. Angelopoulos, J. C. Duchi and T. Zrnic, "PPI++: efficient prediction-powered
    inference" (2023), section 2 and example 6.1: with Y the labels, f the judge's values,
    mean(Y) + lambda * (mean(f, unlabelled) - mean(f, labelled)); lambda is
    Cov(Y, f) / ((1 + n/N) Var(f)), clipped to 0..1, so that in the limit the interval is never
    wider than the interval of the labels alone.

    The normal interval of that estimate is far too narrow for few labels, and if judge and people
    rarely differ: its coverage was .06 to .5 at 5 to 40 labels and pass rates near 0 and 1. So with
    fewer than 40 labels, only the labels count, with an exact interval. From 40 labels on, passes
    and fails have a stratified interval: the share of passes among runs that the judge passed, and
    among runs that it failed, each with an exact interval, weighted by the judge's pass rate over
    all runs (G. Y. Zou and A. Donner's MOVER, Statistics in Medicine 27, 2008).

    Args:
        labels: People's values (1.0 for a pass).
        predictions: The judge's values of the same runs, in the same order.
        unlabelled: The judge's values of all other runs.
        confidence: The interval's confidence.
        weight: A fixed lambda; by default it is tuned.

    Raises:
        ValueError: There are fewer than two labels, or not as many predictions.
    """
    count, unlabelled_count = len(labels), len(unlabelled)
    if count != len(predictions):
        raise ValueError(f"{count} labels against {len(predictions)} predictions of the same runs")
    if count < 2:
        raise ValueError("at least two labels are needed for a correction")
    bounded = min(labels) >= 0 and max(labels) <= 1
    if count < FEWEST and unlabelled_count:
        alone = _alone(labels, confidence)
        return Corrected(
            mean(labels), alone, 0.0, count, unlabelled_count, FEWEST - count, "labels"
        )
    if not unlabelled_count:
        weight = 0.0
    if weight is None:
        weight = _tuned(labels, predictions, unlabelled)
    if bounded and not weight:
        alone = _alone(labels, confidence)
        return Corrected(mean(labels), alone, weight, count, unlabelled_count, method="labels")
    estimate, interval = _estimated(labels, predictions, unlabelled, weight, confidence)
    method: Literal["stratified", "normal"] = "normal"
    if _verdicts(labels) and _verdicts(predictions) and _verdicts(unlabelled):
        interval, method = _stratified(labels, predictions, unlabelled, confidence), "stratified"
    if bounded:
        # The correction may leave the range; the true mean cannot.
        estimate = min(1.0, max(0.0, estimate))
        low, high = (min(1.0, max(0.0, end)) for end in interval)
        if method == "normal" and _distinct(labels, predictions) < _FEWEST_UNUSUAL:
            low, high = _alone(labels, confidence)
        interval = Interval(min(low, estimate), max(high, estimate))
    return Corrected(estimate, interval, weight, count, unlabelled_count, method=method)


def normal_interval(
    labels: Sequence[float],
    predictions: Sequence[float],
    unlabelled: Sequence[float],
    *,
    confidence: float = 0.95,
) -> Interval:
    """The normal interval of PPI++, which keeps its coverage only with many labels.

    Args:
        labels: As for `ppi_mean`.
        predictions: As for `ppi_mean`.
        unlabelled: As for `ppi_mean`; at least one.
        confidence: The confidence it claims.
    """
    weight = _tuned(labels, predictions, unlabelled)
    return _estimated(labels, predictions, unlabelled, weight, confidence)[1]


# A normal interval needs this many labels that differ from the judge in an unusual way.
_FEWEST_UNUSUAL = 8


def _verdicts(values: Sequence[float]) -> bool:
    return all(value in (0, 1) for value in values)


def _distinct(labels: Sequence[float], predictions: Sequence[float]) -> int:
    residuals = [round(y - f, 12) for y, f in zip(labels, predictions, strict=True)]
    return len(residuals) - max(map(residuals.count, set(residuals)))


def _alone(labels: Sequence[float], confidence: float) -> Interval:
    """The interval of the labels' mean; the whole range if there are too few."""
    if _verdicts(labels):
        return clopper_pearson(math.fsum(labels), len(labels), confidence)
    return mean_interval(labels, confidence=confidence) or Interval(-math.inf, math.inf)


def _estimated(
    labels: Sequence[float],
    predictions: Sequence[float],
    unlabelled: Sequence[float],
    weight: float,
    confidence: float,
) -> tuple[float, Interval]:
    """The estimate of the paper, and its normal interval."""
    residuals = [y - weight * f for y, f in zip(labels, predictions, strict=True)]
    variance = _variance(residuals) / len(labels)
    estimate = mean(residuals)
    if unlabelled and weight:
        estimate += weight * mean(unlabelled)
        variance += weight * weight * _variance(unlabelled) / len(unlabelled)
    reach = quantile_of_normal(0.5 + confidence / 2) * math.sqrt(variance)
    return estimate, Interval(estimate - reach, estimate + reach)


def _stratified(
    labels: Sequence[float],
    predictions: Sequence[float],
    unlabelled: Sequence[float],
    confidence: float,
) -> Interval:
    """The interval of the pass rate, from labels of runs the judge passed and failed."""
    verdict_count = len(predictions) + len(unlabelled)
    passed_count = math.fsum(predictions) + math.fsum(unlabelled)
    share, share_ends = (
        passed_count / verdict_count,
        clopper_pearson(passed_count, verdict_count, confidence),
    )
    passed, passed_ends = _stratum(labels, predictions, 1, confidence)
    failed, failed_ends = _stratum(labels, predictions, 0, confidence)
    estimate = share * passed + (1 - share) * failed
    slope = passed - failed
    below = share - share_ends.low if slope >= 0 else share_ends.high - share
    above = share_ends.high - share if slope >= 0 else share - share_ends.low
    low = math.hypot(
        share * (passed - passed_ends.low), (1 - share) * (failed - failed_ends.low), slope * below
    )
    high = math.hypot(
        share * (passed_ends.high - passed),
        (1 - share) * (failed_ends.high - failed),
        slope * above,
    )
    return Interval(estimate - low, estimate + high)


def _stratum(
    labels: Sequence[float], predictions: Sequence[float], verdict: float, confidence: float
) -> tuple[float, Interval]:
    """The share of passes among the labels of one verdict, and its interval."""
    stratum_labels = [y for y, f in zip(labels, predictions, strict=True) if f == verdict]
    if not stratum_labels:
        return 0.5, Interval(0.0, 1.0)
    return mean(stratum_labels), clopper_pearson(
        math.fsum(stratum_labels), len(stratum_labels), confidence
    )


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
    """The unbiased variance; 0 of a single value."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)
