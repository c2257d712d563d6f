"""Traces as public bug reports describe them: the messages are those that were exchanged."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from oteval import create_tool_error_evaluator
from oteval.model import Span

from .builders import agent, asks, brief, chat, codes, gives, only, said, span, tool, user

ASK = asks(("look", {"order": 17}, "c1"))
HISTORY = [user("status?"), ASK, gives("paid", "c1")]
WHOLE = [
    ("user", "status?"),
    ("assistant", [("look", {"order": 17})]),
    ("tool", "paid"),
    ("assistant", "It is paid."),
]


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("ends", [(10, 10), (11, 12)])
def test_calls_that_start_in_the_same_millisecond(order: tuple[int, ...], ends: tuple[int, int]):
    """The call with the longer history is the later one, however they arrive (langfuse#9274)."""
    spans = [
        agent("r", 10, end=20),
        chat("first", 10, [user("status?")], ASK, parent="r", end=ends[0]),
        chat("a-last", 10, HISTORY, said("It is paid."), parent="r", end=ends[1]),
    ]
    arrived = [replace(spans[index], seq=seq) for seq, index in enumerate(order, 1)]

    run = only(*arrived)

    assert brief(run.messages) == WHOLE
    assert codes(run) == []


def _tried(id_: str, *, is_failed_known_by_arguments: bool) -> list[Span]:
    """Return the spans of a call whose tool failed and was tried again by the framework."""
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        **({"gen_ai.tool.call.id": id_} if id_ else {}),
    }
    if is_failed_known_by_arguments:
        attributes["gen_ai.tool.call.arguments"] = '{"order": 17}'
    failed = {"status_code": 2, "status_message": "timed out", "attributes": attributes}
    return [
        agent("r", 1, end=20),
        chat("first", 2, [user("status?")], ASK, parent="r"),
        span("t1", 4, parent="r", **failed),
        tool("t2", 6, of="look", id=id_, args={"order": 17}, result="paid", parent="r"),
    ]


@pytest.mark.parametrize("has_later_call", [True, False])
@pytest.mark.parametrize(("id_", "is_failed_known"), [("c1", False), ("c1", True), ("", True)])
def test_a_tool_that_failed_and_was_tried_again_is_one_call(
    id_: str, is_failed_known: bool, has_later_call: bool
):
    """The last run of the tool is the call's, and no error is left (grasp-agents#167)."""
    spans = _tried(id_, is_failed_known_by_arguments=is_failed_known)
    if has_later_call:
        spans.append(chat("last", 8, HISTORY, said("It is paid."), parent="r"))

    run = only(*spans)

    assert brief(run.messages) == (WHOLE if has_later_call else WHOLE[:3])
    assert [message.is_error for message in run.messages if message.role == "tool"] == [False]
    assert create_tool_error_evaluator()(outputs=run)["score"] is True


def test_a_repeated_call_of_the_model_is_a_call_of_its_own():
    """A model that asks again after a failure made two calls, and one of them failed."""
    again = asks(("look", {"order": 17}, "c2"))
    failed = gives("Error: timed out", "c1")
    sent = [user("status?"), ASK, failed]
    spans = [
        *_tried("", is_failed_known_by_arguments=True),
        chat("second", 5, sent, again, parent="r"),
        chat("last", 8, [*sent, again, gives("paid", "c2")], said("It is paid."), parent="r"),
    ]

    run = only(*spans)

    assert [len(message.tool_calls) for message in run.messages] == [0, 1, 0, 1, 0, 0]
    assert [m.is_error for m in run.messages if m.role == "tool"] == [True, False]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *[(text, "content_unreadable") for text in ("null", "None", "undefined")],
        ("[object Object]", "redacted"),
        ("[object Object],[object Object]", "redacted"),
        ("<generator object Chat.stream at 0x7f3a>", "redacted"),
        ("<openai.AsyncStream object at 0x7f3a5c>", "redacted"),
        ("[Filtered]", "redacted"),
    ],
)
def test_an_object_without_its_content_is_not_what_the_model_said(text: str, code: str):
    """The text stands for messages that were not written (openlayer-python#500, langfuse#5204)."""
    call = chat("c", 1, [user("status?")], attributes={"gen_ai.output.messages": text})

    run = only(call)

    assert brief(run.messages) == [("user", "status?"), ("assistant", None)]
    assert codes(run) == [code]


def test_a_result_under_the_role_of_the_user_is_no_question():
    """Anthropic's results are in the user's messages; the call's id tells (openinference#3817)."""
    call = {"id": "c1", "function": {"name": "look", "arguments": json.dumps({"order": 17})}}
    sent = [
        {"role": "user", "content": "status?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "user", "tool_call_id": "c1", "content": "paid"},
    ]

    run = only(chat("c", 1, sent, {"role": "assistant", "content": "It is paid."}))

    assert brief(run.messages) == WHOLE
