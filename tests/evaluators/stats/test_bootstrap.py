from __future__ import annotations

import math
import random

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings, strategies as st

from oteval.evaluators.stats import (
    bootstrap,
    bootstrap_mean,
    mcnemar,
    paired_permutation,
    ppi_mean,
)

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
    assert found.p_value == pytest.approx(mcnemar(differences.count(-1), differences.count(1)))


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
    values = [chance.random() for _ in range(30)]
    repeated = [[value] * 10 for value in values]
    loose = [[value] for value in values for _ in range(10)]

    once = bootstrap_mean([[value] for value in values])
    clustered, flattened = bootstrap_mean(repeated), bootstrap_mean(loose)

    assert clustered == pytest.approx(once)
    assert clustered.high - clustered.low > 2.5 * (flattened.high - flattened.low)


def test_the_bootstrap_of_equal_values_is_no_point():
    """Equal scores have the interval that their bounds give; without bounds it is everything."""
    low, high = bootstrap_mean([[0.5], [0.5, 0.5], [0.5]])
    assert 0 < low < 0.1
    assert 0.9 < high < 1
    assert bootstrap_mean([[1.0]] * 10) == pytest.approx((0.025**0.1, 1.0))
    assert bootstrap_mean([[3.0]] * 10) == (-math.inf, math.inf)
    with pytest.raises(ValueError, match="at least one cluster"):
        bootstrap_mean([])
    with pytest.raises(ValueError, match="mean of an empty list"):
        bootstrap_mean([[1.0], []])


def test_the_bootstrap_covers_what_it_says():
    """The intervals of 150 samples hold the true mean about as often as they claim."""
    chance = random.Random(11)
    held = 0
    for _ in range(150):
        low, high = bootstrap_mean([[chance.gauss(0, 1)] for _ in range(40)], resamples=400)
        held += low <= 0 <= high

    assert 0.88 <= held / 150 <= 0.99


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.integers(2, 60), st.integers(0, 200))
def test_ppi_without_a_judge_is_the_mean_of_the_labels(seed: int, count: int, others: int):
    """With the judge's weight at 0 the estimate and its exact interval are the labels' own."""
    chance = random.Random(seed)
    labels = [float(chance.random() < 0.6) for _ in range(count)]
    guesses = [chance.random() for _ in range(count)]
    rest = [chance.random() for _ in range(others)]

    found = ppi_mean(labels, guesses, rest, weight=0)

    exact = scipy.stats.binomtest(int(sum(labels)), count).proportion_ci()
    assert found.mean == pytest.approx(np.mean(labels))
    assert found.interval == pytest.approx((exact.low, exact.high), abs=1e-8)


def test_ppi_weights_the_judge_as_the_paper_does():
    """The tuned weight is Cov / ((1 + n/N) Var), and the variance that of the paper."""
    chance = np.random.default_rng(0)
    truth = chance.random(60)
    labels, guesses = truth + chance.normal(0, 0.2, 60), truth + 0.3
    rest = chance.random(600) + 0.3

    found = ppi_mean(list(labels), list(guesses), list(rest))

    pooled = np.var(np.concatenate([guesses, rest]), ddof=1)
    weight = np.cov(labels, guesses)[0, 1] / (1.1 * pooled)
    expected = np.mean(labels) + weight * (np.mean(rest) - np.mean(guesses))
    spread = np.var(labels - weight * guesses, ddof=1) / 60
    spread += weight**2 * np.var(rest, ddof=1) / 600
    assert found.weight == pytest.approx(weight)
    assert found.mean == pytest.approx(expected)
    assert found.interval.high - found.mean == pytest.approx(1.959963985 * spread**0.5)


def test_ppi_corrects_a_biased_judge_and_narrows_the_interval():
    """A judge that is 0.2 too kind does not move the estimate, and helps a little or a lot."""
    chance = random.Random(4)
    held, widths, plain = 0, 0.0, 0.0
    for _ in range(200):
        truth = [float(chance.random() < 0.7) for _ in range(1000)]
        judged = [max(value, float(chance.random() < 0.4)) for value in truth]
        found = ppi_mean(truth[:100], judged[:100], judged[100:])
        held += found.interval.low <= 0.7 <= found.interval.high
        widths += found.interval.high - found.interval.low
        plain += 2 * 1.96 * float(np.std(truth[:100], ddof=1)) / 10

    assert 0.90 <= held / 200 <= 0.99
    assert widths < 0.85 * plain


def test_ppi_refuses_labels_that_do_not_fit():
    """Labels without the judge's value of the same thing, or a single one, correct nothing."""
    with pytest.raises(ValueError, match="2 labels"):
        ppi_mean([1, 0], [1], [1])
    with pytest.raises(ValueError, match="two labels"):
        ppi_mean([1], [1], [1])
    assert ppi_mean([1.0, 0.0], [1.0, 0.0], []).weight == 0
