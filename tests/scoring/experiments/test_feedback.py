from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oteval import trajectory_strict_match
from oteval.model import EvaluationResult
from oteval.scoring.experiments.feedback import keyed_results

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


PASS, FAIL = EvaluationResult.of_verdict(True), EvaluationResult.of_verdict(False)


@pytest.mark.parametrize(
    ("value", "key", "result"),
    [
        (True, "e", PASS),
        (False, "e", FAIL),
        (0.5, "e", EvaluationResult(score=0.5)),
        (3, "e", EvaluationResult(score=3.0)),
        ("good", "e", EvaluationResult(label="good")),
        (np.float64(0.25), "e", EvaluationResult(score=0.25)),
        (np.bool_(True), "e", PASS),
        ({"score": True, "key": "k"}, "k", PASS),
        ({"score": 0.2, "passed": True}, "e", EvaluationResult(score=0.2, passed=True)),
        ({"score": 1, "comment": "why"}, "e", EvaluationResult(score=1.0, comment="why")),
        ({"key": "k", "value": "red"}, "k", EvaluationResult(label="red")),
        (
            {"score": None, "comment": "n/a"},
            "e",
            EvaluationResult(status="not_evaluated", comment="n/a"),
        ),
        (SimpleNamespace(key="k", score=0.5), "k", EvaluationResult(score=0.5)),
    ],
)
def test_what_an_evaluator_may_return(value: Any, key: str, result: EvaluationResult):
    """A bool, a number, a text, a dict or an object is one result."""
    assert keyed_results(value, "e") == [(key, result)]


@pytest.mark.parametrize("wrap", [list, tuple, lambda items: {"results": items}])
def test_several_results(wrap: Any):
    """A list of dicts, and a dict of results, are one result each."""
    found = keyed_results(wrap([{"key": "a", "score": 1}, {"key": "b", "score": False}]), "e")

    assert [(key, one.score, one.passed) for key, one in found] == [
        ("a", 1.0, None),
        ("b", 0.0, False),
    ]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "returned None"),
        (object, "which is not a score"),
        (float("nan"), "returned nan"),
        ([], "an empty list"),
        ([1, 2], "a list of values that are not results"),
        ({}, "a dict without 'score'"),
        ({"comment": "only"}, "a dict without 'score'"),
        ({"score": [1]}, "which is not a score"),
        ({"score": 1, "metadata": 3}, "metadata that is not a dict"),
        ({"score": 1, "passed": "yes"}, "'passed' that is not a bool"),
        ({"score": None, "metadata": {"error": "429"}}, "429"),
    ],
)
def test_an_invalid_value_is_one_error(value: Any, why: str):
    """The error says what was returned, and has no number."""
    ((key, found),) = keyed_results(value, "e")

    assert (key, found.status, found.score, found.passed) == ("e", "error", None, None)
    assert why in found.comment


def test_a_used_up_budget_is_not_a_failure():
    """A judge that was not called because of its budget did not evaluate."""
    said = {"score": None, "metadata": {"error": "budget spent", "status": "not_evaluated"}}

    assert keyed_results(said, "e")[0].result.status == "not_evaluated"


def test_one_invalid_result_of_several_is_one_error():
    """The other results of the list count."""
    found = keyed_results(
        [{"key": "a", "score": 1}, {"key": "b", "score": "?", "metadata": 1}], "e"
    )

    assert [(key, one.status) for key, one in found] == [("a", "ok"), ("b", "error")]


def test_results_of_our_own_evaluators_are_read():
    """The dict of a match evaluator keeps its key, verdict and figures."""
    ((key, found),) = keyed_results(trajectory_strict_match(outputs=[], reference_outputs=[]), "e")

    assert (key, found.passed) == ("trajectory_strict_match", True)
    assert found.metadata["f1"] == 1


@given(JSON)
def test_any_return_value_is_a_result_or_an_error(value: Any):
    """No return value raises, and only a verdict has a number."""
    found = keyed_results(value, "e")

    assert found
    for _, one in found:
        assert one.status == "ok" or (one.score is None and one.passed is None and one.comment)
