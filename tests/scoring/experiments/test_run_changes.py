"""Runs that broke or got better between two experiments, and what could not be compared."""

from __future__ import annotations

from typing import Any

from oteval import compare_experiments
from oteval.evaluators import NotEvaluated
from oteval.views.run_changes import changes_summary, unevaluated_lines

from .conftest import Make


def passed(outputs: Any) -> dict[str, Any]:
    """Pass outputs of at least 0.5, and say why not."""
    return {"score": outputs >= 0.5, "comment": "" if outputs >= 0.5 else f"{outputs} is too low"}


def score(outputs: Any) -> float:
    """Score outputs by themselves."""
    return outputs


def unknown(outputs: Any) -> float:
    """Have no verdict on outputs below 0.5."""
    if outputs < 0.5:
        raise NotEvaluated("the trace lacks its calls")
    return 1.0


def test_one_broken_run_is_named_whatever_statistics_say(made: Make) -> None:
    """A verdict that turned to fail comes with its reason; no test needs to be significant."""
    comparison = compare_experiments(made("a", [1, 1, 0], passed), made("b", [1, 0, 1], passed))

    (broke,), (better,) = comparison.changes.broke, comparison.changes.better
    assert (broke.id, broke.figures[0].reason) == ("e1", "0 is too low")
    assert (better.id, better.figures[0].reason) == ("e2", "0 is too low")
    assert comparison.changes.same == 1
    assert comparison.regressed == []
    assert changes_summary(comparison) == "1 of 3 runs broke, 1 got better, 1 did not change."


def test_a_score_breaks_a_run_by_its_margin(made: Make) -> None:
    """A score that falls by less than the smallest difference that matters breaks nothing."""
    a = made("a", [0.9, 0.9, 0.2], score)
    b = made("b", [0.8, 0.88, 0.3], score)

    changes = compare_experiments(a, b).changes
    reverse = compare_experiments(a, b, lower_is_better=["score"]).changes

    assert [row.id for row in changes.broke] == ["e0"]
    assert [row.id for row in changes.better] == ["e2"]
    assert changes.same == 1
    assert [row.id for row in reverse.broke] == ["e2"]


def test_a_run_that_is_not_evaluated_is_named_and_no_pass(made: Make) -> None:
    """It is neither broken, better nor the same; its reason is listed."""
    comparison = compare_experiments(made("a", [1, 1], unknown), made("b", [1, 0], unknown))

    assert (comparison.changes.broke, comparison.changes.same) == ((), 1)
    (line,) = unevaluated_lines(comparison)
    assert line == "? unknown: not evaluated on 1 example of b: the trace lacks its calls: e1: 1"
    assert changes_summary(comparison) == (
        "None of 2 runs broke, 1 did not change, 1 could not be compared."
    )


def test_a_failed_run_broke(made: Make) -> None:
    """The error of the target is the reason."""
    comparison = compare_experiments(
        made("a", [1, 1], passed), made("b", [1, ValueError("no such order")], passed)
    )

    (broke,) = comparison.changes.broke
    assert broke.figures[0].key == "completed"
    assert broke.figures[0].reason == "ValueError: no such order"
    assert comparison.changes.unevaluated == ()


def test_examples_of_one_side_are_named(made: Make) -> None:
    """An example without a counterpart is in no count of runs that did not change."""
    comparison = compare_experiments(made("a", [1, 1, 1], passed), made("b", [1], passed))

    (row,) = comparison.changes.unevaluated
    assert (row.reason, row.ids) == ("no run of this example", ("e1", "e2"))
    assert comparison.changes.same == 1
