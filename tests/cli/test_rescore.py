"""`oteval rescore`: new evaluators over stored sessions, and the outcomes that changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Run


@pytest.fixture
def evaluator(tmp_path: Path) -> Any:
    """Return a function that writes oteval.yaml with one check, `order`, and its options."""

    def write(**fields: Any) -> None:
        check = {"name": "order", "type": "required_text", **fields}
        (tmp_path / "oteval.yaml").write_text(json.dumps({"evaluators": [check]}))

    return write


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_verdicts_of_the_same_version_are_used_again(filled: Run, evaluator: Any):
    """The second run evaluates nothing, and gives the same scores."""
    evaluator(texts="order")
    first = filled("rescore", "--json")

    second = filled("rescore")

    assert first.status == second.status == 0
    assert len(lines(first.out)) == 3
    assert "3 stored verdicts used again" in second.err


def test_again_runs_every_evaluator(filled: Run, evaluator: Any):
    """With --again no stored verdict is used."""
    evaluator(texts="order")
    filled("rescore")

    done = filled("rescore", "--again")

    assert "used again" not in done.err


def test_a_new_version_is_compared_with_the_one_before(filled: Run, evaluator: Any):
    """Runs whose outcome changed are counted, listed, and have `previous` in JSON."""
    evaluator(texts="e")
    before = {one["trajectory_id"]: one for one in lines(filled("rescore", "--json").out)}
    evaluator(texts="no such text anywhere")

    done = filled("rescore")
    after = lines(filled("rescore", "--json").out)

    passed = [one for one in before.values() if one["passed"]]
    assert passed
    row = next(line for line in done.out.splitlines() if line.startswith("order") and "3" in line)
    assert row
    changed = [one for one in after if "previous" in one]
    assert {one["trajectory_id"] for one in changed} == {one["trajectory_id"] for one in passed}
    for one in changed:
        assert one["previous"]["passed"] is True
        assert one["previous"]["version"] == before[one["trajectory_id"]]["version"]
        assert one["passed"] is False


def test_sessions_limit_what_is_scored(filled: Run, evaluator: Any):
    """Only the named session is scored; an unknown one is an error that says so."""
    evaluator(texts="order")
    (some, *_) = lines(filled("rescore", "--json").out)

    named = filled("rescore", some["trajectory_id"][:8], "--json")
    unknown = filled("rescore", "nowhere")

    assert [one["trajectory_id"] for one in lines(named.out)] == [some["trajectory_id"]]
    assert unknown.status == 2
    assert "nowhere: no such session" in unknown.err
