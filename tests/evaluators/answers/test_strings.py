"""Answers compared as they are, and as texts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, strategies as st

import oteval


@pytest.mark.parametrize(
    ("outputs", "reference", "same"),
    [
        ({"a": 1, "b": [1, None]}, {"b": [1, None], "a": 1}, True),
        ("x", "x", True),
        ("1", 1, False),
        (True, 1, False),
        ([1, 2], [2, 1], False),
    ],
)
def test_exact_match(outputs: Any, reference: Any, same: bool):
    """Values are compared as JSON: the order of keys does not matter, types and lists do."""
    found = oteval.exact_match(outputs=outputs, reference_outputs=reference, inputs="q", more=1)

    assert (found["key"], found["score"]) == ("exact_match", same)
    assert (found["comment"] is None) == same


def test_levenshtein_distance():
    """The score is the share of the longer text that no edit touches."""
    near = oteval.levenshtein_distance(outputs="kitten", reference_outputs="sitting")

    assert near["score"] == pytest.approx(1 - 3 / 7)
    assert near["comment"] == "3 of 7 characters differ"
    assert oteval.levenshtein_distance(outputs="", reference_outputs="")["score"] == 1.0
    assert oteval.levenshtein_distance(outputs={"a": 1}, reference_outputs='{"a": 1}')["score"] == 1


@given(st.text(), st.text())
def test_levenshtein_distance_is_symmetric_and_within_0_and_1(one: str, two: str):
    """It is 1 exactly for equal texts, whatever characters they hold."""
    there = oteval.levenshtein_distance(outputs=one, reference_outputs=two)["score"]
    back = oteval.levenshtein_distance(outputs=two, reference_outputs=one)["score"]

    assert there == back
    assert 0.0 <= float(there or 0) <= 1.0
    assert (there == 1.0) == (one == two)


@pytest.mark.parametrize("evaluate", [oteval.exact_match, oteval.levenshtein_distance])
def test_a_missing_side_is_an_error(evaluate: Any):
    """None on either side is never a mismatch or a match."""
    for outputs, reference, side in ((None, "x", "outputs"), ("x", None, "reference_outputs")):
        with pytest.raises(ValueError, match=f"needs {side}, which is None"):
            evaluate(outputs=outputs, reference_outputs=reference)
    with pytest.raises(ValueError, match="outputs cannot be written as JSON"):
        evaluate(outputs={"a": object()}, reference_outputs="x")


def test_the_awaitable_forms_give_the_same():
    """They are coroutine functions, as frameworks ask for."""
    sides = {"outputs": "abc", "reference_outputs": "abd"}

    assert asyncio.run(oteval.exact_match_async(**sides)) == oteval.exact_match(**sides)
    found = asyncio.run(oteval.levenshtein_distance_async(**sides))
    assert found == oteval.levenshtein_distance(**sides)
