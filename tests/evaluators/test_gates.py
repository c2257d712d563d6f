from __future__ import annotations

from typing import Any

import pytest

from oteval.evaluators.gates import Tally, check_gate
from oteval.model import Score


def score(status: str = "ok", passed: bool | None = True, number: float | None = 1.0) -> Score:
    """Return a score of an outcome."""
    verdict: dict[str, Any] = {"passed": passed, "score": number} if status == "ok" else {}
    return Score("t", "", "", "e", "v", status=status, **verdict)  # type: ignore[arg-type]


MIXED = [
    *[score()] * 6,
    *[score(passed=False, number=0.0)] * 2,
    *[score("error")] * 2,
    *[score("not_evaluated")] * 3,
    score(passed=None, number=0.5),
]


def counted(scores: list[Score]) -> Tally:
    """Return the counts of one evaluator's scores."""
    tally = Tally("e")
    for score in scores:
        tally.add(score)
    return tally


def test_outcomes_are_counted_apart():
    """Passes, fails, errors, what was not evaluated and what has no verdict are five numbers."""
    counts = counted(MIXED)

    assert (counts.passed, counts.failed, counts.errors) == (6, 2, 2)
    assert (counts.not_evaluated, counts.unjudged, counts.evaluated) == (3, 1, 9)


def test_errors_count_against_the_pass_rate_and_not_into_the_mean():
    """A run on which the evaluator failed was to be judged; it has no number to average."""
    counts = counted(MIXED)

    assert counts.pass_rate == pytest.approx(0.6)
    assert counts.mean == pytest.approx(6.5 / 9)


def test_without_verdicts_there_is_no_rate():
    """Nothing counted gives None, never 0 and never 1."""
    counts = counted([score("not_evaluated")])

    assert (counts.pass_rate, counts.mean) == (None, None)
    assert counted([score("error")]).pass_rate is None


@pytest.mark.parametrize(
    ("scores", "gate", "passed", "comment"),
    [
        (MIXED, {}, True, "evaluated 9 (at least 1)"),
        ([], {}, False, "evaluated 0 (at least 1): not met"),
        (MIXED, {"min_evaluated": 10}, False, "evaluated 9 (at least 10): not met"),
        (
            MIXED,
            {"min_pass_rate": 0.6},
            True,
            "evaluated 9 (at least 1), pass rate 0.600 (at least 0.6)",
        ),
        (
            MIXED,
            {"min_pass_rate": 0.61},
            False,
            "evaluated 9 (at least 1), pass rate 0.600 (at least 0.61): not met",
        ),
        (
            [score(passed=None)],
            {"min_pass_rate": 0.0},
            False,
            "evaluated 1 (at least 1), pass rate none (at least 0): not met",
        ),
        (
            MIXED,
            {"min_score": 0.7},
            True,
            "evaluated 9 (at least 1), mean score 0.722 (at least 0.7)",
        ),
        (
            [score(number=None)],
            {"min_score": -1.0},
            False,
            "evaluated 1 (at least 1), mean score none (at least -1): not met",
        ),
        (
            [score("error")],
            {"min_pass_rate": 0.0},
            False,
            "evaluated 0 (at least 1): not met, pass rate none (at least 0): not met",
        ),
        (MIXED, {"max_errors": 2}, True, "evaluated 9 (at least 1), errors 2 (at most 2)"),
        (
            MIXED,
            {"max_errors": 0},
            False,
            "evaluated 9 (at least 1), errors 2 (at most 0): not met",
        ),
    ],
)
def test_a_gate_says_what_it_found(
    scores: list[Score], gate: dict[str, Any], passed: bool, comment: str
):
    """A gate needs every figure it names, and its comment has each with what was found."""
    result = check_gate(counted(scores), **gate)

    assert (result.evaluator, result.passed, result.comment) == ("e", passed, comment)
