from __future__ import annotations

import math
import random

import pytest
import scipy.stats
from hypothesis import given, settings, strategies as st

from oteval.evaluators.stats import (
    ExampleVotes,
    clopper_pearson,
    difference_interval,
    mean_interval,
    minimal_detectable_share,
    ppi_mean,
    rank,
    sign_test,
)
from oteval.evaluators.stats.rates import beta_quantile, binomial_tail, t_quantile

RATES = (0.0, 0.02, 0.5, 0.98, 1.0)
SIZES = (5, 8, 10, 20, 39, 40)
NONE = [[0.0, 0.0], [0.0, 0.0]]
WON = ExampleVotes([[0.0, 1.0], [0.0, 0.0]], NONE)
LOST = ExampleVotes([[0.0, 0.0], [1.0, 0.0]], NONE)


@given(st.floats(0.001, 0.999), st.floats(0.3, 300), st.floats(0.3, 300))
@settings(max_examples=60)
def test_quantiles_are_scipys(probability: float, a: float, b: float):
    """The quantiles of the beta and the t distribution, and the binomial tail, are scipy's."""
    assert beta_quantile(probability, a, b) == pytest.approx(
        scipy.stats.beta.ppf(probability, a, b), abs=1e-7
    )
    assert t_quantile(probability, max(1, a)) == pytest.approx(
        scipy.stats.t.ppf(probability, max(1, a)), rel=1e-5, abs=1e-7
    )
    total, least = int(a) + 1, int(b) % (int(a) + 3)
    assert binomial_tail(least, total, probability) == pytest.approx(
        scipy.stats.binom.sf(least - 1, total, probability), abs=1e-9
    )


@given(st.integers(1, 300), st.data())
@settings(max_examples=60)
def test_the_interval_of_a_share_is_exact(total: int, data: st.DataObject):
    """It is scipy's Clopper-Pearson interval."""
    passed = data.draw(st.integers(0, total))

    expected = scipy.stats.binomtest(passed, total).proportion_ci()

    assert clopper_pearson(passed, total) == pytest.approx((expected.low, expected.high), abs=1e-7)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rate", RATES)
def test_the_interval_of_a_share_holds_what_it_claims(size: int, rate: float):
    """Summed over all outcomes, the interval holds the rate with the claimed probability."""
    coverage = sum(
        scipy.stats.binom.pmf(passed, size, rate)
        for passed in range(size + 1)
        if clopper_pearson(passed, size).low <= rate <= clopper_pearson(passed, size).high
    )

    assert coverage >= 0.95 - 1e-9


@pytest.mark.parametrize("size", [2, 5, 20, 40, 100])
@pytest.mark.parametrize("label", [0.0, 1.0])
@pytest.mark.parametrize("others", [0, 1000])
def test_a_corrected_rate_is_never_certain(size: int, label: float, others: int):
    """Where people and judge say the same of everything, the interval still has a width."""
    estimate = ppi_mean([label] * size, [label] * size, [label] * others)

    assert estimate.mean == label
    assert 0 <= estimate.interval.low <= label <= estimate.interval.high <= 1
    assert estimate.interval.high - estimate.interval.low >= 1.5 / (size + 2)


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=90),
    st.lists(st.booleans(), max_size=60),
)
@settings(max_examples=100)
def test_a_corrected_rate_stays_within_0_and_1(pairs: list[tuple[bool, bool]], rest: list[bool]):
    """Whatever the verdicts, estimate and interval are rates, and the estimate is inside."""
    labels, verdicts = ([float(value) for value in side] for side in zip(*pairs, strict=True))

    estimate = ppi_mean(labels, verdicts, [float(value) for value in rest])

    assert 0 <= estimate.interval.low <= estimate.mean <= estimate.interval.high <= 1
    assert estimate.interval.low < estimate.interval.high
    assert estimate.needed == (max(0, 40 - len(pairs)) if rest else 0)


@pytest.mark.parametrize("size", [5, 20, 39, 40, 60])
@pytest.mark.parametrize(("rate", "judge"), [(0.02, (0.9, 0.8)), (0.5, (0.5, 0.5)), (0.98, (1, 1))])
def test_a_corrected_rate_covers_what_it_says(size: int, rate: float, judge: tuple[float, float]):
    """With few labels and rates near 0 and 1 the truth is inside about as often as claimed."""
    chance = random.Random(size)
    passing = rate * judge[0] + (1 - rate) * (1 - judge[1])
    covered = 0
    for _ in range(150):
        labels = [float(chance.random() < rate) for _ in range(size)]
        verdicts = [float(chance.random() < (judge[0] if y else 1 - judge[1])) for y in labels]
        rest = [float(chance.random() < passing) for _ in range(300)]
        low, high = ppi_mean(labels, verdicts, rest).interval
        covered += low <= rate <= high

    assert covered / 150 >= 0.92


@pytest.mark.parametrize("values", [[1.0] * 10, [0.0] * 10, [0.8] * 5, [1.0] * 60, [0.25]])
def test_equal_scores_have_an_interval_with_a_width(values: list[float]):
    """Scores in 0 to 1 that are all equal do not make the mean certain."""
    low, high = mean_interval(values)  # type: ignore[misc]

    assert 0 <= low <= values[0] <= high <= 1
    assert high - low > 1 / (len(values) + 2)


def test_equal_values_without_bounds_have_no_interval():
    """Nothing says what else there could be: more examples are needed, and none is invented."""
    assert mean_interval([3.0] * 50) is None


def test_many_values_have_the_interval_of_the_bootstrap_without_its_draws():
    """Student's interval, unless few values make the mean skewed: these are still drawn."""
    chance = random.Random(1)
    even = [chance.random() for _ in range(1_000)]
    rare = [0.5] * 12 + [0.0] * 988

    interval = mean_interval(even, seed=1)
    drawn = mean_interval(even[:-1], seed=1)
    skewed = mean_interval(rare, resamples=400)

    assert interval is not None
    assert drawn is not None
    assert skewed is not None
    students_interval = scipy.stats.t.interval(0.95, 999, sum(even) / 1_000, scipy.stats.sem(even))
    assert tuple(interval) == pytest.approx(students_interval)
    assert tuple(interval) == pytest.approx(tuple(drawn), abs=0.002)
    assert skewed.high - 0.006 > 1.1 * (0.006 - skewed.low)


@pytest.mark.parametrize("size", [5, 10, 20, 40])
@pytest.mark.parametrize("rate", RATES)
def test_the_mean_of_repetitions_covers_what_it_says(size: int, rate: float):
    """Scores that are means of three repetitions, nearly all equal where the rate is extreme."""
    chance = random.Random(7)
    covered = 0
    for _ in range(60):
        values = [sum(chance.random() < rate for _ in range(3)) / 3 for _ in range(size)]
        low, high = mean_interval(values, resamples=300)  # type: ignore[misc]
        covered += low - 1e-9 <= rate <= high + 1e-9

    assert covered / 60 >= 0.88


@pytest.mark.parametrize("size", [5, 10, 20, 40])
@pytest.mark.parametrize(
    ("first_rate", "second_rate"), [(0.02, 0.02), (0.98, 0.5), (1.0, 1.0), (0.5, 0.5)]
)
def test_the_difference_of_passes_covers_what_it_says(
    size: int, first_rate: float, second_rate: float
):
    """Paired passes and fails: no sample, however even, makes the difference certain."""
    chance = random.Random(8)
    covered = 0
    for _ in range(100):
        deltas = [
            float((chance.random() < second_rate) - (chance.random() < first_rate))
            for _ in range(size)
        ]
        low, high = difference_interval(deltas, bounded=True)  # type: ignore[misc]
        assert -1 <= low < high <= 1
        covered += low <= second_rate - first_rate <= high

    assert covered / 100 >= 0.92


def test_a_system_that_always_wins_has_a_wide_interval():
    """Ten wins of ten are no certainty; a hundred tell more."""
    few = rank([WON] * 10)[1]
    many = rank([WON] * 100)[1]

    assert few[0].high - few[0].low > 1
    assert few[1].high - few[1].low > 1
    assert few[0].low > 0  # better than the other, all the same
    assert many[0].low > few[0].low


@pytest.mark.parametrize(("size", "rate"), [(5, 0.95), (10, 0.98), (20, 0.95)])
def test_the_strength_of_a_winner_is_inside_its_interval(size: int, rate: float):
    """A system that wins nearly always, and in most samples always, is not held for invincible."""
    chance = random.Random(3)
    truth = math.log(rate / (1 - rate)) / 2
    covered = 0
    for _ in range(40):
        votes = [WON if chance.random() < rate else LOST for _ in range(size)]
        interval = rank(votes, resamples=200)[1][0]
        covered += interval.low <= truth <= interval.high

    assert covered / 40 >= 0.87


@pytest.mark.parametrize(("pairs", "differing"), [(10, 0.2), (20, 0.3), (39, 0.5)])
def test_a_detectable_share_counts_pairs_that_differ_either_way(pairs: int, differing: float):
    """Where pairs disagree in both directions, the difference to be seen is larger."""
    at_best = minimal_detectable_share(pairs)
    least = minimal_detectable_share(pairs, differing)
    share = (max(differing, least) + least) / 2
    chance = random.Random(2)
    detections = 0
    for _ in range(400):
        draws = [chance.random() for _ in range(pairs)]
        up = sum(draw < share for draw in draws)
        down = sum(share <= draw < max(differing, least) for draw in draws)
        detections += sign_test(up, down) <= 0.05 and up > down

    assert least >= at_best
    assert 0.72 <= detections / 400 <= 0.88
