from __future__ import annotations

import math
from itertools import combinations

import pytest
import scipy.special
import scipy.stats
from hypothesis import given, strategies as st

from oteval.evaluators.stats import (
    benjamini_hochberg,
    clopper_pearson,
    fisher_exact,
    minimal_detectable_share,
    pass_at_k,
    pass_hat_k,
    pass_rate,
    sign_test,
)
from oteval.evaluators.stats.rates import beta_quantile

SHARES = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
COUNTS = st.integers(0, 300)


@given(SHARES, st.floats(0.5, 0.999))
def test_the_interval_of_a_share_is_scipys(share: tuple[int, int], confidence: float):
    """The interval is the exact one of scipy at every size and confidence."""
    expected = scipy.stats.binomtest(*share).proportion_ci(confidence)

    assert clopper_pearson(*share, confidence) == pytest.approx(
        (expected.low, expected.high), abs=1e-9
    )


@given(SHARES)
def test_the_interval_holds_the_share_and_stays_inside(share: tuple[int, int]):
    """The interval contains the share itself and never leaves 0 to 1."""
    low, high = clopper_pearson(*share)

    assert 0 <= low <= share[0] / share[1] <= high <= 1
    assert low < high


def test_the_interval_of_nothing_is_everything():
    """Without tries nothing is known; more successes than tries is refused."""
    assert clopper_pearson(0, 0) == (0, 1)
    with pytest.raises(ValueError, match="5 of 4: successes must be"):
        clopper_pearson(5, 4)


@given(st.floats(-2, 6), st.floats(-2, 6), st.floats(1e-6, 1 - 1e-6))
def test_quantiles_of_the_beta_distribution_are_scipys(a: float, b: float, probability: float):
    """They are exact for shapes far below 1 and of a million."""
    expected = scipy.special.betaincinv(10**a, 10**b, probability)

    assert beta_quantile(probability, 10**a, 10**b) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_an_error_counts_in_the_rate_and_alone_gives_none():
    """A run that an evaluator failed on did not pass; without any verdict the rate is unknown."""
    rate = pass_rate(2, 1, 1)

    assert (rate.value, rate.interval) == (0.5, clopper_pearson(2, 4))
    assert pass_rate(0, 0, 3) == (None, 0.0, 1.0)
    assert pass_rate(0, 0, 3).interval is None


@given(COUNTS, COUNTS)
def test_the_sign_test_is_scipys_binomial_test(above: int, below: int):
    """The p-value is that of the exact two-sided binomial test."""
    expected = scipy.stats.binomtest(above, above + below).pvalue if above + below else 1.0

    assert sign_test(above, below) == pytest.approx(expected, rel=1e-9)


def test_the_sign_test_does_not_underflow_to_nonsense():
    """Thousands of differences of one sign have a p-value of about 0, and no error."""
    assert 0 <= sign_test(5000, 0) < 1e-300
    assert sign_test(5000, 5000) == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_benjamini_hochberg_is_statsmodels(p_values: list[float]):
    """The adjusted p-values are those of statsmodels, in the same order."""
    from statsmodels.stats.multitest import multipletests

    expected = multipletests(p_values, method="fdr_bh")[1]

    assert benjamini_hochberg(p_values) == pytest.approx(list(expected), abs=1e-12)


def test_benjamini_hochberg_refuses_what_is_no_p_value():
    """A value outside 0 to 1 is an error; no values are no work."""
    with pytest.raises(ValueError, match="p-value"):
        benjamini_hochberg([0.5, 1.5])
    assert benjamini_hochberg([]) == []


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_pass_at_k_and_pass_hat_k_count_every_choice(case: tuple[int, int]):
    """Both are what counting all choices of k samples gives: any passed, all passed."""
    samples, passed = case
    outcomes = [True] * passed + [False] * (samples - passed)
    for k in range(1, samples + 1):
        choices = list(combinations(outcomes, k))

        assert pass_at_k(samples, passed, k) == pytest.approx(sum(map(any, choices)) / len(choices))
        assert pass_hat_k(samples, passed, k) == pytest.approx(
            sum(map(all, choices)) / len(choices)
        )


@pytest.mark.parametrize(("samples", "passed", "k"), [(3, 1, 0), (3, 1, 4), (3, 4, 1), (3, -1, 1)])
def test_pass_at_k_refuses_what_does_not_fit(samples: int, passed: int, k: int):
    """More drawn than there are, or more passes than samples, is an error."""
    for function in (pass_at_k, pass_hat_k):
        with pytest.raises(ValueError, match="samples"):
            function(samples, passed, k)


def test_the_detectable_share_is_found_with_the_power_it_says():
    """With that share of pairs disagreeing, six of them do so in four of five comparisons."""
    share = minimal_detectable_share(50)

    assert scipy.stats.binom.sf(5, 50, share) == pytest.approx(0.8, abs=1e-6)


def test_the_detectable_share_of_many_pairs_is_near_the_normal_limit():
    """Binomial coefficients beyond a float are no obstacle."""
    pairs, differing = 1_500, 0.1
    reach = scipy.stats.norm.isf(0.025) + scipy.stats.norm.isf(0.2)

    share = minimal_detectable_share(pairs, differing)

    assert share == pytest.approx(reach * math.sqrt(differing / pairs), rel=0.05)


def test_five_pairs_can_show_nothing():
    """No outcome of fewer than six pairs is significant, so the smallest difference is infinite."""
    assert minimal_detectable_share(5) == math.inf
    assert minimal_detectable_share(6) < 1
    assert sign_test(5, 0) > 0.05 >= sign_test(6, 0)


@given(st.integers(0, 12), st.integers(0, 12), st.data())
def test_fishers_exact_test_equals_scipys(total_a: int, total_b: int, data: st.DataObject):
    """For all tables of small samples."""
    passed_a = data.draw(st.integers(0, total_a))
    passed_b = data.draw(st.integers(0, total_b))
    table = [[passed_a, total_a - passed_a], [passed_b, total_b - passed_b]]

    p_value = fisher_exact(passed_a, total_a, passed_b, total_b)

    assert p_value == pytest.approx(scipy.stats.fisher_exact(table).pvalue)
