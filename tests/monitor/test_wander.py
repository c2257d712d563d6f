"""Levels that wander, nightly jobs and weekends: learned, allowed for, or said beforehand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.dependent_passes import pass_fail
from oteval.monitor.autocorrelation import measured_wander
from oteval.monitor.baselines import Baseline, learn
from oteval.monitor.cycle import fit_hours
from oteval.monitor.detector import DAY_NS, Alarm, Floats, Ints, spending
from oteval.monitor.hours import HOUR_NS, HourlySums, Hours
from oteval.monitor.reviews import ReviewedDetector

MINUTE_NS = 60_000_000_000
MONDAY_NS = 4 * DAY_NS


def times(days: int) -> Ints:
    return MONDAY_NS + np.arange(days * 1440) * MINUTE_NS


def watched(values: Floats, at: Ints) -> tuple[Baseline, ReviewedDetector, list[Alarm]]:
    baseline = learn(values, at)
    assert isinstance(baseline, Baseline)
    detector = ReviewedDetector(baseline, spending=spending())
    alarms = detector.update(values[baseline.size :], at[baseline.size :])
    return baseline, detector, [alarm for alarm in alarms if alarm.kind == "alert"]


def test_a_nightly_job_is_learned():
    """Four worse hours every night are part of the pattern after some days, and alert no more."""
    at = times(30)
    is_night = (at % DAY_NS) // HOUR_NS % 24 < 5
    is_night &= (at % DAY_NS) // HOUR_NS >= 1
    values = pass_fail(0.95 - 0.1 * is_night, 0.0, np.random.default_rng(1))

    _, detector, alarms = watched(values, at)

    hours = np.array(detector.baseline.cycle.hours)
    assert hours[1:5].mean() - hours[6:].mean() < -0.08
    assert [alarm for alarm in alarms if alarm.time_ns > at[0] + 8 * DAY_NS] == []


def test_weekends_are_learned_from_two_of_them_and_said_before():
    """A baseline of a Monday says that it saw no weekend; the third one does not alert."""
    at = times(35)
    is_weekend = (at // DAY_NS + 3) % 7 >= 5
    values = pass_fail(0.95 - 0.05 * is_weekend, 0.0, np.random.default_rng(2))

    baseline, detector, alarms = watched(values, at)

    assert any("weekends" in doubt for doubt in baseline.doubts)
    assert detector.baseline.doubts == ()
    assert np.mean(detector.baseline.cycle.weekdays[5:]) == pytest.approx(-0.036, abs=0.01)
    assert [alarm for alarm in alarms if alarm.time_ns > at[0] + 15 * DAY_NS] == []


def test_hours_that_differ_at_random_widen_the_margin_and_are_said():
    """Random hours of +-.15 are no pattern; their variance lowers the floor, and is the reason."""
    at = times(20)
    shifts = np.random.default_rng(3).uniform(-0.15, 0.15, 20 * 24)
    values = pass_fail(0.8 + np.repeat(shifts, 60), 0.0, np.random.default_rng(4))

    baseline, detector, _ = watched(values, at)

    reviewed = detector.baseline
    assert reviewed.floor < baseline.floor - 0.01
    assert reviewed.mean == baseline.mean
    assert any("the level wanders" in doubt for doubt in reviewed.doubts)


def test_independent_values_are_promised_and_keep_their_floor():
    """Chance is not taken for wander, at any of the reviews of a month."""
    at = times(30)
    for seed in range(5):
        values = pass_fail(np.full(len(at), 0.95), 0.0, np.random.default_rng(seed))
        baseline, detector, alarms = watched(values, at)
        assert detector.baseline.floor == baseline.floor
        assert detector.baseline.doubts == ()
        assert alarms == []


def test_the_pattern_keeps_the_frozen_mean():
    """A decline of all hours is no pattern, so that it is found after any number of reviews."""
    at = times(30)
    means = np.where(at < at[0] + 20 * DAY_NS, 0.95, 0.88)
    values = pass_fail(means, 0.0, np.random.default_rng(5))

    baseline, detector, alarms = watched(values, at)

    assert len(alarms) == 1
    assert detector.baseline.mean == baseline.mean


def test_reviews_do_not_depend_on_how_checks_divide_observations():
    """Cuts and restarts in between give the same alarms and the same reviewed baseline."""
    at = times(12)
    hours = np.random.default_rng(6).uniform(-0.08, 0.08, 12 * 24)
    values = pass_fail(0.9 + np.repeat(hours, 60), 0.0, np.random.default_rng(7))
    baseline, whole, alarms = watched(values, at)
    rest, after = values[baseline.size :], at[baseline.size :]

    parts = ReviewedDetector(baseline, spending=spending())
    again: list[Alarm] = []
    for first in range(0, len(rest), 777):
        again += parts.update(rest[first : first + 777], after[first : first + 777])
        state = json.loads(json.dumps(parts.state()))
        stored = Baseline.from_dict(json.loads(json.dumps(parts.baseline.to_dict())))
        parts = ReviewedDetector(stored, spending=spending())
        parts.restore(state)

    assert [alarm for alarm in again if alarm.kind == "alert"] == alarms
    assert parts.baseline == whole.baseline
    assert parts.state()["review"] == whole.state()["review"]


def test_sums_of_hours_are_kept_for_four_weeks():
    """Older hours are forgotten, and observations in episodes are not quiet."""
    sums = HourlySums()
    at = times(40)
    values = np.ones(len(at))
    is_quiet = np.arange(len(at)) % 2 == 0
    sums.add(values[:100], at[:100], is_quiet[:100])
    sums.add(values[100:], at[100:], is_quiet[100:])

    hours, quiet = sums.hours(), sums.hours(quiet=True)

    assert len(hours.numbers) == 28 * 24
    assert hours.numbers[-1] == at[-1] // HOUR_NS
    assert set(hours.counts) == {60}
    assert set(quiet.counts) == {30}
    assert set(quiet.means) == {1.0}


def test_wander_is_measured_at_its_length():
    """A level that lasts for eight hours shows in long stretches, and chance does not."""
    rng = np.random.default_rng(8)
    numbers = np.arange(28 * 24)
    level = np.repeat(rng.normal(0, 0.03, 28 * 3), 8)
    noise = rng.normal(0, 0.03, len(numbers))
    counts = np.full(len(numbers), 60.0)

    wandering = measured_wander(Hours(numbers, counts, 0.9 + level + noise), 0.0009 * 60)
    steady = measured_wander(Hours(numbers, counts, 0.9 + noise), 0.0009 * 60)

    assert wandering.deviation == pytest.approx(0.03, abs=0.01)
    assert wandering.margin(24) > 0.03
    assert steady.margin(24) < 0.005


def test_a_pattern_of_an_older_baseline_still_holds():
    """Waves that an older version stored become the hours that they described."""
    baseline = learn(np.tile([1.0, 1.0, 1.0, 0.0], 2000), times(6)[:8000])
    assert isinstance(baseline, Baseline)
    stored = {**baseline.to_dict(), "cycle": {"waves": [[1, 0.0, 0.05]]}}
    for name in ("noise", "doubts"):
        del stored[name]

    cycle = Baseline.from_dict(stored).cycle

    assert max(cycle.hours) == pytest.approx(0.05, abs=0.001)
    assert np.argmax(cycle.hours) in (5, 6)
    assert replace(baseline, cycle=cycle).cycle.reach == pytest.approx(0.05, abs=0.001)


def test_one_long_incident_is_no_pattern():
    """Half a bad day in a week does not make these hours bad ones."""
    numbers = np.arange(7 * 24)
    rng = np.random.default_rng(9)
    means = 0.95 - 0.3 * (numbers // 12 == 5) + rng.normal(0, 0.02, len(numbers))

    cycle = fit_hours(Hours(numbers, np.full(len(numbers), 60.0), means), 0.05)

    assert min(cycle.hours, default=0.0) > -0.05
