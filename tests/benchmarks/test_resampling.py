from __future__ import annotations

import random

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, strategies as st

from benchmarks.resampling import bootstrap, paired_permutation
from oteval.evaluators.stats import sign_test

# Halves are exact in binary, so that equal sums are equal.
DIFFERENCES = st.lists(st.integers(-8, 8).map(lambda n: n / 2), max_size=11)


def _mean(values: object) -> float:
    return float(np.mean(values))


@given(DIFFERENCES)
def test_the_permutation_test_counts_every_assignment(differences: list[float]):
    """The p-value is scipy's over all 2^n sign flips."""
    found = paired_permutation(differences)

    assert found.exact
    if any(differences) and len(differences) > 1:
        expected = scipy.stats.permutation_test(
            (np.array(differences),),
            lambda x, axis: np.abs(np.sum(x, axis=axis)),
            permutation_type="samples",
            n_resamples=np.inf,
            alternative="greater",
            vectorized=True,
        ).pvalue
        assert found.p_value == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), max_size=60))
def test_the_permutation_test_of_passes_is_mcnemars(differences: list[float]):
    """Of pass/fail differences the sign-flip test is the exact McNemar test, at any size."""
    found = paired_permutation(differences)

    assert found.exact
    assert found.p_value == pytest.approx(sign_test(differences.count(1), differences.count(-1)))


def test_no_difference_is_no_evidence():
    """Without any difference, or with a single one, the p-value is 1."""
    assert paired_permutation([]) == paired_permutation([0.0, 0.0]) == (1, True)
    assert paired_permutation([0.5]).p_value == 1


@given(DIFFERENCES, st.randoms(use_true_random=False))
def test_the_permutation_test_has_no_direction_or_order(
    differences: list[float], chance: random.Random
):
    """Neither swapping the sides nor shuffling the pairs changes the p-value."""
    shuffled = differences.copy()
    chance.shuffle(shuffled)

    found = paired_permutation(differences).p_value
    assert paired_permutation([-value for value in shuffled]).p_value == pytest.approx(found)


def test_many_differences_are_drawn_close_to_the_exact_value():
    """Beyond 30 differences the drawn p-value is near that of the normal limit, and repeatable."""
    chance = random.Random(1)
    differences = [chance.gauss(0.15, 1) for _ in range(200)]
    z = sum(differences) / sum(value * value for value in differences) ** 0.5

    found = paired_permutation(differences, resamples=20_000, seed=3)

    assert not found.exact
    assert found.p_value == pytest.approx(2 * scipy.stats.norm.sf(abs(z)), abs=0.012)
    assert paired_permutation(differences, resamples=20_000, seed=3) == found
    assert paired_permutation([1 + d / 1e3 for d in differences]).p_value == 1 / 10_001


@pytest.mark.parametrize("above", [0, 100, 200, 400])
def test_very_many_differences_have_nearly_the_exact_p_value(above: int):
    """Differences of 0.5 and 1, whose sum has only some values, are close to the exact test."""
    halves, ones = 4_000 + above, 3_000
    differences = [0.5] * halves + [-0.5] * (8_000 - halves) + [1.0] * 1_500 + [-1.0] * 1_500
    observed = sum(differences)
    count = np.arange(ones + 1)
    # The least number of positive halves with which the sum is reached.
    least = np.ceil(observed - 2 * count + ones + 4_000)
    beyond = scipy.stats.binom.sf(least - 1, 8_000, 0.5)
    exact = 2 * float(np.sum(scipy.stats.binom.pmf(count, ones, 0.5) * beyond))

    found = paired_permutation(differences)

    assert not found.exact
    assert found.p_value == pytest.approx(min(1.0, exact), abs=0.005)


def test_a_difference_that_is_no_number_is_refused():
    """NaN would silently lose every comparison."""
    with pytest.raises(ValueError, match="finite"):
        paired_permutation([1.0, float("nan")])


@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_the_bootstrap_is_scipys_but_for_chance(method: str):
    """On skewed data both ends agree with scipy's within the noise of resampling."""
    chance = random.Random(5)
    values = [chance.expovariate(1) for _ in range(40)]
    expected = scipy.stats.bootstrap(
        (values,), np.mean, method=method, n_resamples=20_000, rng=np.random.default_rng(0)
    ).confidence_interval

    found = bootstrap(values, _mean, method=method, resamples=6_000)

    assert found == pytest.approx((expected.low, expected.high), abs=0.03)


def test_the_bootstrap_draws_whole_examples():
    """Ten equal repetitions of an example tell no more than one, so the interval stays wide."""
    chance = random.Random(2)
    examples = [[chance.random()] * 10 for _ in range(30)]
    loose = [values[:1] for values in examples for _ in range(10)]

    once = bootstrap([values[:1] for values in examples], _mean)
    clustered, flattened = bootstrap(examples, _mean), bootstrap(loose, _mean)

    assert clustered == pytest.approx(once)
    assert clustered.high - clustered.low > 2.5 * (flattened.high - flattened.low)


def test_a_bootstrap_of_nothing_is_refused():
    """Without clusters there is nothing to draw."""
    with pytest.raises(ValueError, match="at least one cluster"):
        bootstrap([], _mean)


def test_the_bootstrap_covers_what_it_says():
    """The intervals of 150 samples hold the true mean about as often as they claim."""
    chance = random.Random(11)
    held = 0
    for _ in range(150):
        low, high = bootstrap([chance.gauss(0, 1) for _ in range(40)], _mean, resamples=400)
        held += low <= 0 <= high

    assert 0.88 <= held / 150 <= 0.99
