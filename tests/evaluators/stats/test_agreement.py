from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from oteval.evaluators.stats import cohen_kappa, confusion_matrix

RATED = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1, max_size=80)


@given(RATED)
@settings(max_examples=25)
def test_kappa_is_statsmodels(rated: list[tuple[str, str]]):
    """Kappa is that of statsmodels, and inside its interval."""
    from statsmodels.stats.inter_rater import cohens_kappa  # seconds, of each process of the tests

    first, second = zip(*rated, strict=True)
    kappa = cohen_kappa(first, second)

    if 0 < kappa.agreement < 1 and len(set(first)) > 1 and len(set(second)) > 1:
        with np.errstate(all="ignore"):  # of its z value, which is not looked at
            expected = cohens_kappa(kappa.confusion.counts)
        assert kappa.kappa == pytest.approx(expected.kappa)
        assert -1 <= kappa.interval.low <= kappa.kappa <= kappa.interval.high <= 1


@given(RATED)
@settings(max_examples=10)
def test_kappa_does_not_care_who_is_first(rated: list[tuple[str, str]]):
    """Swapping the raters swaps the base rates and leaves kappa."""
    first, second = zip(*rated, strict=True)
    kappa, swapped = cohen_kappa(first, second), cohen_kappa(second, first)

    assert kappa.kappa == pytest.approx(swapped.kappa)
    for label in kappa.confusion.labels:
        assert kappa.base_rates(label) == swapped.base_rates(label)[::-1]


def test_high_agreement_at_a_high_base_rate_is_no_kappa():
    """Raters that agree on 90% only because nearly all passes have a kappa near 0."""
    first = [True] * 90 + [False] * 5 + [True] * 5
    second = [True] * 90 + [True] * 5 + [False] * 5

    kappa = cohen_kappa(first, second)

    assert kappa.agreement == 0.9
    assert kappa.kappa == pytest.approx(-0.0526, abs=1e-4)
    assert kappa.base_rates(True) == (0.95, 0.95)


def test_one_label_throughout_tells_nothing():
    """Where both raters said one and the same, kappa is 0 with everything possible."""
    kappa = cohen_kappa(["pass"] * 9, ["pass"] * 9)

    assert (kappa.kappa, kappa.interval, kappa.agreement) == (0, (-1, 1), 1)


def test_full_agreement_on_few_things_is_not_certainty():
    """Two raters that agree on all of six things have a kappa of 1 with room below it."""
    kappa = cohen_kappa("aaabbb", "aaabbb")

    assert kappa.kappa == 1
    assert kappa.interval == pytest.approx((0.18, 1), abs=0.02)


@pytest.mark.parametrize(
    ("labels", "rate", "agrees_on_pass", "agrees_on_fail"),
    [(40, 0.95, 0.95, 0.5), (100, 0.95, 0.9, 0.8), (200, 0.97, 0.98, 0.2), (20, 0.5, 1.0, 1.0)],
)
def test_kappa_is_inside_its_interval_at_any_base_rate(
    labels: int, rate: float, agrees_on_pass: float, agrees_on_fail: float
):
    """A rare label does not make the interval too narrow; the normal one held .5 to .9."""
    chance = random.Random(labels)
    passing = rate * agrees_on_pass + (1 - rate) * (1 - agrees_on_fail)
    by_chance = rate * passing + (1 - rate) * (1 - passing)
    agreement = rate * agrees_on_pass + (1 - rate) * agrees_on_fail
    truth = (agreement - by_chance) / (1 - by_chance)
    covered = 0
    for _ in range(25):
        people = [chance.random() < rate for _ in range(labels)]
        judge = [
            passed == (chance.random() < (agrees_on_pass if passed else agrees_on_fail))
            for passed in people
        ]
        low, high = cohen_kappa(people, judge).interval
        covered += low <= truth <= high

    assert covered >= 22


def test_the_confusion_matrix_counts_pairs():
    """A row for each label of the first rater, a column for each of the second."""
    confusion = confusion_matrix(["a", "a", "b", "c"], ["a", "b", "b", "a"])

    assert confusion.labels == ("a", "b", "c")
    assert confusion.counts == ((1, 1, 0), (0, 1, 0), (1, 0, 0))
    assert (confusion.total, confusion.agreed) == (4, 2)


def test_raters_of_different_things_are_refused():
    """Lists of different lengths cannot be of the same things; nothing has no agreement."""
    with pytest.raises(ValueError, match="2 labels"):
        confusion_matrix([1, 2], [1])
    with pytest.raises(ValueError, match="no items"):
        cohen_kappa([], [])
