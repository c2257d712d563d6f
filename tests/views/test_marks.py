from __future__ import annotations

from oteval.model import Score
from oteval.views.tables import legend, score_marks

from ..make import score


def scores(**outcomes: bool | str | None) -> list[Score]:
    """Return scores by evaluator: passed, or a status."""
    return [
        score(1, evaluator=name, **({"status": out} if isinstance(out, str) else {"passed": out}))
        for name, out in outcomes.items()
    ]


def test_scores_are_shown_by_name_failures_first():
    """Each outcome has a mark of its own, and what fails comes first."""
    found = scores(good=True, late="error", bad=False, unseen="not_evaluated")

    assert score_marks(found, 100).plain == "bad ✗  late !  unseen ?  good ✓"
    assert legend(found).plain == "✓ pass  ✗ fail  ! error  ? not evaluated"
    assert legend(found[:1]).plain == "✓ pass"


def test_a_score_without_a_verdict_shows_its_value():
    """A number or a label stands where others have a mark."""
    found = [
        score(1, evaluator="length", passed=None, score=0.25),
        score(1, evaluator="tone", passed=None, score=None, label="formal"),
        score(1, evaluator="none", passed=None, score=None, label=""),
    ]

    assert score_marks(found, 100).plain == "length 0.25  tone formal  none -"
    assert legend(found).plain == ""


def test_scores_that_do_not_fit_are_counted_by_mark():
    """Of hundreds of evaluators the failures are named first, and none is hidden in a count."""
    found = scores(**{f"e{number}": True for number in range(300)}, broken=False, worse=False)

    assert score_marks(found, 30).plain == "broken ✗  worse ✗  +300 ✓"
    assert score_marks(found, 24).plain == "broken ✗  +1 ✗ +300 ✓"
    assert score_marks(found, 20).plain == "2 ✗ 300 ✓"


def test_a_long_name_is_cut_and_its_mark_stays():
    """The mark of a single score is always there."""
    (one,) = scores(**{"n" * 300: False})

    assert score_marks([one], 100).plain == "n" * 23 + "… ✗"
    assert score_marks([one], 12).plain == "nnnnnnnnn… ✗"
    assert score_marks([one], 2).plain == "✗"
