"""Content that a span should have and does not: it is missing, not empty."""

from __future__ import annotations

from typing import Any

import pytest

from oteval import create_tool_error_evaluator
from oteval.model import Event

from .builders import agent, asks, chat, codes, only, said, tool, user

ASK = asks(("look", {"order": 17}, "c1"))
EMPTY = {"role": "assistant", "parts": []}
BLANK = {"role": "assistant", "parts": [{"type": "text", "content": ""}]}


@pytest.mark.parametrize("answer", [EMPTY, BLANK])
def test_an_empty_answer_of_a_model_that_stopped_for_tools_lacks_its_calls(answer: dict[str, Any]):
    """Some instrumentations do not write the calls (openinference#1720)."""
    run = only(chat("c", 1, [user("q")], {**answer, "finish_reason": "tool_calls"}))

    assert codes(run) == ["content_not_captured"]


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
def test_an_answer_may_be_empty(reason: str):
    """Nothing is missing where the model ended for another reason."""
    run = only(chat("c", 1, [user("q")], {**EMPTY, "finish_reason": reason}))

    assert (run.messages[-1].content, codes(run)) == ("", [])


def test_a_tool_that_ran_without_a_result_leaves_a_gap():
    """Its result is not known; an empty one is a text."""
    spans = [agent("r", 1, end=9), chat("c", 2, [user("q")], ASK, parent="r")]
    unknown = only(*spans, tool("t", 4, id="c1", args={"order": 17}, parent="r"))
    empty = only(*spans, tool("t", 4, id="c1", args={"order": 17}, result="", parent="r"))

    assert codes(unknown) == ["content_not_captured"]
    assert codes(empty) == []


def test_a_result_that_the_next_call_has_is_not_missing():
    """Many instrumentations write it in the messages alone."""
    result = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": 1}]}
    run = only(
        agent("r", 1, end=9),
        chat("c", 2, [user("q")], ASK, parent="r"),
        tool("t", 4, id="c1", args={"order": 17}, parent="r"),
        chat("d", 6, [user("q"), ASK, result], said("done"), parent="r"),
    )

    assert codes(run) == []


def test_a_tool_that_failed_has_its_error_as_the_result():
    """Neither a failure nor a tool that waits for a person lacks a result."""
    failed = (Event("exception", attributes={"exception.type": "KeyError"}),)
    waits = (Event("exception", attributes={"exception.type": "GraphInterrupt"}),)
    spans = [agent("r", 1, end=9), chat("c", 2, [user("q")], ASK, parent="r")]
    broken, waiting = (
        only(*spans, tool("t", 4, id="c1", args={"order": 17}, parent="r", events=events))
        for events in (failed, waits)
    )

    assert (codes(broken), codes(waiting)) == ([], [])
    assert create_tool_error_evaluator()(outputs=broken)["score"] is False
