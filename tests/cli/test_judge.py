from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import CHAT, Prepare, Run

CONFIG = """
evaluators:
  - {name: quality, type: python, call: "verdicts:judge"}
"""
MODULE = """
from pathlib import Path

def judge(trajectory):
    asked = Path("asked.txt")
    count = int(asked.read_text()) if asked.exists() else 0
    asked.write_text(str(count + 1))
    return {"score": not trajectory.gaps, "comment": "by its gaps"}
"""


def score(oteval: Run) -> None:
    """Score the runs of a capture by a judge."""
    Path("oteval.yaml").write_text(CONFIG)
    Path("verdicts.py").write_text(MODULE)
    oteval("ingest", CHAT)
    assert oteval("score").status == 0


@pytest.fixture
def judged(oteval: Run, prepare: Prepare) -> list[str]:
    """Return the ids of runs that a judge has scored: two that pass, and one that fails."""
    prepare(score)
    return [row["trajectory_id"] for row in oteval("trajectories", "--json").rows]


def test_labels_by_hand_are_compared_with_the_judge(oteval: Run, judged: list[str]):
    """Single labels give the agreement, the confusion matrix and the run that differs."""
    first, second, third = judged
    oteval("judge", "label", first[:8], "pass")
    oteval("judge", "label", second, "fail", "--note", "rude", "--person", "ada")
    oteval("judge", "label", third, "fail", "--evaluator", "quality", "--score", "0.3")

    done = oteval("judge", "calibrate", "quality")

    text = " ".join(done.out.split())
    assert done.status == 0
    assert "agreement 0.667" in text
    assert "labelled runs 3" in text
    assert "3 labelled runs are few" in text
    assert second[:8] in text
    assert "rude" in text


def test_a_file_of_labels_is_kept(oteval: Run, judged: list[str]):
    """Labels of a file are stored; labels of unknown runs are reported."""
    lines = [{"trajectory_id": name, "label": name != judged[2]} for name in judged]
    lines.append({"trajectory_id": "0" * 16, "label": True})
    Path("labels.jsonl").write_text("\n".join(map(json.dumps, lines)))

    done = oteval("judge", "calibrate", "quality", "--labels", "labels.jsonl", "--json")
    again = oteval("judge", "calibrate", "quality", "--json")

    assert "1 label for a run that the database does not have, such as 0000" in done.err
    assert done.rows == again.rows
    (row,) = done.rows
    assert (row["labelled"], row["kappa"], row["agreement"]) == (3, 1.0, 1.0)
    assert row["confusion"]["people_pass_judge_pass"] == 2
    assert row["disagreements"] == []
    assert row["corrected_pass_rate"] == pytest.approx(2 / 3)


def test_a_judge_is_asked_again(oteval: Run, judged: list[str]):
    """With --repeat each labelled run is judged anew, and the votes give the flip rate."""
    oteval("judge", "label", judged[0], "pass")
    before = int(Path("asked.txt").read_text())

    done = oteval("judge", "calibrate", "quality", "--repeat", "3", "--json")

    assert int(Path("asked.txt").read_text()) == before + 3
    (row,) = done.rows
    assert row["consistency"]["votes"] == 4
    assert row["consistency"]["flip_rate"] == 0.0


def test_kappa_can_be_a_gate(oteval: Run, judged: list[str]):
    """Below --min-kappa the exit status is 1."""
    for name in judged:
        oteval("judge", "label", name, "fail")

    assert oteval("judge", "calibrate", "quality", "--min-kappa", "0.5").status == 1
    assert oteval("judge", "calibrate", "quality", "--min-kappa", "-1").status == 0


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["quality"], 3, "no labelled run has a verdict"),
        (["nobody"], 2, "no scores of 'nobody'"),
        (["quality", "--version", "zz"], 2, "no unique version 'zz'"),
        (["quality", "--labels", "none.jsonl"], 2, "none.jsonl: no such file"),
    ],
)
def test_what_cannot_be_calibrated_says_why(
    oteval: Run, judged: list[str], arguments: list[str], status: int, words: str
):
    """Nothing labelled, no such judge or version, and a missing file each have their line."""
    done = oteval("judge", "calibrate", *arguments)

    assert done.status == status
    assert words in done.err
    assert done.err.count("\n") == 1


def test_few_labels_say_how_many_more_are_needed(oteval: Run, judged: list[str]):
    """Three labels that agree with the judge make nothing certain: the interval is wide."""
    for one in judged:
        oteval("judge", "label", one, "pass")

    shown = " ".join(oteval("judge", "calibrate", "quality").out.split())
    found = oteval("judge", "calibrate", "quality", "--json").rows[0]

    assert "more labels needed: 37" in shown
    assert found["more_labels_needed"] == 37
    low, high = found["corrected_pass_rate_interval"]
    assert 0 <= low < 0.35
    assert low < high <= 1
    assert "nan" not in shown.lower()
