"""The daily cycle: found where it is, not where hours are random, and followed by the detector."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.dependent_passes import pass_fail
from oteval.monitor.baselines import Baseline, learn, review
from oteval.monitor.bets import DROPS, bet_sizes
from oteval.monitor.cycle import NO_CYCLE, WeeklyCycle, fit_cycle, may_have_cycle
from oteval.monitor.detector import DAY_NS, Floats, Ints, spending
from oteval.monitor.e_detector import EDetector
from oteval.monitor.simulation import delay_of

MINUTE_NS = 60_000_000_000


def clock(count: int, *, each: float = 0.5) -> Ints:
    return (np.arange(count) * each * MINUTE_NS).astype(np.int64)


def sine(times: Ints, amplitude: float = 0.04, *, periods: int = 1) -> Floats:
    return amplitude * np.sin(2 * np.pi * periods * times / DAY_NS)


def learned(values: Floats, times: Ints) -> Baseline:
    baseline = learn(values, times)
    assert isinstance(baseline, Baseline)
    return baseline


def test_a_daily_sine_is_found_and_removed():
    """The cycle follows the sine down, and 0.7 of it up."""
    times = clock(12_000)
    values = pass_fail(0.9 + sine(times, 0.08), 0.0, np.random.default_rng(0))

    cycle = fit_cycle(values, times, 1.0)

    assert max(cycle.hours) == pytest.approx(0.056, abs=0.01)
    assert min(cycle.hours) == pytest.approx(-0.08, abs=0.012)
    assert 4 <= np.argmax(cycle.hours) <= 7
    left = cycle.removed(values, times)
    assert np.polyfit(sine(times, 1.0), left, 1)[0] == pytest.approx(0.012, abs=0.01)
    assert cycle.reach == -min(cycle.hours)


def test_two_peaks_a_day_are_a_wave_of_half_a_day():
    """A cycle may have morning and evening peaks."""
    times = clock(12_000)
    values = pass_fail(0.9 + sine(times, 0.08, periods=2), 0.0, np.random.default_rng(1))

    hours = np.array(fit_cycle(values, times, 1.0).hours)

    assert hours[:12] == pytest.approx(hours[12:], abs=0.03)
    assert np.ptp(hours[:12]) > 0.1


def test_random_hours_and_incidents_are_not_a_cycle():
    """Hours that differ by chance, or one bad hour, do not repeat from day to day."""
    times = clock(12_000)
    hours = np.arange(12_000) // 120
    for seed in range(20):
        rng = np.random.default_rng(seed)
        shifts = rng.uniform(-0.04, 0.04, 100)[hours]
        incident = np.where(hours == 30, -0.5, 0.0)
        for means in (np.full(12_000, 0.95), 0.95 + shifts, 0.95 + incident):
            values = pass_fail(means, 0.0, rng)
            assert fit_cycle(values, times, 1.0) == NO_CYCLE


def test_a_wave_that_stands_out_on_the_first_day_asks_for_a_second_one():
    """At one value a minute, a sine of .04 is seen by its wave rather than by its hours."""
    times = clock(1500, each=1)
    rng = np.random.default_rng(2)
    suspicions = [
        may_have_cycle(pass_fail(0.95 + sine(times) * size, 0.0, rng), times, 1.0)
        for size in (1, 0)
        for _ in range(50)
    ]

    assert sum(suspicions[:50]) > 35
    assert sum(suspicions[50:]) < 5


def test_values_in_few_hours_of_the_day_show_no_cycle():
    """From working hours alone, nothing is concluded about the night."""
    times = clock(12_000)
    values = pass_fail(0.9 + sine(times, 0.08), 0.0, np.random.default_rng(3))
    working = (times % DAY_NS) // (DAY_NS // 24) < 10

    assert fit_cycle(values[working], times[working], 1.0) == NO_CYCLE
    assert fit_cycle(values[:1], times[:1], 1.0) == NO_CYCLE
    assert not may_have_cycle(values[:1], times[:1], 1.0)


@given(st.floats(0.0, 1.0), st.floats(0.0, 0.5))
def test_no_bet_loses_everything_at_the_top_of_a_cycle(floor: float, reach: float) -> None:
    """A value less its cycle may be above 1; the largest loss is 95% even then."""
    sizes = bet_sizes(floor, DROPS, reach=reach)

    assert np.all(1.0 + sizes * (floor - 1.0 - reach) >= 0.05 - 1e-12)


def test_the_floor_follows_the_time_of_day():
    """A daily sine raises no alarm in its low hours; a drop in its high hours is found sooner."""
    times = clock(30_000)
    rng = np.random.default_rng(4)
    means = 0.92 + sine(times, 0.07)
    values = pass_fail(means, 0.0, rng)
    baseline = learned(values[:8000], times[:8000])
    assert baseline.cycle.hours
    size = baseline.size
    allowance = spending()

    assert EDetector(baseline, spending=allowance).update(values[size:], times[size:]) == []

    high = int(np.flatnonzero(sine(times[size:], 1.0) > 0.7)[0])
    lowered = np.concatenate([values[: size + high], pass_fail(means[size + high :] - 0.1, 0, rng)])
    delay = delay_of(
        EDetector(baseline, spending=allowance), lowered[size:], times[size:], change=high
    )
    assert delay is not None
    assert delay.observations < 250
    assert delay.covered


def test_a_review_does_not_take_the_cycle_for_a_decline():
    """Low hours of the cycle are not below the floor."""
    times = clock(30_000)
    values = pass_fail(0.92 + sine(times, 0.07), 0.0, np.random.default_rng(6))
    baseline = learned(values[:8000], times[:8000])
    wave = sine(times, 1.0)
    low = np.flatnonzero((wave > -0.8) & (wave < -0.2))[-2000:]

    assert values[low].mean() < baseline.floor
    assert review(baseline, values[low], times[low]) is not baseline


@settings(max_examples=20)
@given(st.data())
def test_any_partition_gives_the_alarms_of_one_pass_with_a_cycle(data: st.DataObject) -> None:
    """The cycle depends on the times alone, so cuts and restarts change nothing."""
    times = clock(3000) + 1001 * MINUTE_NS
    block = data.draw(st.sampled_from([1, 3, 7]))
    base = Baseline(
        size=1000,
        effective_size=1000.0,
        mean=0.9,
        variance=0.09,
        floor=0.88,
        autocorrelation_time=1.0,
        block=block,
        block_reason="a test",
        dispersion=1.0,
        start_ns=0,
        end_ns=1000 * MINUTE_NS,
        cycle=WeeklyCycle(tuple(np.linspace(-0.06, 0.04, 24).tolist()), (0.0,) * 5 + (-0.02,) * 2),
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 5)))
    means = np.repeat([0.9, 0.5, 0.97, 0.4], [500, 500, 1600, 400])
    values = pass_fail(means, 0.0, rng)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=8)))
    allowance = spending()
    expected = EDetector(base, spending=allowance).update(values, times)
    assert [alarm.kind for alarm in expected] == ["alert", "recovered", "alert"]

    alarms = []
    state = EDetector(base, spending=allowance).state()
    for first, last in zip([0, *cuts], [*cuts, len(values)], strict=True):
        stored = Baseline.from_dict(json.loads(json.dumps(base.to_dict())))
        part = EDetector(stored, spending=allowance)
        part.restore(json.loads(json.dumps(state)))
        alarms += part.update(values[first:last], times[first:last])
        state = part.state()
    assert alarms == expected
