"""Runs selected by their question, and references by question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oteval.base.errors import ConfigError
from oteval.model import Message, Trajectory
from oteval.model.selection import Selection, parse_asked, parse_condition
from oteval.scoring import score
from oteval.scoring.config import parse_config
from oteval.store import Store

from ..make import asks, call, keep, run

REFUND, STATUS, LITERAL = "I want a refund\nfor order 7", "Where is order 7?", "~refund"


def runs() -> list[Trajectory]:
    """Return runs of three questions, and two whose question is not known."""
    refund = asks(call("refund", {"id": 7}))
    return [
        run(1, Message("system", "refund"), Message("user", REFUND), refund),
        run(2, Message("user", STATUS), asks(call("look", {"id": 7}))),
        run(3, Message("user", LITERAL), refund),
        run(4, Message("user", None), refund),
        run(5, Message("assistant", "refund"), refund),
    ]


@pytest.fixture
def kept(store: Store) -> Store:
    """Return a store of the runs."""
    keep(store, *runs())
    return store


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ({"asked": "~refund"}, [1, 3]),
        ({"asked": "~^Where"}, [2]),
        ({"asked": "~(?i)ORDER 7"}, [1, 2]),
        ({"asked": STATUS}, [2]),
        ({"asked": f"={LITERAL}"}, [3]),
        ({"asked": [STATUS, "~refund$"]}, [2, 3]),
        ({"asked": "refund"}, []),
        ({"asked": "~order", "agent": "nobody"}, []),
        ({"asked": "~.", "not": {"asked": "~refund"}}, [2]),
        ({"conditions": ["asked~refund"]}, [1, 3]),
    ],
)
def test_runs_are_chosen_by_their_question(kept: Store, where: dict[str, Any], numbers: list[int]):
    """The user's first message counts, not prompts, answers or results; unknown is never chosen."""
    rule = {"name": "e", "type": "tool_errors", "where": where}
    selection = parse_config(json.dumps({"evaluators": [rule]})).evaluators[0].where.selection()

    found = list(kept.trajectories.read(selection))

    assert [one.start_ns for one in found] == numbers
    assert [one.start_ns for one in runs() if selection.matches(one)] == numbers


def test_only_chosen_runs_are_scored(kept: Store):
    """An evaluator with `asked` gives no score to other runs."""
    text = 'evaluators: [{name: e, type: tool_errors, where: {asked: "~refund"}}]'

    found = list(score(kept, parse_config(text), Path()))

    assert {one.trajectory_id for one in found} == {run(1).id, run(3).id}


@pytest.mark.parametrize("text", ["~(", "~", "", "  ", "=", "~(?=x)"])
def test_a_question_that_cannot_be_sought_is_an_error(text: str):
    """The error names the line of the file and the problem."""
    with pytest.raises(ConfigError, match="asked"):
        parse_asked(text)
    rule = {"name": "e", "type": "tool_errors", "where": {"asked": text}}
    with pytest.raises(ConfigError, match="asked"):
        parse_config(json.dumps({"evaluators": [rule]}))


def test_the_command_line_knows_the_question(kept: Store):
    """`--where asked~TEXT` is the same filter."""
    selection = Selection(conditions=(parse_condition("asked~refund"),))

    assert [one.start_ns for one in kept.trajectories.read(selection)] == [1, 3]


def written(path: Path, *lines: dict[str, Any]) -> None:
    """Write a dataset."""
    (path / "d.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def reference(name: str) -> list[dict[str, Any]]:
    """Return reference messages with one call."""
    function = {"name": name, "arguments": '{"id": 7}'}
    return [{"role": "assistant", "tool_calls": [{"type": "function", "function": function}]}]


RULE = """
evaluators:
  - {name: e, type: trajectory_match, mode: superset, reference: {dataset: d.jsonl, key: question}}
"""


def test_references_are_tied_to_questions(kept: Store, tmp_path: Path):
    """Each run is compared with the reference of its question; white space does not matter."""
    written(
        tmp_path,
        {"question": "I want a  refund for order 7 ", "messages": reference("refund")},
        {"question": STATUS, "messages": reference("other")},
    )

    found = {s.trajectory_id: s for s in score(kept, parse_config(RULE), tmp_path)}

    assert [found[run(n).id].passed for n in range(1, 6)] == [True, False, None, None, None]
    assert found[run(3).id].comment == "d.jsonl has no case '~refund'"
    for number in (4, 5):
        assert found[run(number).id].status == "not_evaluated"
        assert "does not hold the run's question" in found[run(number).id].comment


def test_a_question_asked_twice_in_a_dataset_is_an_error(kept: Store, tmp_path: Path):
    """Two references for one question would be chosen by chance."""
    lines = [{"question": text, "messages": reference("f")} for text in ("a b", "a  b\n")]
    written(tmp_path, *lines)

    with pytest.raises(ConfigError, match=r"d.jsonl:2: case 'a b' occurs twice"):
        list(score(kept, parse_config(RULE), tmp_path))


def test_a_dataset_without_questions_says_so(kept: Store, tmp_path: Path):
    """The error names a line that lacks the key."""
    written(tmp_path, {"messages": reference("f")})

    with pytest.raises(ConfigError, match=r"d.jsonl:1: a case needs 'question' and 'messages'"):
        list(score(kept, parse_config(RULE), tmp_path))
