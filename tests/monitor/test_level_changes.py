"""Changes of a level that wanders by itself."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import monitor_compare
from benchmarks.monitor_compare import Condition
from oteval.monitor.level_changes import TimedValues, effective_size, level_change

HOUR_NS = 3600 * 10**9


def regular(values: np.ndarray, *, start: int = 0, step: float = 0.25) -> TimedValues:
    """Return values at equal distances (hours) from a start (hours)."""
    times = (start + step * np.arange(len(values))) * HOUR_NS
    return TimedValues(values.astype(np.float64), times.astype(np.int64))


@pytest.mark.parametrize(
    "condition",
    [
        Condition("wandering", 0.3, 0.0, 0.02, 12.0),
        Condition("wandering", 0.3, 0.0, 0.02, 12.0, (7, 2)),
        Condition("hours", 0.3, 0.0, 0.08),
        Condition("weekends", 0.3, 0.0, 0.05),
        Condition("bursts", 0.3, 0.6),
    ],
    ids=str,
)
def test_noise_slower_than_its_neighbours_is_no_change(condition: Condition) -> None:
    """Of eight streams without a change, at most one is taken for a change."""
    figures = monitor_compare.one_condition(condition, 8, seed=7)

    assert figures["false"] <= 1 / 8
    assert figures["covered"] >= 7 / 8


def test_a_drop_is_found_and_its_interval_holds_it() -> None:
    """A steady rate that falls by .05 has a small p-value and an interval around -.05."""
    rng = np.random.default_rng(3)
    before = regular(rng.random(672 * 15) < 0.95, step=1 / 60)
    after = regular(rng.random(672 * 15) < 0.90, start=168, step=1 / 60)

    change = level_change(before, after)

    assert change is not None
    assert change.p < 0.001
    assert change.low < -0.05 < change.high < 0
    assert change.is_matched


def test_an_hour_of_the_week_is_compared_with_the_same_hour() -> None:
    """Weekends that are always worse are no change, even if only a weekend is compared."""
    rng = np.random.default_rng(4)
    at = np.arange(168 * 10) / 10
    week = rng.random(len(at)) < np.where(at >= 120, 0.8, 0.95)
    weekend = rng.random(480) < 0.8

    change = level_change(regular(week, step=0.1), regular(weekend, start=168 + 120, step=0.1))

    assert change is not None
    assert change.is_matched
    assert change.p > 0.05


def test_other_days_of_the_week_widen_the_interval() -> None:
    """Two days and the two days after them may differ by the pattern of the week."""
    rng = np.random.default_rng(5)
    before = regular(rng.random(480) < 0.95, step=0.1)

    for rate, is_change in ((0.9, False), (0.5, True)):
        after = regular(rng.random(480) < rate, start=48, step=0.1)
        change = level_change(before, after)
        assert change is not None
        assert not change.is_matched
        assert (change.p <= 0.05) == is_change


def test_some_hours_are_too_short() -> None:
    """Twelve hours say nothing about how the level wanders."""
    values = np.ones(100)

    assert level_change(regular(values), regular(values[:48], start=30)) is None


def test_equal_values_have_no_change() -> None:
    """Without any failure on either side, p is high, and the interval spans 0."""
    change = level_change(regular(np.ones(672)), regular(np.ones(672), start=168))

    assert change is not None
    assert change.p == pytest.approx(1.0)
    assert change.low < 0 < change.high


def test_a_wandering_level_counts_as_fewer_values() -> None:
    """Independent values count in full or nearly, and a level that wanders counts much less."""
    rng = np.random.default_rng(6)
    steady = regular(rng.random(5040) < 0.9, step=1 / 30)
    drift = np.repeat(np.clip(0.9 + rng.normal(0, 0.08, 14), 0, 1), 360)
    wandering = regular(rng.random(5040) < drift, step=1 / 30)

    assert effective_size(steady) > 1000
    assert effective_size(wandering) < 500
