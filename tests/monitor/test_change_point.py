"""The time and size of a change: the mean before has an error, and the nearest change counts."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.dependent_passes import pass_fail
from oteval.monitor.baselines import Baseline, learn
from oteval.monitor.change_point import ChangePoint, History, UsualMean, estimate
from oteval.monitor.detector import DAY_NS, Floats, spending
from oteval.monitor.e_detector import EDetector

MINUTE_NS = 60_000_000_000


def history(values: Floats) -> History:
    """Return a history of one value a minute."""
    cells = History()
    times = np.arange(len(values), dtype=np.int64) * MINUTE_NS
    cells.add(np.ones(len(values), np.int64), values, times, times)
    return cells


def changed(
    *parts: tuple[float, int], usual: float = 0.95, dispersion: float = 1.0, seed: int = 0
) -> ChangePoint:
    """Return the estimated change of values with means one after the other."""
    means = np.concatenate([np.full(count, mean) for mean, count in parts])
    values = pass_fail(means, 0.0, np.random.default_rng(seed))
    before = UsualMean(usual, 1000.0, lambda counts: np.full(len(counts), dispersion))
    return estimate(history(values).cells(), before, worse=True)


@pytest.mark.parametrize("seed", range(5))
def test_an_error_of_the_usual_mean_is_no_change(seed: int):
    """Where .96 is taken for usual, and it is .95, a fall to .50 is dated by the fall alone."""
    fall = changed((0.95, 20_000), (0.5, 20), usual=0.96, seed=seed)

    minutes = np.array([fall.from_ns, fall.time_ns, fall.to_ns]) / MINUTE_NS
    assert np.all(np.abs(minutes - 20_000) < 60)
    assert fall.low <= 0.5 <= fall.high


def test_intervals_are_wider_for_dependent_values():
    """The dispersion widens the intervals of the time and of the mean."""
    narrow, wide = (
        changed((0.95, 2000), (0.7, 100), dispersion=dispersion) for dispersion in (1.0, 4.0)
    )

    assert wide.from_ns <= narrow.from_ns < narrow.to_ns <= wide.to_ns
    assert wide.low < narrow.low < narrow.high < wide.high


def test_a_rise_is_the_mirror_image_of_a_fall():
    """Passes and failures exchanged give the same time, and one less the means."""
    values = pass_fail(np.repeat([0.9, 0.4], [500, 60]), 0.0, np.random.default_rng(1))

    def estimated(values: Floats, usual: float, *, worse: bool) -> ChangePoint:
        before = UsualMean(usual, 1000.0, np.ones_like)
        return estimate(history(values).cells(), before, worse=worse)

    fall, rise = estimated(values, 0.9, worse=True), estimated(1.0 - values, 0.1, worse=False)

    assert (fall.from_ns, fall.time_ns, fall.to_ns) == (rise.from_ns, rise.time_ns, rise.to_ns)
    np.testing.assert_allclose(
        [fall.low, fall.mean, fall.high], [1 - rise.high, 1 - rise.mean, 1 - rise.low]
    )


def test_slow_variation_counts_less_in_short_stretches():
    """The dispersion of a few values is that of neighbours, and grows to that of a window."""
    rng = np.random.default_rng(2)
    hours = np.repeat(rng.uniform(0.84, 0.99, 72), 120)
    baseline = learn(pass_fail(hours, 0.0, rng), np.arange(len(hours)) * MINUTE_NS // 2)

    assert isinstance(baseline, Baseline)
    few, many, more = baseline.dispersion_of(np.array([1.0, baseline.size / 24, baseline.size]))
    assert few < 1.5 < many == more == baseline.dispersion


def test_alerts_28_days_after_the_baseline_are_dated_by_the_fall():
    """Of 12 groups, each fall is dated within a day, or its interval is longer than one."""
    times = np.arange(45_000, dtype=np.int64) * MINUTE_NS
    covered = []
    for seed in range(12):
        rng = np.random.default_rng([9, seed])
        values = pass_fail(np.full(len(times), 0.95), 0.0, rng)
        baseline = learn(values, times)
        assert isinstance(baseline, Baseline)
        fall = baseline.size + 28 * 1440
        values[fall:] = pass_fail(np.full(len(times) - fall, 0.5), 0.0, rng)
        detector = EDetector(baseline, spending=spending())
        after = slice(baseline.size, fall + 60)

        (*_, alert) = detector.update(values[after], times[after])

        change = detector.change
        assert change is not None
        assert (alert.change_ns, alert.after) == (change.time_ns, change.mean)
        assert abs(change.time_ns - times[fall]) < DAY_NS or change.to_ns - change.from_ns > DAY_NS
        holds_time = change.from_ns <= times[fall] <= change.to_ns
        covered.append(holds_time and change.low <= 0.5 <= change.high)
    assert sum(covered) >= 11
