"""Tool runs in traces of their own: spans by hand, as loops without a span around them write."""

from __future__ import annotations

import itertools

from oteval.model import Span
from oteval.reconstruct import explain, reconstruct

from .builders import agent, asks, brief, chat, gives, said, tool, user

ASKED = asks(("look", {"x": 1}, "k1"), ("look", {"x": 2}, "k2"))
RESULTS = [gives("r1", "k1"), gives("r2", "k2")]
TOLD = [
    ("user", "q"),
    ("assistant", [("look", {"x": 1}), ("look", {"x": 2})]),
    ("tool", "r1"),
    ("tool", "r2"),
    ("assistant", "a"),
]


def loop(*, ids: bool) -> list[Span]:
    """Return a loop's spans, each a trace of its own; the second tool raises."""
    first, second = ("k1", "k2") if ids else ("", "")
    return [
        chat("c", 1, [user("q")], ASKED, trace="a" * 32),
        tool("s", 4, id=first, args='{"x": 1}', result="r1", trace="b" * 32),
        tool("t", 6, id=second, args='{"x": 2}', trace="c" * 32, status_code=2),
        chat("d", 8, [user("q"), ASKED, *RESULTS], said("a"), trace="d" * 32),
    ]


def test_tools_of_a_loop_without_a_span_belong_to_its_run():
    """By the calls' ids, or by names and arguments, in any order; no tool is a run of its own."""
    for ids, spans in itertools.product((True, False), itertools.permutations(range(4))):
        given = loop(ids=ids)
        (found,) = reconstruct([given[i] for i in spans])

        assert brief(found.messages) == TOLD
        assert [m.is_error for m in found.messages if m.role == "tool"] == [False, True]
        assert found.gaps == ()
        assert set(found.trace_ids) == {letter * 32 for letter in "abcd"}


def test_a_tool_that_two_runs_may_have_asked_for_stays_by_itself():
    """Without an id, nothing tells which of two conversations ran it."""
    one = asks(("look", {"x": 1}))
    found = reconstruct(
        [
            chat("c", 1, [user("q")], one, trace="a" * 32),
            chat("d", 2, [user("p")], one, trace="b" * 32),
            tool("s", 5, args='{"x": 1}', result="r", trace="c" * 32),
        ]
    )

    assert [len(t.trace_ids) for t in found] == [1, 1, 1]


def test_the_tools_of_another_process_or_conversation_stay_by_themselves():
    """A server's side of a call, and equal ids in another session, are not the caller's."""
    call = chat("c", 1, [user("q")], ASKED, trace="a" * 32, session="s1")
    server = tool("s", 4, id="k1", args='{"x": 1}', trace="b" * 32, service="other")
    other = tool("t", 5, id="k1", args='{"x": 1}', trace="c" * 32)
    other.attributes["gen_ai.conversation.id"] = "s2"

    assert len(reconstruct([call, server])) == 2
    assert len(reconstruct([call, other])) == 2


def test_an_agent_without_model_calls_has_the_tools_of_its_time():
    """Agno's streams lose the context; of two agents at a time, neither has them."""
    spans = [
        agent("g", 1, end=9, trace="a" * 32),
        tool("s", 4, args='{"x": 1}', result="r", trace="b" * 32),
    ]
    (found,) = reconstruct(spans)

    assert [m.content for m in found.messages if m.role == "tool"] == ["r"]
    assert len(reconstruct([*spans, agent("h", 2, end=9, trace="c" * 32)])) == 3


def test_explain_says_which_run_such_a_tool_is_of():
    """The tool's trace has no trajectory of its own; its span is accounted for in the caller's."""
    spans = loop(ids=True)
    (found,) = reconstruct(spans)

    told = explain("b" * 32, spans)

    assert [(one.kind, one.trajectory_id) for one in told.accounts] == [("tool", found.id)]
