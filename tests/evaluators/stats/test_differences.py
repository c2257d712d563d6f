from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from oteval.evaluators.stats import (
    clopper_pearson,
    detectable_difference,
    difference_interval,
    difference_p_value,
    more_pairs_needed,
    sign_test,
)
from oteval.evaluators.stats.dirichlet import mean_quantile, mean_tail, weighted_values

Draw = Callable[[random.Random], float]


def rare_losses(chance: random.Random) -> float:
    return -0.38 if chance.random() < 0.05 else 0.02


def rare_failures(chance: random.Random) -> float:
    return -0.95 if chance.random() < 0.05 else chance.gauss(0.05, 0.03)


def rare_gains(chance: random.Random) -> float:
    return -rare_losses(chance)


def repeated(chance: random.Random) -> float:
    return sum((chance.random() < 0.9) - (chance.random() < 0.9) for _ in range(3)) / 3


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=80))
@settings(max_examples=60)
def test_the_p_value_of_passes_is_mcnemars(differences: list[float]):
    """Of passes and fails, the procedure is the exact McNemar test."""
    expected = sign_test(differences.count(1), differences.count(-1))

    assert difference_p_value(differences, bounded=True) == pytest.approx(expected)


@given(st.integers(0, 90), st.integers(0, 90))
@settings(max_examples=60)
def test_the_bound_of_a_share_is_clopper_pearsons(passed: int, failed: int):
    """The same weights give the exact interval of a share."""
    if not passed:
        return
    values = weighted_values([1.0] * passed + [0.0] * failed, extra=0.0)

    expected = clopper_pearson(passed, passed + failed)

    assert mean_quantile(values, 0.025) == pytest.approx(expected.low, abs=1e-7)


@pytest.mark.parametrize("count", [3, 40, 500])
def test_the_tail_of_a_weighted_mean_is_that_of_draws(count: int):
    """The inversion, and the approximation for many values, agree with random weights."""
    draw = np.random.default_rng(count)
    sample = draw.normal(0.1, 0.3, count)
    values = weighted_values(sample.tolist(), extra=-1.0)
    weights = draw.exponential(size=(8_000, count + 1))
    means = weights @ np.append(sample, -1.0) / weights.sum(axis=1)

    for probability in (0.025, 0.3, 0.9):
        bound = mean_quantile(values, probability)

        assert mean_tail(values, bound) == pytest.approx(probability, abs=1e-6)
        assert float(np.mean(means <= bound)) == pytest.approx(probability, abs=0.02)


@given(
    st.lists(st.integers(-20, 20).map(lambda n: n / 20), min_size=1, max_size=30),
    st.sampled_from([0.8, 0.95, 0.99]),
    st.sampled_from([-0.3, 0.0, 0.05]),
)
@settings(max_examples=60)
def test_interval_and_p_value_are_of_one_procedure(
    differences: list[float], confidence: float, null: float
):
    """The interval excludes a value exactly if its p-value is small, and holds the mean."""
    interval = difference_interval(differences, bounded=True, confidence=confidence)
    p_value = difference_p_value(differences, bounded=True, null=null)

    assert interval is not None
    assert p_value is not None
    assert -1 <= interval.low <= sum(differences) / len(differences) + 1e-12
    assert sum(differences) / len(differences) - 1e-12 <= interval.high <= 1
    if abs(p_value - (1 - confidence)) > 1e-9:
        assert (p_value <= 1 - confidence) == (not interval.low <= null <= interval.high)


@pytest.mark.parametrize("draw", [rare_losses, rare_failures, rare_gains, repeated])
@pytest.mark.parametrize("pairs", [10, 20, 60])
def test_skewed_differences_of_mean_0_are_no_improvement(draw: Draw, pairs: int):
    """Small gains on most examples are no improvement, where a sample may lack the losses."""
    chance = random.Random(f"{draw.__name__} {pairs}")
    samples = [[draw(chance) for _ in range(pairs)] for _ in range(100)]

    p_values = [difference_p_value(sample, bounded=True) or 0.0 for sample in samples]

    assert sum(p <= 0.05 for p in p_values) <= 6


@pytest.mark.parametrize(
    ("shift", "deviation", "pairs", "least"),
    [(0.1, 0.1, 60, 0.9), (0.15, 0.3, 60, 0.8), (0.05, 0.05, 100, 0.9)],
)
def test_a_shift_of_scores_is_found(shift: float, deviation: float, pairs: int, least: float):
    """The price of assuming nothing is paid with few examples."""
    chance = random.Random(pairs)
    detections = 0
    for _ in range(30):
        sample = [max(-1, min(1, chance.gauss(shift, deviation))) for _ in range(pairs)]
        detections += (difference_p_value(sample, bounded=True) or 0) <= 0.05

    assert detections / 30 >= least


def test_unbounded_differences_need_sixty_pairs():
    """Fewer ones may all lack a difference that occurs in 5% of the pairs, or be nearly equal."""
    chance = random.Random(4)
    sample = [chance.gauss(2, 1) for _ in range(60)]

    assert difference_interval(sample[:59], bounded=False) is None
    assert difference_p_value(sample[:59], bounded=False) is None
    assert detectable_difference(sample[:59], bounded=False) == math.inf
    assert more_pairs_needed(59, bounded=False) == 1
    low, high = difference_interval(sample, bounded=False)  # type: ignore[misc]
    assert 1 < low < 2 < high < 3
    assert difference_interval([3.0] * 200, bounded=False) is None
    assert detectable_difference([3.0] * 200, bounded=False) == math.inf


@pytest.mark.parametrize(("pairs", "deviation"), [(20, 0.2), (60, 0.1), (150, 0.3)])
def test_a_detectable_difference_is_found_four_times_in_five(pairs: int, deviation: float):
    """A sample without a difference tells which one would be found."""
    chance = random.Random(pairs)
    least = detectable_difference([chance.gauss(0, deviation) for _ in range(pairs)], bounded=True)
    detections = 0
    for _ in range(60):
        sample = [max(-1, min(1, chance.gauss(least, deviation))) for _ in range(pairs)]
        detections += (difference_p_value(sample, bounded=True) or 0) <= 0.05

    assert 0.65 <= detections / 60 <= 0.97
    assert detectable_difference([0.1] * 5, bounded=True) == math.inf
