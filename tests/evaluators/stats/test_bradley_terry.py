from __future__ import annotations

import math
import random

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings, strategies as st

from oteval.evaluators.stats import ExampleVotes, bradley_terry, rank

COUNTS = st.lists(st.lists(st.integers(1, 30), min_size=3, max_size=3), min_size=3, max_size=3)


def likelihood(logs: list[float], theta: float, wins: list[list[int]], ties: list[list[int]]):
    """Return the negative logarithm of Rao and Kupper's likelihood."""
    total = 0.0
    size = len(wins)
    for i in range(size):
        for j in range(size):
            if i != j:
                a, b = math.exp(logs[i]), math.exp(logs[j])
                total -= wins[i][j] * math.log(a / (a + theta * b))
                if i < j and ties[i][j]:
                    drawn = (theta**2 - 1) * a * b / ((a + theta * b) * (theta * a + b))
                    total -= ties[i][j] * math.log(drawn)
    return total


@settings(max_examples=30, deadline=None)
@given(COUNTS, COUNTS)
def test_the_strengths_are_the_most_likely_ones(wins: list[list[int]], counted: list[list[int]]):
    """With ties, strengths and theta are where scipy finds the likelihood greatest."""
    ties = [[0 if i == j else counted[min(i, j)][max(i, j)] for j in range(3)] for i in range(3)]

    def loss(x: np.ndarray) -> float:
        return likelihood([0.0, x[0], x[1]], 1 + math.exp(x[2]), wins, ties)

    best = scipy.optimize.minimize(loss, [0.0, 0.0, 0.0], method="BFGS")
    found = bradley_terry(wins, ties)

    logs = np.array([0.0, best.x[0], best.x[1]])
    assert found.strengths == pytest.approx(list(logs - logs.mean()), abs=1e-3)
    assert found.theta == pytest.approx(1 + math.exp(best.x[2]), rel=1e-3)


def test_two_systems_without_ties_have_the_odds_of_their_wins():
    """Between two systems the difference of strengths is the logarithm of the odds."""
    found = bradley_terry([[0, 30], [10, 0]])

    assert found.strengths[0] - found.strengths[1] == pytest.approx(math.log(3))
    assert (found.theta, found.prior) == (1, 0)


@settings(max_examples=30, deadline=None)
@given(COUNTS, st.permutations(range(3)))
def test_the_names_of_systems_do_not_matter(wins: list[list[int]], order: list[int]):
    """Systems in another order have the same strengths in that order."""
    moved = [[wins[i][j] for j in order] for i in order]

    strengths = bradley_terry(wins).strengths
    assert bradley_terry(moved).strengths == pytest.approx([strengths[i] for i in order], abs=1e-5)


def test_a_system_that_never_loses_has_a_finite_strength():
    """Half a win each way makes up for the strength that does not exist."""
    found = bradley_terry([[0, 10, 10], [0, 0, 5], [0, 5, 0]])

    assert found.prior == 0.5
    assert found.strengths[0] - found.strengths[1] == pytest.approx(math.log(21), abs=0.01)
    assert found.strengths[1] == pytest.approx(found.strengths[2])


def test_systems_that_nothing_connects_are_refused():
    """Two systems of which neither met the other have no common scale."""
    with pytest.raises(ValueError, match="never compared"):
        bradley_terry([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    with pytest.raises(ValueError, match="two systems"):
        bradley_terry([[0]])
    with pytest.raises(ValueError, match="needs votes"):
        rank([])


def test_the_intervals_of_a_ranking_hold_the_true_strengths():
    """Drawn by examples, they cover the strengths that made the votes, and order the systems."""
    chance = random.Random(4)
    true = [0.8, 0.0, -0.8]
    examples = []
    for _ in range(150):
        wins = [[0.0] * 3 for _ in range(3)]
        for i in range(3):
            for j in range(i):
                better = chance.random() < 1 / (1 + math.exp(true[j] - true[i]))
                wins[i if better else j][j if better else i] += 1
        examples.append(ExampleVotes(wins, [[0.0] * 3] * 3))

    found, intervals = rank(examples, resamples=100)

    assert list(found.strengths) == sorted(found.strengths, reverse=True)
    for value, (low, high) in zip(true, intervals, strict=True):
        assert low <= value <= high
        assert high - low < 1.2
