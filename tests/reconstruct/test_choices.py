from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Span
from oteval.reconstruct import reconstruct

from .builders import asks, brief, chat, codes, gives, only, said, span, texts, tool, user


def ended(message: dict[str, Any]) -> dict[str, Any]:
    """Return an answer that says why it ended, as each of several choices does."""
    return {**message, "finish_reason": "stop"}


def several(
    name: str, start: int, sent: list[dict[str, Any]], *got: Any, count: int = 0, **fields: Any
) -> Span:
    """Return a model call that gave several choices."""
    attributes: dict[str, Any] = {"gen_ai.output.messages": json.dumps([*map(ended, got)])}
    if count:
        attributes["gen_ai.request.choice.count"] = count
    return chat(name, start, sent, attributes=attributes, **fields)


def test_the_first_of_several_choices_is_shown():
    """Without a next call, the first choice is the answer and the others are kept apart."""
    trajectory = only(several("c", 1, [user("q")], said("a"), said("b"), said("c")))

    assert texts(trajectory) == ["q", "a"]
    assert codes(trajectory) == ["several_choices"]
    assert "3 answers" in trajectory.gaps[0].detail
    assert [(r.at, r.span_id, brief(r.messages)) for r in trajectory.rewrites] == [
        (1, "c", [("assistant", "b"), ("assistant", "c")])
    ]


def test_the_choice_that_the_next_call_holds_is_shown():
    """Where the agent went on with another choice than the first, that is the conversation."""
    call = ("look", {"x": 1}, "k")
    history = [user("q"), asks(call), gives("r", "k")]

    trajectory = only(
        several("c1", 1, [user("q")], said("a"), asks(call), count=2),
        chat("c2", 10, history, said("done"), parent="c1"),
        tool("t", 5, id="k", args={"x": 1}, result="r", parent="c1"),
    )

    assert brief(trajectory.messages) == [
        ("user", "q"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r"),
        ("assistant", "done"),
    ]
    assert [(r.at, brief(r.messages)) for r in trajectory.rewrites] == [(1, [("assistant", "a")])]
    assert codes(trajectory) == ["several_choices"]


def test_the_next_turn_tells_which_choice_was_taken():
    """A later trace of the conversation that goes on with the second choice shows that one."""
    first, second = reconstruct(
        [
            several("c1", 1, [user("q")], said("a"), said("b"), session="s"),
            chat("c2", 10, [user("q"), said("b"), user("r")], said("z"), trace="b" * 32,
                 session="s"),
        ]
    )  # fmt: skip

    assert texts(first) == ["q", "b"]
    assert texts(second) == ["q", "b", "r", "z"]
    assert (second.history, second.turn) == (first, 2)
    assert "history_rewritten" not in codes(second)


def test_one_answer_in_several_messages_is_no_choice():
    """Messages that do not each say why they end are one answer, as the Responses API gives it."""
    output = json.dumps([asks(("a", {}, "1")), asks(("b", {}, "2"))])

    trajectory = only(chat("c", 1, [user("q")], attributes={"gen_ai.output.messages": output}))

    assert brief(trajectory.messages) == [("user", "q"), ("assistant", [("a", {}), ("b", {})])]
    assert trajectory.rewrites == ()


RAW = {"choices": [{"message": {"role": "assistant", "content": text}} for text in ("a", "b")]}
FLAT = {
    f"llm.output_messages.{n}.message.{key}": value
    for n, text in enumerate("ab")
    for key, value in (("role", "assistant"), ("content", text))
}
OPENINFERENCE = {
    "openinference.span.kind": "LLM",
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.content": "q",
    "output.value": json.dumps(RAW),
}
TRACELOOP = {
    "llm.request.type": "chat",
    "gen_ai.prompt.0.role": "user",
    "gen_ai.prompt.0.content": "q",
    **{
        f"gen_ai.completion.{n}.{key}": value
        for n, text in enumerate("ab")
        for key, value in (("role", "assistant"), ("content", text), ("finish_reason", "stop"))
    },
}


@pytest.mark.parametrize(
    "attributes", [{**OPENINFERENCE, **FLAT}, OPENINFERENCE, TRACELOOP],
    ids=["openinference", "openinference raw", "traceloop"],
)  # fmt: skip
def test_choices_are_told_apart_in_other_dialects(attributes: dict[str, Any]):
    """The raw response of OpenInference, or Traceloop's finish reasons, tell choices apart."""
    trajectory = only(span("c", 1, attributes=attributes))

    assert texts(trajectory) == ["q", "a"]
    assert [brief(r.messages) for r in trajectory.rewrites] == [[("assistant", "b")]]


@pytest.mark.parametrize("count", [1, 2])
def test_flat_answers_are_choices_if_as_many_were_asked_for(count: int):
    """The parameters tell, where the raw answer was not captured."""
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.invocation_parameters": json.dumps({"n": count}),
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "q",
    }
    for at, text in enumerate("ab"):
        attributes[f"llm.output_messages.{at}.message.role"] = "assistant"
        attributes[f"llm.output_messages.{at}.message.content"] = text
    run = only(span("c", attributes=attributes))

    assert [m.content for m in run.messages] == (["q", "a"] if count == 2 else ["q", "a", "b"])
    assert codes(run) == (["several_choices"] if count == 2 else [])
