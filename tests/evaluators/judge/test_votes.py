"""Several answers are votes on one verdict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from oteval.evaluators.judge.evaluator import combine_votes, vote_share


@pytest.mark.parametrize(
    ("scores", "continuous", "expected"),
    [
        ([True, True, False], False, True),
        ([True, False], False, False),
        ([False], False, False),
        ([1, 1, 0.5], False, 1),
        ([0, 1], False, 0),
        ([0, 0.5, 1], False, 0.5),
        ([0.2, 0.4], True, pytest.approx(0.3)),
    ],
)
def test_votes_are_combined(scores: list[Any], continuous: bool, expected: Any):
    """A tie fails; the middle choice wins a split vote; continuous scores are averaged."""
    assert combine_votes(scores, continuous=continuous) == expected


@given(st.lists(st.booleans(), min_size=1, max_size=9))
def test_a_bool_passes_with_more_than_half(votes: list[bool]):
    """The vote share counts the votes for the winner."""
    winner = combine_votes(votes)

    assert winner == (votes.count(True) > votes.count(False))
    assert vote_share(votes, winner) == votes.count(winner) / len(votes)
