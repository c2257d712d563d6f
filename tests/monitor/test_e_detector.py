"""The e-detector: the plain recursion, any partition, restarts, and its two guarantees."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.dependent_passes import pass_fail
from oteval.base.errors import InputError
from oteval.monitor.baselines import Baseline, learn
from oteval.monitor.bets import bet_sizes, highest_wealth, wealth
from oteval.monitor.detector import DAY_NS, Floats, Ints, spending
from oteval.monitor.e_detector import EDetector
from oteval.monitor.simulation import delay_of

MINUTE_NS = 60_000_000_000


def plain_wealth(start: Floats, factors: Floats, allowances: Floats) -> Floats:
    """Return the same as `wealth` by its definition, one value after the other."""
    rows = np.empty_like(factors)
    for row, (factor, allowance) in enumerate(zip(factors, allowances, strict=True)):
        start = factor * (start + allowance)
        rows[row] = start
    return rows


def baseline(*, floor: float = 0.93, block: int = 1, mean: float = 0.95) -> Baseline:
    return Baseline(
        size=1000,
        effective_size=1000.0,
        mean=mean,
        variance=mean * (1 - mean),
        floor=floor,
        autocorrelation_time=1.0,
        block=block,
        block_reason="a test",
        dispersion=1.0,
        start_ns=0,
        end_ns=1000 * MINUTE_NS,
    )


def minutes(count: int) -> Ints:
    return (np.arange(count, dtype=np.int64) + 1001) * MINUTE_NS


def make(learned_baseline: Baseline | None = None) -> EDetector:
    return EDetector(learned_baseline or baseline(), spending=spending())


def scores(*parts: tuple[float, int], seed: int = 0, dependence: float = 0.0) -> Floats:
    rng = np.random.default_rng(seed)
    means = np.concatenate([np.full(count, mean) for mean, count in parts])
    return pass_fail(means, dependence, rng)


values_lists = st.lists(st.sampled_from([0.0, 0.25, 0.9, 1.0]), min_size=1, max_size=700)


@given(values_lists, st.floats(0.05, 0.99), st.floats(0.0, 0.9))
def test_prefix_products_equal_the_plain_recursion(
    values: list[float], floor: float, start: float
) -> None:
    """The vectorised wealth is that of the definition, at any length and any start."""
    factors = 1.0 + np.multiply.outer(floor - np.array(values), bet_sizes(floor))
    allowances = np.linspace(0.0, 0.01, len(values))
    begun = np.full(factors.shape[1], start)

    fast, plain = wealth(begun, factors, allowances), plain_wealth(begun, factors, allowances)

    reached = np.minimum.accumulate(plain < 1e90, axis=0)  # wealth far beyond alarms is capped
    np.testing.assert_allclose(fast[reached], plain[reached], rtol=1e-9, atol=1e-280)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 400),
    st.integers(1, 4),
    st.floats(0.0, 1.0) | st.floats(0.85, 1.0),
    st.floats(0.01, 0.99),
)
def test_the_highest_wealth_of_many_runs_equals_that_of_each(
    count: int, runs: int, share: float, floor: float
) -> None:
    """Every run gets the highest mean wealth that its values lead to one after the other."""
    values = (np.random.default_rng(count).random((count, runs)) < share).astype(float)
    sizes = bet_sizes(floor)

    highest = highest_wealth(floor - values, sizes, allowance=0.001)

    for run in range(runs):
        factors = 1.0 + np.multiply.outer(floor - values[:, run], sizes)
        with np.errstate(over="ignore"):
            plain = plain_wealth(np.zeros(len(sizes)), factors, np.full(count, 0.001))
            expected = plain.mean(axis=1).max()
        if expected < 1e90:  # wealth far beyond alarms is capped
            np.testing.assert_allclose(highest[run], expected, rtol=1e-9)
        else:
            assert highest[run] > 1e80


def test_wealth_after_two_values_by_hand():
    """A bet of size 1, floor .9: (0 + .1) * .9 after a pass, (.09 + .1) * 1.9 after a failure."""
    factors = np.array([[1 + 1.0 * (0.9 - 1.0)], [1 + 1.0 * (0.9 - 0.0)]])

    wealth_by_value = wealth(np.zeros(1), factors, np.array([0.1, 0.1]))

    np.testing.assert_allclose(wealth_by_value[:, 0], [0.09, 0.361])


@given(st.floats(0.0, 1.0))
def test_a_bet_never_loses_everything_nor_turns_negative(floor: float) -> None:
    """The largest loss of any bet is 95% of its wealth, for every floor."""
    assert np.all(1.0 + bet_sizes(floor) * (floor - 1.0) >= 0.05 - 1e-12)


@settings(max_examples=30)
@given(st.data())
def test_any_partition_and_restart_give_the_alarms_of_one_pass(data: st.DataObject) -> None:
    """Chunks of any size, with the state through JSON in between, change nothing."""
    block = data.draw(st.sampled_from([1, 2, 3, 7, 30]))
    seed = data.draw(st.integers(0, 5))
    values = scores((0.95, 400), (0.5, 500), (0.97, 1500), (0.6, 300), seed=seed)
    times = minutes(len(values))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=8)))
    whole = make(baseline(block=block))
    expected = whole.update(values, times)

    alarms = []
    state = make(baseline(block=block)).state()
    for first, last in zip([0, *cuts], [*cuts, len(values)], strict=True):
        part = make(baseline(block=block))
        part.restore(json.loads(json.dumps(state)))
        alarms += part.update(values[first:last], times[first:last])
        state = part.state()

    assert alarms == expected
    assert [alarm.kind for alarm in alarms][:2] == ["alert", "recovered"]
    np.testing.assert_allclose(state["wealth"], whole.state()["wealth"], rtol=1e-9)
    assert state["history"] == whole.state()["history"]


def test_false_alarms_stay_within_the_budget_at_the_floor():
    """With the mean at the floor, the worst case, at most one in ten 1,000-score runs alarms."""
    at_floor = baseline(floor=0.93)
    runs_with_alarms = 0
    for seed in range(200):
        detector = EDetector(at_floor, spending=1 / (10_000 * MINUTE_NS))
        alarms = detector.update(scores((0.93, 1000), seed=seed), minutes(1000))
        runs_with_alarms += bool(alarms)

    assert runs_with_alarms <= 20 + 3 * np.sqrt(18)


def test_a_drop_is_found_soon_and_dated():
    """A drop from .95 to .85 is found in about 170 scores, and usually dated right."""
    delays, covered = [], []
    for seed in range(40):
        values = scores((0.95, 1000), (0.85, 3000), seed=seed)
        delay = delay_of(make(), values, minutes(4000), change=1000)
        if delay is not None:
            delays.append(delay.observations)
            covered.append(delay.covered)

    assert len(delays) >= 39
    assert np.mean(delays) < 260
    assert np.mean(covered) > 0.8


def test_an_alert_ends_once_and_starts_over():
    """A deep drop and its fix are one alert and one recovery; the next drop is a new alert."""
    values = scores((0.95, 500), (0.4, 400), (0.96, 2000), (0.4, 300))
    detector = make()

    alarms = detector.update(values, minutes(len(values)))

    assert [alarm.kind for alarm in alarms] == ["alert", "recovered", "alert"]
    assert 500 <= alarms[0].index < 520
    assert 900 <= alarms[1].index < 1100
    assert 2900 <= alarms[2].index < 2920
    assert alarms[1].change_from_ns <= minutes(901)[-1] <= alarms[1].change_to_ns
    assert detector.alerting
    assert detector.evidence == 1.0


def test_evidence_grows_before_the_alert():
    """Evidence is 0 to 1, small while all is well, and larger after failures."""
    detector = make()
    detector.update(np.ones(500), minutes(500))
    calm = detector.evidence
    detector.update(np.zeros(3), minutes(503)[-3:])

    assert 0.0 <= calm < 0.5 < detector.evidence < 1.0


def test_a_group_without_an_allowance_never_alarms():
    """Without an allowance there is nothing to bet with, and the evidence is 0."""
    detector = EDetector(baseline(), spending=0.0)

    assert detector.update(np.zeros(500), minutes(500)) == []
    assert detector.evidence == 0.0


def test_traffic_does_not_change_what_a_period_may_spend():
    """Ten times the traffic earns the same allowance in the same time."""
    slow, fast = make(), make()
    slow.update(np.ones(10), minutes(10))
    fast.update(np.ones(100), minutes(10).repeat(10))

    earned = slow.spending * MINUTE_NS
    assert slow.state()["wealth"][0] < 10 * earned
    assert fast.state()["wealth"][0] < 10 * earned


def test_a_silent_night_does_not_arm_the_detector():
    """After ten days of silence, the first three failures raise no alert."""
    detector = make()
    detector.update(np.ones(100), minutes(100))

    assert detector.update(np.zeros(2), minutes(102)[-2:] + 10 * DAY_NS) == []


def test_the_length_of_blocks_may_change_between_updates():
    """A new length of blocks takes effect at the next update, and loses no observation."""
    detector = make(baseline(block=30))
    detector.update(np.ones(100), minutes(100))
    detector.baseline = baseline(block=3)

    alarms = detector.update(np.zeros(60), minutes(160)[-60:])

    assert [alarm.kind for alarm in alarms] == ["alert"]
    assert 100 <= alarms[0].index < 115


@pytest.mark.parametrize("value", [float("nan"), -0.1, 1.1, float("inf")])
def test_values_outside_are_refused(value: float) -> None:
    """NaN and values outside [0, 1] are an error that names them, and change nothing."""
    detector = make()
    before = detector.state()

    with pytest.raises(InputError, match=r"observation 1 is .*between 0 and 1"):
        detector.update([1.0, value], [1, 2])

    assert detector.state() == before


def test_times_must_match_values():
    """One time for each value."""
    with pytest.raises(InputError, match="one time for each value"):
        make().update([1.0, 1.0], [1])


def test_no_observations_change_nothing():
    """An empty update is allowed."""
    detector = make()

    assert detector.update([], []) == []
    assert detector.state()["index"] == 0


def test_equal_values_never_alarm():
    """A group that always has the baseline's value stays ok, whatever the value is."""
    for value in (0.0, 0.3, 1.0):
        values = np.full(4000, value)
        learned = learn(values, np.arange(4000) * 600_000_000_000)
        assert isinstance(learned, Baseline)
        detector = make(learned)
        assert detector.update(values, minutes(4000) + learned.end_ns) == []
