"""Model calls of which one side is missing: the gap says which, and what brings it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from oteval.model import Span
from oteval.reconstruct import reconstruct
from oteval.reconstruct.dialect import ModelCall
from oteval.reconstruct.span_reader import read_span

from .builders import NAMES, agent, asks, capture, chat, codes, gives, only, said, tool, user

OUTPUTS = ("output", "completion", "response", "outputs")
INPUTS = ("input", "prompt", "request", "inputs", "system_instructions")
# Captures whose content is in log records, or hidden already.
WITHOUT_CONTENT = ("nocontent", "hidden", "httpx_only", "fastmcp", "google_adk_native")


def without(span: Span, words: tuple[str, ...]) -> Span:
    """Return a model call's span without the attributes of one side's content."""
    kept = {
        key: value
        for key, value in span.attributes.items()
        if not (any(word in key.lower() for word in words) and len(str(value)) > 40)
        and not key.startswith(tuple(f"llm.{word}_messages" for word in words))
        and not key.startswith(tuple(f"gen_ai.{word}." for word in words))
    }
    return replace(span, attributes=kept, parent_id="")


def model_spans(name: str) -> list[Span]:
    """Return the spans of a capture's model calls that hold each side in attributes of its own."""
    spans, _ = capture(name)
    found = []
    for span in spans:
        operation = read_span(span, ())[1]
        both = bool(span.events) or "events" in span.attributes
        if isinstance(operation, ModelCall) and operation.is_complete and not both:
            found.append(span)
    return found


CAPTURED = [
    name
    for name in NAMES
    if not any(word in name for word in WITHOUT_CONTENT) and model_spans(name)
]


@pytest.mark.parametrize("name", CAPTURED)
def test_every_dialect_says_that_an_answer_is_missing(name: str):
    """Without what the model answered, the gap names the output and the switch."""
    cut = without(model_spans(name)[0], OUTPUTS)

    [found] = reconstruct([cut])

    assert not any(m.content for m in found.messages[-1:] if m.role == "assistant")
    [gap] = found.gaps
    assert gap.code == "content_not_captured"
    assert "no output of the model call; " in gap.detail
    assert len(gap.detail.partition("; ")[2]) > 20


@pytest.mark.parametrize("name", CAPTURED)
def test_every_dialect_says_that_a_question_is_missing(name: str):
    """Without what the model was sent, the gap names the input and the switch."""
    cut = without(model_spans(name)[0], INPUTS)

    [found] = reconstruct([cut])

    assert [m.role for m in found.messages if m.role != "tool"] == ["assistant"]
    [gap] = [gap for gap in found.gaps if gap.code == "content_not_captured"]
    assert "no input of the model call; " in gap.detail
    assert len(gap.detail.partition("; ")[2]) > 20


def test_tools_tell_the_calls_of_an_answer_that_is_missing():
    """The tools that ran after a question without an answer are what the model asked for."""
    found = only(
        agent("a", 1, end=99),
        chat("c", 2, [user("q")], parent="a"),
        tool("t", 4, args='{"x":1}', result="r", parent="a"),
    )

    assert [m.role for m in found.messages] == ["user", "assistant", "tool"]
    assert found.messages[1].tool_calls[0].arguments == {"x": 1}
    assert codes(found) == ["content_not_captured"]


def test_the_same_question_asked_again_is_no_rewrite():
    """A call without its answer that is made again does not make the history look rewritten."""
    found = only(
        agent("a", 1, end=99),
        chat("c", 2, [user("q")], parent="a"),
        chat("d", 4, [user("q")], said("a"), parent="a"),
    )

    assert [(m.role, m.content) for m in found.messages] == [("user", "q"), ("assistant", "a")]
    assert codes(found) == ["content_not_captured"]
    assert found.rewrites == ()


def test_the_next_call_shows_the_answer_that_was_missing():
    """What a later call repeats of the history stands in for the answer that was not captured."""
    look = asks(("look", {"x": 1}, "k"))
    found = only(
        agent("a", 1, end=99),
        chat("c", 2, [user("q")], parent="a"),
        tool("t", 4, id="k", args='{"x":1}', result="r", parent="a"),
        chat("d", 6, [user("q"), look, gives("r", "k")], said("a"), parent="a"),
    )

    assert [m.role for m in found.messages] == ["user", "assistant", "tool", "assistant"]
    assert found.messages[1].tool_calls[0].span_id == "t"


def test_an_agents_answer_stands_in_for_a_missing_one():
    """Where the model call lacks its answer, the agent's span may tell it."""
    told = {"gen_ai.output.messages": json.dumps([said("a")])}
    found = only(agent("a", 1, end=99, attributes=told), chat("c", 2, [user("q")], parent="a"))

    assert [(m.role, m.content) for m in found.messages] == [("user", "q"), ("assistant", "a")]
    assert codes(found) == ["content_not_captured"]


def test_a_request_and_its_instant_answer_are_one_call():
    """A streamed call that is written as two spans is counted once, whichever holds the input."""
    for sent in ([user("q")], None):
        found = only(
            agent("a", 1, end=99),
            chat("c", 2, [user("q")], parent="a", scope="s"),
            chat("d", 9, sent, said("a"), parent="a", scope="s", end=9),
        )

        assert [(m.role, m.content) for m in found.messages] == [("user", "q"), ("assistant", "a")]
        assert (codes(found), found.usage.model_calls) == ([], 1)


def test_parallel_streams_have_their_own_answers():
    """Of two streams at once, each instant span answers the request that it repeats."""
    spans = [
        chat("c", 2, [user("one")], parent="r", scope="s", end=5),
        chat("d", 3, [user("two")], parent="r", scope="s", end=6),
        chat("e", 8, [user("two")], said("2"), parent="r", scope="s", end=8),
        chat("f", 9, [user("one")], said("1"), parent="r", scope="s", end=9),
    ]

    found = only(agent("r", 1, end=99), *spans)

    told = [m.content for m in found.messages]
    told += [m.content for rewrite in found.rewrites for m in rewrite.messages]
    assert sorted(map(str, told)) == ["1", "2", "one", "two"]
    assert found.usage.model_calls == 2


def test_a_role_that_nobody_knows_is_no_role():
    """A message of an unknown role is shown as its side's, with the role as its name and a gap."""
    found = only(chat("c", 1, [user("q"), {"role": "critic", "content": "x"}], said("a")))

    assert [(m.role, m.name) for m in found.messages] == [
        ("user", ""),
        ("user", "critic"),
        ("assistant", ""),
    ]
    assert codes(found) == ["content_unreadable"]
    assert "'critic'" in found.gaps[0].detail


@pytest.mark.parametrize("item", [{"type": "odd_item", "data": 1}, {"payload": {"x": 1}}, 7])
def test_an_item_that_nobody_knows_is_kept_and_named(item: object):
    """An unknown item stays with the message before it, and a gap says so."""
    found = only(chat("c", 1, [user("q"), item], said("a")))

    assert [m.role for m in found.messages] == ["user", "assistant"]
    assert len(found.messages[0].parts) == 1
    assert codes(found) == ["content_unreadable"]
