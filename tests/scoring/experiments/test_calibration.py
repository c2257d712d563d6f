from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from oteval.base.errors import InputError
from oteval.evaluators.stats import Interval
from oteval.model import Label, Score
from oteval.scoring.experiments.calibration import agreement_growth, calibrate, consistency
from oteval.scoring.experiments.labels import read_labels
from oteval.store import Store


def score(name: str, passed: bool | None, comment: str = "") -> Score:
    """Return a judge's score; None is one that failed."""
    status = "error" if passed is None else "ok"
    number = None if passed is None else float(passed)
    return Score(
        *(name, "t", "s", "quality", "v"),
        status=status,
        score=number,
        passed=passed,
        comment=comment,
    )


def scored(**verdicts: bool | None) -> dict[str, Score]:
    """Return a judge's scores by run."""
    return {name: score(name, passed, f"because {name}") for name, passed in verdicts.items()}


def test_agreement_counts_runs_with_both_verdicts():
    """Labels without a verdict, and verdicts without a label, are counted and left out."""
    labels = [Label("a", True), Label("b", False), Label("c", True), Label("d", True)]

    found = calibrate("quality", "v", labels, scored(a=True, b=True, c=None, e=False))

    assert (found.labelled, found.unjudged, found.tied) == (2, 2, 0)
    assert found.kappa.agreement == 0.5
    assert (found.count(True, True), found.count(False, True)) == (1, 1)
    assert found.judge_rate[0] == pytest.approx(2 / 3)
    assert found.people_rate[0] == 0.5


def test_disagreements_have_both_reasons():
    """Each disagreement has the judge's reason and the person's note."""
    labels = [Label("a", True), Label("b", False, note="too much")]

    found = calibrate("quality", "v", labels, scored(a=True, b=True))

    (one,) = found.disagreements
    assert (one.trajectory_id, one.people, one.judge) == ("b", False, True)
    assert (one.comment, one.note) == ("because b", "too much")


def test_the_majority_of_several_people_counts():
    """Two of three people make a label; two who disagree make none."""
    votes = {"a": {"x": True, "y": True, "z": False}, "b": {"x": True, "y": False}}
    labels = [
        Label(name, passed, person=person)
        for name, said in votes.items()
        for person, passed in said.items()
    ]

    found = calibrate("quality", "v", labels, scored(a=True, b=True))

    assert (found.labelled, found.tied) == (1, 1)
    assert found.corrected is None


def test_the_corrected_rate_corrects_a_lenient_judge():
    """The rate of a judge that passes too many runs is corrected towards the people's rate."""
    labels, verdicts = [], {}
    for number in range(200):
        passes = number % 2 == 0
        lenient = passes or number % 10 == 1
        verdicts[f"r{number}"] = score(f"r{number}", lenient)
        if number < 100:
            labels.append(Label(f"r{number}", passes))

    found = calibrate("quality", "v", labels, verdicts)

    assert found.judge_rate[0] == pytest.approx(0.6)
    assert found.corrected is not None
    assert found.corrected.mean == pytest.approx(0.5, abs=0.01)
    low, high = found.corrected.interval
    people_low, people_high = found.people_rate[1]
    assert low < 0.5 < high
    assert high - low < people_high - people_low


def test_agreement_without_a_common_run_is_an_error():
    """No common run is an error, never a kappa of 0."""
    with pytest.raises(ValueError, match="no labelled run has a verdict"):
        calibrate("quality", "v", [Label("a", True)], scored(a=None, b=True))


def test_consistency_counts_votes_and_flips():
    """One of three runs that are evaluated repeatedly gets both verdicts."""
    votes = {"a": [True] * 4, "b": [True, True, False], "c": [False] * 3, "once": [True]}

    found = consistency(votes)

    assert found is not None
    assert (found.runs, found.votes) == (3, 10)
    assert found.agreeing == pytest.approx(0.9)
    assert found.flipped == pytest.approx(1 / 3)
    assert consistency({"a": [True]}) is None


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_figures_are_within_their_bounds(pairs: list[tuple[bool, bool]]):
    """Whatever the verdicts, shares are from 0 to 1, and the matrix adds up to the runs."""
    labels = [Label(str(at), people) for at, (people, _) in enumerate(pairs)]
    scores = {str(at): score(str(at), judge) for at, (_, judge) in enumerate(pairs)}

    found = calibrate("quality", "v", labels, scores)

    cells = [found.count(people, judge) for people in (True, False) for judge in (True, False)]
    assert sum(cells) == found.labelled == len(pairs)
    assert len(found.disagreements) == cells[1] + cells[2]
    assert -1 <= found.kappa.kappa <= 1
    assert isinstance(found.kappa.interval, Interval)
    assert found.kappa.interval.low <= found.kappa.kappa <= found.kappa.interval.high


def test_runs_without_a_label_need_only_be_counted(store: Store):
    """The figures are the same from all scores, and from those of labelled runs with counts."""
    labels = [Label(f"{at}", at % 3 > 0) for at in range(60)]
    scores = {f"{at}": score(f"{at}", None if at % 50 == 0 else at % 4 > 0) for at in range(300)}
    older = [replace(one, passed=True) for one in scores.values() if one.status == "ok"]
    store.scores.write(older)
    store.scores.write(list(scores.values()))
    few = store.scores.by("quality", "v", [one.trajectory_id for one in labels])
    verdicts = store.scores.verdicts("quality", "v")

    assert len(few) == 60
    assert verdicts == (sum(bool(one.passed) for one in scores.values()), 72)
    whole = calibrate("quality", "v", labels, scores)
    assert calibrate("quality", "v", labels, few, verdicts) == whole


def write(tmp_path: Path, *lines: str) -> Path:
    """Return a file of lines."""
    path = tmp_path / "labels.jsonl"
    path.write_text("\n".join(lines), "utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "passed"),
    [('"pass"', True), ('"FAIL"', False), ("true", True), ("0", False), ("1.0", True)],
)
def test_a_label_may_be_a_word_a_bool_or_a_number(tmp_path: Path, text: str, passed: bool):
    """Pass and fail are read in every form that people write."""
    path = write(tmp_path, '{"trajectory_id": "a", "label": ' + text + "}", "")

    assert read_labels(path) == [Label("a", passed)]


def test_a_label_may_have_a_score(tmp_path: Path):
    """A number beside the verdict is kept."""
    path = write(tmp_path, '{"trajectory_id": "a", "label": "fail", "score": 0.25}')

    assert read_labels(path) == [Label("a", False, score=0.25)]


def test_the_agreement_grows_with_the_labels():
    """Each point counts the labels until then; of a person who changed the mind, the last one."""
    scores = scored(a=True, b=True, c=True, d=True)
    labels = [Label("a", True), Label("b", False), Label("x", True), Label("c", True)]

    found = agreement_growth(labels, scores)

    assert [(one.labelled, one.agreement) for one in found] == [(1, 1.0), (2, 0.5), (3, 2 / 3)]
    assert all(one.interval[0] <= one.agreement <= one.interval[1] for one in found)
    assert agreement_growth([Label("x", True)], scores) == []
    assert len(agreement_growth([Label("a", True)] * 500, scores, points=10)) == 10


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "not valid JSON"),
        ("[]", "a label must be an object"),
        ('{"label": true}', "trajectory_id is missing"),
        ('{"trajectory_id": "a"}', "label must be pass or fail"),
        ('{"trajectory_id": "a", "label": "maybe"}', "label must be pass or fail"),
        ('{"trajectory_id": "a", "label": 0.5}', "label must be pass or fail"),
        ('{"trajectory_id": "a", "label": 1, "rater": "x"}', "unknown key 'rater'"),
        ('{"trajectory_id": "a", "label": 1, "note": 3}', "note must be a string"),
        ('{"trajectory_id": "a", "label": 1, "score": "x"}', "score must be a number"),
    ],
)
def test_an_invalid_label_is_an_error_with_its_line(tmp_path: Path, line: str, words: str):
    """An invalid line is an error with the file and the line number."""
    path = write(tmp_path, '{"trajectory_id": "a", "label": true}', line)

    with pytest.raises(InputError, match=words) as caught:
        read_labels(path)

    assert str(caught.value).startswith(f"{path}:2: ")
