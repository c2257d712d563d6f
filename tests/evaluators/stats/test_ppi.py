from __future__ import annotations

import random

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings, strategies as st

from oteval.evaluators.stats import ppi_mean


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
