from __future__ import annotations

import pytest

from oteval.plural import counted, listed


@pytest.mark.parametrize(
    ("number", "noun", "expected"),
    [
        (0, "run", "0 runs"),
        (1, "model call", "1 model call"),
        (2, "trajectory", "2 trajectories"),
        (1, "trajectory", "1 trajectory"),
        (3, "day", "3 days"),
        (1200, "span", "1,200 spans"),
    ],
)
def test_counts_are_in_the_right_number(number: int, noun: str, expected: str):
    """One of a thing is singular, any other count is plural."""
    assert counted(number, noun) == expected


def test_a_plural_can_be_given():
    """An irregular plural is the caller's."""
    assert counted(2, "person", "people") == "2 people"


def test_long_lists_end_with_a_count():
    """Names beyond the first few are counted."""
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcdefg")) == "a, b, c, d, e and 2 more"
