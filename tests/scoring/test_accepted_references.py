"""Several accepted references in oteval.yaml."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oteval.base.errors import ConfigError
from oteval.model import Score
from oteval.scoring import prepare, score as score_all
from oteval.scoring.config import parse_config
from oteval.scoring.references import reference_of_run
from oteval.store import Store

from ..make import asks, call, keep, run

REFUND = [{"role": "assistant", "tool_calls": [{"name": "refund", "args": {"id": 1}}]}]
SEARCH = [{"role": "assistant", "tool_calls": [{"name": "search", "args": {"q": "x"}}]}]
REFUNDED = asks(call("refund", {"id": 1}, "1", span_id="c" * 16))
ASKED = asks(call("ask", {"id": 1}, "1", span_id="c" * 16))


@pytest.fixture(autouse=True)
def base(tmp_path: Path) -> Path:
    """Return the folder of the configuration, with two references."""
    (tmp_path / "refund.json").write_text(json.dumps(REFUND))
    (tmp_path / "search.json").write_text(json.dumps(SEARCH))
    return tmp_path


def rules(*references: Any, **fields: Any) -> str:
    """Return a configuration with several accepted references."""
    rule = {"name": "e", "type": "trajectory_match", "reference": {"any": references}, **fields}
    return json.dumps({"evaluators": [rule]})


def scored(store: Store, base: Path, config: str) -> dict[str, Score]:
    """Return the scores by run."""
    scores = score_all(store, parse_config(config), base)
    return {score.trajectory_id: score for score in scores}


def test_the_comment_and_the_metadata_name_the_reference(store: Store, base: Path) -> None:
    """A pass names the reference that it matches, and a failure the closest."""
    passing, failing = run(1, REFUNDED), run(2, ASKED)
    keep(store, passing, failing)

    scores = scored(store, base, rules("search.json", "refund.json"))

    assert scores[passing.id].comment == "matches refund.json"
    assert scores[passing.id].metadata["reference"] == "refund.json"
    assert scores[failing.id].comment.startswith("closest of 2 references, search.json: ")


def test_a_run_is_compared_with_the_reference_that_its_score_names(
    store: Store, base: Path
) -> None:
    """The diff of a run shows the messages that the comment is about."""
    refunded = run(1, REFUNDED)
    keep(store, refunded)
    config = parse_config(rules("search.json", "refund.json"))

    before = reference_of_run(refunded, config, store, base)[1]
    scored(store, base, rules("search.json", "refund.json"))
    after = reference_of_run(refunded, config, store, base)[1]

    assert (before.name, after.name) == ("search.json", "refund.json")


@pytest.mark.parametrize(
    ("references", "message"),
    [
        (["refund.json", "none.json"], "none.json"),
        (["refund.json", {"name": "gone"}], "reference gone: "),
        (["refund.json", "refund.json"], "refund.json is accepted twice"),
    ],
)
def test_a_missing_one_of_several_is_an_error(
    store: Store, base: Path, references: list[Any], message: str
) -> None:
    """The error names the reference, though the others can be read."""
    with pytest.raises(ConfigError) as error:
        prepare(parse_config(rules(*references)), store, base)

    assert message in str(error.value)


def test_a_file_and_a_case_may_hold_several(store: Store, base: Path) -> None:
    """A JSON file of ``{"any": [...]}`` and such messages of a case are several references."""
    (base / "both.json").write_text(json.dumps({"any": [SEARCH, REFUND]}))
    case = {"case": "1", "messages": {"any": {"short": REFUND}}}
    (base / "cases.jsonl").write_text(json.dumps(case))
    refunded = run(1, REFUNDED, attributes={"case": "1"})
    keep(store, refunded)

    named = {"type": "trajectory_match", "name": "e"}
    files = scored(store, base, json.dumps({"evaluators": [{**named, "reference": "both.json"}]}))
    cases = scored(
        store, base, rules("search.json", {"dataset": "cases.jsonl", "key": "case"}, name="f")
    )

    assert files[refunded.id].metadata["reference"] == "any[1]"
    assert cases[refunded.id].metadata["reference"] == "cases.jsonl short"


def test_a_run_without_its_case_is_not_evaluated(store: Store, base: Path) -> None:
    """The reference that a run lacks is named, and the others alone give no verdict."""
    (base / "cases.jsonl").write_text(json.dumps({"case": "1", "messages": REFUND}))
    refunded = run(1, REFUNDED)
    keep(store, refunded)

    scores = scored(store, base, rules("refund.json", {"dataset": "cases.jsonl", "key": "case"}))

    assert scores[refunded.id].status == "not_evaluated"
    assert scores[refunded.id].comment.startswith("reference cases.jsonl: ")


def test_missing_arguments_leave_the_verdict_open(store: Store, base: Path) -> None:
    """A run whose arguments are not in the trace fails no reference that it may match."""
    unknown, other = run(1, asks(call("refund", call_id="1", span_id="c" * 16))), run(2, ASKED)
    keep(store, unknown, other)

    scores = scored(store, base, rules("search.json", "refund.json"))

    assert scores[unknown.id].status == "not_evaluated"
    assert scores[unknown.id].comment.startswith("compared with refund.json: ")
    assert scores[other.id].passed is False


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            {"type": "judge", "model": "openai:m", "reference": {"any": ["a.json"]}},
            "evaluator 'j': reference: evaluators of this type take one reference, not",
        ),
        (
            {"type": "trajectory_match", "reference": {"any": [{"any": ["a.json"]}]}},
            "evaluator 'j': reference.any.0: write a file, {trajectory: ID}, {name: NAME} or",
        ),
        (
            {"type": "trajectory_match", "reference": {"any": [{"example": True}]}},
            "evaluator 'j': reference.any.0: write a file",
        ),
    ],
)
def test_other_references_are_refused(rule: dict[str, Any], message: str) -> None:
    """A type that compares with one reference takes no list, and lists are not nested."""
    with pytest.raises(ConfigError) as error:
        parse_config(json.dumps({"evaluators": [{"name": "j", **rule}]}))

    assert message in str(error.value)
