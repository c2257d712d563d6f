"""What is said, and what is answered."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from oteval import (
    ConfigError,
    InputError,
    create_final_answer_evaluator,
    create_required_text_evaluator,
)
from oteval.evaluators.checks.final_answer import last_number, normalised
from oteval.model import Message

from ...make import gap, run
from .helpers import asks, comment, runs, says, score

TALK = [
    Message("user", "Refund 42?"),
    says("Let me look."),
    Message("tool", "ok"),
    says("Done: 42"),
]


@pytest.mark.parametrize(
    ("options", "holds"),
    [
        ({"texts": "Done"}, True),
        ({"texts": ["Done", "look"]}, True),
        ({"texts": ["Done", "Refund"]}, False),
        ({"texts": ["Done", "Refund"], "match": "any"}, True),
        ({"texts": ["x", "y"], "match": "any"}, False),
        ({"texts": ["x", "y"], "match": "none"}, True),
        ({"texts": ["x", "look"], "match": "none"}, False),
        ({"texts": "Refund", "said_by": "user"}, True),
        ({"texts": "Refund", "said_by": "anyone"}, True),
        ({"texts": "ok", "said_by": "tool"}, True),
        ({"texts": "done"}, False),
        ({"texts": "done", "ignore_case": True}, True),
        ({"texts": r"\d{2}$", "regex": True}, True),
        ({"texts": r"\d{2}$"}, False),
        ({"texts": "look", "last_only": True}, False),
    ],
)
def test_texts(options: dict[str, Any], holds: bool) -> None:
    """Each option looks where it says."""
    assert create_required_text_evaluator(**options)(outputs=TALK)["score"] is holds


def test_the_comment_names_what_is_missing_or_said() -> None:
    """Missing texts are listed; a text that must not be said is named with its message."""
    missing = create_required_text_evaluator(texts=["x", "y", "look"])
    some = create_required_text_evaluator(texts=["x", "y"], match="any", said_by="anyone")
    none = create_required_text_evaluator(texts=["look"], match="none")

    assert comment(missing, TALK) == "the assistant never says 'x', 'y'"
    assert comment(some, TALK) == "no one says any of 'x', 'y'"
    assert comment(none, TALK) == "message 1 says 'look'"
    assert missing(outputs=TALK)["metadata"] == {
        "found": {"look": 1},
        "absent": ["x", "y"],
        "messages": 2,
    }


@pytest.mark.parametrize("code", ["content_truncated", "content_shortened", "redacted"])
def test_text_that_was_cut_may_hold_anything(code: str) -> None:
    """Only what was found is sure: a forbidden text that was said, a required one that was."""
    made = run(1, says("Done"), gaps=(gap(code),))

    def status(text: str, match: str) -> Any:
        check = create_required_text_evaluator(texts=text, match=match)
        found = score(check, made)
        return found.passed if found.status == "ok" else found.status

    assert status("Done", "all") is True
    assert status("x", "all") == "not_evaluated"
    assert status("Done", "none") is False
    assert status("x", "none") == "not_evaluated"


@given(st.lists(st.sampled_from(["Done", "look", "x"]), min_size=1))
def test_all_implies_any_and_none_is_its_opposite(texts: list[str]) -> None:
    """The three ways to match agree with each other."""
    everything, some, none = (
        create_required_text_evaluator(texts=texts, match=match)(outputs=TALK)["score"]
        for match in ("all", "any", "none")
    )

    assert not everything or some
    assert none is not some


@pytest.mark.parametrize(
    ("mode", "answer", "wanted", "holds"),
    [
        ("exact", "Paris", "Paris", True),
        ("exact", " Paris\n", "Paris", True),
        ("exact", "paris", "Paris", False),
        ("normalised", "  the  ANSWER.", "The answer", True),
        ("normalised", "**Paris**", "paris", True),
        ("normalised", "Paris, France", "Paris", False),
        ("numeric", "It is 1,234.50 in all.", "1234.5", True),
        ("numeric", "first 3, then 4", 4, True),
        ("numeric", "first 3, then 4", 3, False),
        ("numeric", "-5", 5, False),
        ("numeric", "\u22125 degrees", -5, True),
        ("numeric", "1e3", 1000, True),
        ("numeric", "none", 3, False),
        ("numeric", ".5", 0.5, True),
        ("numeric", "10-12", 12, True),
        ("numeric", "$20.", 20, True),
    ],
)
def test_answers(mode: str, answer: str, wanted: Any, holds: bool) -> None:
    """Each mode compares what it says."""
    check = create_final_answer_evaluator(mode=mode)

    assert check(outputs=[says(answer)], reference_outputs=wanted)["score"] is holds
    assert (
        create_final_answer_evaluator(mode=mode, expected=wanted)(outputs=[says(answer)])["score"]
        is holds
    )


def test_numbers_may_differ_by_a_tolerance() -> None:
    """By an amount, or by a share of what was wanted; the comment has the difference."""
    answer = [says("about 102")]

    def result(**options: Any) -> Any:
        check = create_final_answer_evaluator(mode="numeric", **options)
        return check(outputs=answer, reference_outputs=100)

    assert result(tolerance=2)["score"] is True
    assert result(relative_tolerance=0.02)["score"] is True
    assert result(tolerance=1)["comment"] == (
        "the answer's number is 102, wanted was 100 (off by 2, at most 1)"
    )
    assert result()["metadata"]["off"] == 2.0


def test_a_reference_may_be_a_trajectory() -> None:
    """Its own final answer is what is wanted."""
    wanted = [Message("user", "x"), asks("t"), Message("tool", "y"), says("42")]

    found = create_final_answer_evaluator()(outputs=[says("43")], reference_outputs=wanted)

    assert found["comment"] == 'the answer is "43", wanted was "42"'


@pytest.mark.parametrize(
    "outputs",
    [
        [],
        [asks("t")],
        [says("x"), Message("tool", "y")],
        [replace(asks("t"), content="x")],
    ],
)
def test_a_run_that_ends_otherwise_has_no_answer(outputs: list[Message]) -> None:
    """No text at the end is a failure, whatever was said before."""
    found = create_final_answer_evaluator(expected="x")(outputs=outputs)

    assert (found["score"], found["comment"]) == (False, "the run ends without an answer")


def test_an_answer_that_was_not_captured_is_not_evaluated() -> None:
    """A missing or cut text may be the right one; nor is there a verdict without a reference."""
    made = run(1, Message("assistant"), gaps=(gap("content_not_captured"),))
    cut = run(1, says("4"), gaps=(gap("content_shortened"),))
    check = create_final_answer_evaluator()

    assert score(check, made, [says("42")]).status == "not_evaluated"
    assert score(check, cut, [says("42")]).status == "not_evaluated"
    assert check(outputs=[says("x")])["comment"] == "there is no reference"


@pytest.mark.parametrize(
    ("mode", "wanted", "message"),
    [
        ("numeric", "none", "reference_outputs: the answer 'none' holds no number"),
        ("exact", [asks("t")], "reference_outputs: it ends without an answer"),
        ("exact", {"answer": "x"}, "reference_outputs: a dict needs"),
    ],
)
def test_a_reference_without_an_answer_is_refused(mode: str, wanted: Any, message: str) -> None:
    """The text names the reference; in `oteval score` it is an error, never a score."""
    check = create_final_answer_evaluator(mode=mode)

    with pytest.raises(InputError, match=message):
        check(outputs=[says("5")], reference_outputs=wanted)
    if isinstance(wanted, list):
        assert score(check, run(1, says("5")), wanted).status == "error"


def test_captured_answers() -> None:
    """The answer of a real run is its own reference, and not that of another."""
    first, second, *_ = runs("genai_openai_chat")
    check = create_final_answer_evaluator(mode="normalised")

    assert score(check, first, first.own_messages).passed is True
    assert score(check, first, second.own_messages).passed is False


@given(st.text())
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    """What is normalised stays so, and case and outer space never count."""
    once = normalised(text)

    assert normalised(once) == once
    assert normalised(f"  {text}\n") == once


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9
    )
)
def test_numbers_are_read_as_they_are_written(value: Decimal) -> None:
    """A number with or without commas between thousands is read back, text around it or not."""
    for text in (f"{value}", f"{value:,}", f"it is {value:,}, really", f"({value:f})."):
        assert last_number(text) == value


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (create_required_text_evaluator, {"texts": []}, "texts is"),
        (create_required_text_evaluator, {"texts": [""]}, "none of them empty"),
        (create_required_text_evaluator, {"texts": "(", "regex": True}, "not a valid pattern"),
        (create_required_text_evaluator, {"texts": "x", "match": "some"}, "match: unknown value"),
        (create_required_text_evaluator, {"texts": "x", "said_by": "me"}, "said_by: unknown value"),
        (create_final_answer_evaluator, {"mode": "fuzzy"}, "mode: unknown value 'fuzzy'"),
        (create_final_answer_evaluator, {"tolerance": 1}, "a tolerance is for mode 'numeric'"),
        (create_final_answer_evaluator, {"mode": "numeric", "expected": "x"}, "holds no number"),
        (create_final_answer_evaluator, {"expected": [1]}, "expected is"),
    ],
)
def test_wrong_arguments_are_refused(make: Any, options: dict[str, Any], message: str) -> None:
    """The text names the argument."""
    with pytest.raises(ConfigError, match=message):
        make(**options)
