"""Baselines: when they are learned, their floor, dependence, and the length of blocks."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.dependent_passes import pass_fail
from oteval.monitor.autocorrelation import (
    alarm_share,
    autocorrelation_time,
    autocorrelations,
    choose_block,
    is_unsteady,
    long_run_ratio,
    low_runs,
    resampled,
    slow_deviation,
)
from oteval.monitor.baselines import Baseline, Learning, LearningRules, learn, lower_bound, review
from oteval.monitor.cycle import WeeklyCycle
from oteval.monitor.detector import DAY_NS, Floats, Ints

MINUTE_NS = 60_000_000_000


def chain(count: int, dependence: float, *, mean: float = 0.95, seed: int = 0) -> Floats:
    return pass_fail(np.full(count, mean), dependence, np.random.default_rng(seed))


def clock(count: int, *, each: float = 1.0) -> Ints:
    return (np.arange(count) * each * MINUTE_NS).astype(np.int64)


def learned(values: Floats, times: Ints) -> Baseline:
    baseline = learn(values, times)
    assert isinstance(baseline, Baseline)
    return baseline


def test_autocorrelations_equal_the_definition():
    """The Fourier transform gives the sums of products over the sum of squares."""
    values = np.random.default_rng(1).random(50)
    centred = values - values.mean()
    expected = [centred[lag:] @ centred[: 50 - lag] / (centred @ centred) for lag in range(50)]

    np.testing.assert_allclose(autocorrelations(values), expected, atol=1e-12)


@pytest.mark.parametrize(("dependence", "time"), [(0.0, 1.0), (0.3, 1.86), (0.6, 4.0), (0.9, 19.0)])
def test_autocorrelation_time_of_a_chain(dependence: float, time: float) -> None:
    """A chain that keeps its value with probability r has the time (1 + r) / (1 - r)."""
    chain_times = [autocorrelation_time(chain(20_000, dependence, seed=seed)) for seed in range(8)]

    assert np.mean(chain_times) == pytest.approx(time, rel=0.2)


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 500, [0.0] * 7])
def test_dependence_of_equal_values(values: list[float]) -> None:
    """Where nothing varies, the time is 1 and nothing fails."""
    assert autocorrelation_time(np.array(values)) == 1.0
    assert long_run_ratio(np.array(values)) == 1.0
    assert low_runs(np.array(values)) == 0


def test_runs_of_low_values():
    """Ten failures in one run are one incident."""
    assert low_runs(np.array([0, 0, 1, 1, 0, 1, 0.0])) == 3


def test_slow_variation_is_seen_and_is_not_dependence():
    """A daily sine of .04 raises the slow deviation, not the length of blocks by much."""
    times = clock(7200, each=0.2)
    means = 0.95 + 0.04 * np.sin(2 * np.pi * times / 8.64e13)
    rng = np.random.default_rng(3)
    steady, sine = pass_fail(np.full(7200, 0.95), 0.0, rng), pass_fail(means, 0.0, rng)

    assert slow_deviation(steady, 1.0) < 0.015
    assert not is_unsteady(steady, 1.0)
    assert is_unsteady(sine, 1.0)
    assert slow_deviation(sine, 1.0) > 0.02
    assert autocorrelation_time(sine) < 2.5


def test_wilson_by_a_known_value():
    """Wilson's lower bound of 95 of 100 is 0.888."""
    assert lower_bound(0.95, 100) == pytest.approx(0.8882, abs=5e-4)
    assert lower_bound(0.0, 100) == 0.0


def test_three_hundred_observations_of_one_hour_are_not_enough():
    """A baseline covers a day, because one hour may be a good or a bad one."""
    learning = learn(chain(1000, 0.0), clock(1000, each=0.2))

    assert isinstance(learning, Learning)
    assert learning.reason == "3.2 of 24 hours"


def test_few_observations_say_how_many_are_missing():
    """With fewer than 300 observations, the reason says so."""
    learning = learn(chain(120, 0.0), clock(120, each=60))

    assert isinstance(learning, Learning)
    assert learning.reason == "120 of 300 effective observations"


def test_a_group_without_failures_says_how_its_observations_count():
    """Failures that are absent show no dependence: ten observations count as one."""
    learning = learn(np.ones(1000), clock(1000, each=6))

    assert isinstance(learning, Learning)
    assert learning.reason.startswith("96 of 300 effective observations (955; 10 count as one")
    assert isinstance(learn(np.ones(3100), clock(3100)), Baseline)


@pytest.mark.parametrize("values", [np.ones(1000), chain(1000, 0.0)])
def test_all_observations_of_a_chosen_time_are_learned_from(values: Floats) -> None:
    """However they are spread over the time: the last tenth may take most of it."""
    times = np.concatenate([clock(900, each=1), 900 * MINUTE_NS + clock(100, each=600)])

    baseline = learn(values, times, LearningRules(effective=20), is_chosen=True)

    assert isinstance(baseline, Baseline)
    assert baseline.size == 1000


def test_no_observations_are_not_an_error():
    """A group without observations is learning."""
    assert learn([], []) == Learning(0, 0.0, 0, "no observations")


def test_dependence_takes_longer_to_learn():
    """The effective number counts, so a dependent group needs several times the observations."""
    times = clock(30_000)
    independent, dependent = (learned(chain(30_000, r, seed=4), times) for r in (0.0, 0.9))

    assert independent.size < 2500
    assert dependent.size > 5000
    assert dependent.effective_size >= 300


def test_a_steady_baseline_gets_a_floor_nearer_to_its_mean():
    """With much data and no slow variation, the floor is .01 below the mean; else lower."""
    times = clock(16_000, each=0.2)
    rng = np.random.default_rng(5)
    shifts = rng.uniform(-0.05, 0.05, 54)[np.arange(16_000) // 300]
    calm = learned(pass_fail(np.full(16_000, 0.95), 0.0, rng), times)
    unsteady = learned(pass_fail(0.95 + shifts, 0.0, rng), times)

    assert calm.mean - calm.floor < 0.011
    assert 0.012 < unsteady.mean - unsteady.floor < 0.025


def test_only_a_group_that_varies_from_hour_to_hour_learns_for_two_days():
    """A steady group learns for a day; where hours differ, the second day is waited for."""
    times = clock(16_000, each=0.2)
    rng = np.random.default_rng(6)
    shifts = rng.uniform(-0.04, 0.04, 54)[np.arange(16_000) // 300]
    for means, days in (
        (np.full(16_000, 0.95), 1),
        (0.95 + shifts, 2),
        (0.95 + 0.04 * np.sin(2 * np.pi * times / DAY_NS), 2),
    ):
        baseline = learned(pass_fail(means, 0.0, rng), times)
        assert days <= (baseline.end_ns - baseline.start_ns) / DAY_NS < days + 0.25

    waiting = learn(pass_fail((0.95 + shifts)[:8000], 0.0, rng), times[:8000])
    assert isinstance(waiting, Learning)
    assert waiting.reason == "26.1 of 48 hours, since hours differ from each other"


def test_after_two_weeks_learning_ends_with_the_bound_reached():
    """A slow, perfect group does not learn for months; its floor is wide instead."""
    baseline = learned(np.ones(400), clock(400, each=60))

    assert baseline.end_ns - baseline.start_ns >= 14 * 86_400 * 10**9
    assert baseline.floor < 0.93
    assert baseline.block == 10
    assert baseline.block_reason == "0 failures are too few to see dependence"


@settings(max_examples=10)
@given(st.integers(1, 2500))
def test_a_baseline_does_not_depend_on_how_much_more_is_there(more: int) -> None:
    """The first observations that suffice decide, however many arrive at once."""
    values, times = chain(5000, 0.3, seed=6), clock(5000)
    expected = learned(values, times)
    size = min(5000, expected.size + more)

    assert learned(values[:size], times[:size]) == expected


def test_sizes_tried_before_are_skipped_with_the_same_result():
    """The size of an earlier attempt saves time and changes nothing."""
    values, times = chain(5000, 0.3, seed=7), clock(5000)
    early = learn(values[:900], times[:900])
    assert isinstance(early, Learning)

    assert learn(values, times, tried=early.size) == learn(values, times)
    assert learn(values[:900], times[:900], tried=early.size) == early


def test_a_baseline_survives_json():
    """A baseline is the same after storage, with its daily cycle or without one."""
    steady = learned(chain(3000, 0.0), clock(3000))
    daily = replace(steady, cycle=WeeklyCycle((0.01,) * 24, (-0.01,) * 7))

    for baseline in (steady, daily):
        assert Baseline.from_dict(json.loads(json.dumps(baseline.to_dict()))) == baseline


def test_the_rules_may_be_changed():
    """Fewer observations and a shorter time, for who accepts them."""
    rules = LearningRules(effective=100, span_ns=60 * MINUTE_NS, margin=0.1)
    baseline = learn(chain(200, 0.0, mean=0.8), clock(200), rules)

    assert isinstance(baseline, Baseline)
    assert baseline.size < 200


def test_independent_scores_get_blocks_of_one():
    """The usual case has no blocks, and the reason says why."""
    values = chain(3000, 0.0, seed=8)

    assert choose_block(values, time=1.0, floor=0.93) == (
        1,
        "neighbours do not depend on each other",
    )


def test_dependent_scores_get_blocks_of_two_autocorrelation_times():
    """The length of blocks grows with dependence."""
    sizes = [learned(chain(40_000, r, seed=9), clock(40_000)).block for r in (0.0, 0.3, 0.6, 0.9)]

    assert sizes == sorted(sizes)
    assert sizes[0] <= 3
    assert 3 <= sizes[1] <= 8
    assert 5 <= sizes[2] <= 16
    assert 15 <= sizes[3] <= 90


def test_the_bootstrap_raises_blocks_that_would_break_the_budget():
    """Where the estimated dependence is too small, false alarms on the resampled baseline tell."""
    values = chain(4000, 0.6, seed=10)
    floor = values.mean() - 0.02

    assert alarm_share(values, size=1, time=4.0, floor=floor) > 0.5
    assert alarm_share(values, size=10, time=4.0, floor=floor) < 0.3
    size, reason = choose_block(values, time=1.0, floor=floor)
    assert size > 1
    assert "raised from 1" in reason


def test_few_failures_do_not_prove_independence():
    """With fewer than 60 failures blocks are at least 3, with fewer than 8 at least 10."""
    some = np.ones(600)
    some[::30] = 0.0
    none = np.ones(600)

    assert choose_block(some, time=1.0, floor=0.94)[0] == 3
    assert choose_block(none, time=1.0, floor=0.98)[0] == 10


def test_resampling_keeps_stretches():
    """Neighbours of the resampled values are neighbours of the original, but for the joints."""
    values = np.arange(1000.0)
    drawn = resampled(values, stretch=20, size=400, rng=np.random.default_rng(0))

    assert len(drawn) == 400
    assert np.sum(np.diff(drawn) == 1.0) >= 380


def test_a_review_changes_blocks_only():
    """Later observations with dependence make blocks longer, at most twice; the floor stays."""
    baseline = learned(chain(3000, 0.0, seed=11), clock(3000))
    later = chain(8000, 0.6, seed=12)

    reviewed = review(baseline, later, clock(8000))

    assert reviewed.block == 2 * baseline.block
    assert (reviewed.mean, reviewed.floor) == (baseline.mean, baseline.floor)
    assert "8,000 later observations" in reviewed.block_reason


def test_a_decline_is_not_learned_away():
    """Observations below the floor, or too few of them, leave the baseline as it is."""
    baseline = learned(chain(3000, 0.0, seed=13), clock(3000))

    assert review(baseline, chain(8000, 0.6, mean=0.85, seed=14), clock(8000)) is baseline
    assert review(baseline, chain(100, 0.6, seed=15), clock(100)) is baseline
    assert review(baseline, [], []) is baseline
