from __future__ import annotations

import pytest

from oteval.model import trajectory_id
from oteval.reconstruct import CODES, reconstruct
from oteval.reconstruct.gaps import gap

from .builders import (
    TRACE,
    agent,
    asks,
    brief,
    chat,
    codes,
    gives,
    only,
    said,
    span,
    texts,
    tool,
    user,
)

DEEP = 10_000


def test_no_spans_give_no_trajectories():
    """Nothing in, nothing out."""
    assert reconstruct([]) == []


def test_an_agents_run_is_named_for_its_root_span():
    """Id, root, agent, service and times come from the spans."""
    found = only(
        agent("a", 5, end=90, of="desk", attributes={"plan": "gold", "long": "x" * 300}),
        chat("c", 10, [user("hi")], said("ho"), parent="a", end=95),
    )

    assert found.id == trajectory_id(TRACE, "a")
    assert (found.root_span.trace_id, found.root_span.span_id) == (TRACE, "a")
    assert (found.agent, found.service, found.trace_ids) == ("desk", "svc", (TRACE,))
    assert (found.start_ns, found.end_ns) == (5, 95)
    assert brief(found.messages) == [("user", "hi"), ("assistant", "ho")]
    assert found.attributes["plan"] == "gold"
    assert found.attributes["service.name"] == "svc"
    assert "long" not in found.attributes


def test_wrappers_above_an_agent_are_not_its_root():
    """An HTTP request and a workflow above one agent are no runs of their own."""
    found = only(
        span("http", 1),
        span("flow", 2, parent="http", attributes={"gen_ai.operation.name": "invoke_workflow"}),
        agent("a", 3, parent="flow"),
        chat("c", 4, [user("hi")], said("ho"), parent="a"),
    )

    assert found.root_span.span_id == "a"
    assert (found.parent_id, found.gaps) == ("", ())


def test_what_is_odd_about_a_wrapper_is_told_of_what_it_holds():
    """The gaps of a span that only wraps an agent are not lost with it."""
    found = only(
        span("http", 1, parent="gone"),
        agent("a", 3, parent="http"),
        chat("c", 4, [user("hi")], said("ho"), parent="a"),
    )

    assert codes(found) == ["missing_parent"]


def test_a_missing_parent_makes_a_root_and_is_named():
    """A span whose parent was never exported stands on its own, with the parent's id."""
    found = only(chat("c", 1, [user("hi")], said("ho"), parent="gone"))

    assert texts(found) == ["hi", "ho"]
    assert codes(found) == ["missing_parent"]
    assert "gone" in found.gaps[0].detail


@pytest.mark.parametrize(
    ("parents", "cut"),
    [
        ({"a": "a"}, "a"),
        ({"a": "b", "b": "a"}, "a"),
        ({"a": "b", "b": "c", "c": "b", "d": "a"}, "b"),
    ],
    ids=["self", "two", "with a tail on either side"],
)
def test_circles_of_parents_are_cut_at_their_earliest_span(parents: dict[str, str], cut: str):
    """Whatever the circle, each span is read once and the cut is named."""
    spans = [
        chat(name, 1 + i, [user(f"q{name}")], said(f"a{name}"), parent=parent)
        for i, (name, parent) in enumerate(parents.items())
    ]

    found = only(*spans)

    assert found.root_span.span_id == cut
    assert [(g.code, g.span_id) for g in found.gaps] == [("cyclic_parents", cut)]
    assert len(found.messages) == 2 * len(parents)


def test_a_duplicate_span_is_read_once():
    """The same span twice, as after a retried export, counts once and is named."""
    spans = [agent("a", 1), chat("c", 2, [user("hi")], said("ho"), parent="a")]

    found = only(*spans, *spans)

    assert texts(found) == ["hi", "ho"]
    assert found.usage.model_calls == 1
    assert codes(found) == ["duplicate_span"] * 2


def test_of_two_spans_with_one_id_the_choice_does_not_hang_on_their_order():
    """Which of two unlike spans with one id and start is kept is the same in any order."""
    early = chat("c", 1, [user("hi")], end=0)
    late = chat("c", 1, [user("hi")], said("ho"), end=9)

    assert only(early, late) == only(late, early)
    assert texts(only(early, late)) == ["hi", "ho"]


def test_a_span_that_ends_before_it_starts_is_named():
    """A negative duration is a gap, and does not make the run end before it begins."""
    found = only(chat("c", 10, [user("hi")], said("ho"), end=3))

    assert codes(found) == ["negative_duration"]
    assert (found.start_ns, found.end_ns) == (10, 10)


def test_a_deep_tree_of_wrappers_is_no_recursion():
    """A model call below ten thousand spans is found."""
    spans = [span(f"s{i}", i, parent=f"s{i - 1}" if i else "") for i in range(DEEP)]

    found = only(*spans, chat("c", DEEP, [user("hi")], said("ho"), parent=f"s{DEEP - 1}"))

    assert texts(found) == ["hi", "ho"]


def test_a_deep_line_of_agents_is_no_recursion():
    """Agents within agents, two thousand deep, are each linked to the one above."""
    count = 2000
    spans = []
    for i in range(count):
        spans.append(agent(f"a{i}", 2 * i, parent=f"a{i - 1}" if i else "", session=""))
        spans.append(chat(f"c{i}", 2 * i + 1, [user(f"q{i}")], said("ok"), parent=f"a{i}"))

    found = reconstruct(spans)

    assert len(found) == count
    assert [t.parent_id for t in found[1:]] == [t.id for t in found[:-1]]


def test_model_calls_are_taken_in_order_of_start():
    """Calls below different steps interleave by time, not step by step."""
    one, two, three = user("1"), user("2"), user("3")
    found = only(
        agent("a", 1, end=90),
        span("step1", 2, parent="a", end=80),
        span("step2", 3, parent="a", end=80),
        chat("c1", 4, [one], said("a1"), parent="step1"),
        chat("c3", 8, [one, said("a1"), two, said("a2"), three], said("a3"), parent="step1"),
        chat("c2", 6, [one, said("a1"), two], said("a2"), parent="step2"),
    )

    assert texts(found) == ["1", "a1", "2", "a2", "3", "a3"]
    assert found.gaps == ()


def test_a_subagent_that_starts_before_its_parent_is_linked():
    """Clocks of two machines differ: the link does not hang on which span started first."""
    found = reconstruct(
        [
            agent("a", 10, of="boss"),
            chat("c", 11, [user("go")], asks(("ask", {}, "k1")), parent="a"),
            tool("t", 12, of="ask", id="k1", args="{}", result="done", parent="a"),
            agent("b", 2, of="clerk", parent="t"),
            chat("d", 3, [user("do")], said("done"), parent="b"),
        ]
    )

    by_agent = {t.agent: t for t in found}
    assert [t.agent for t in found] == ["clerk", "boss"]
    assert by_agent["clerk"].parent_id == by_agent["boss"].id
    assert by_agent["clerk"].parent_call_id == "k1"


def test_a_subagent_beside_its_parents_start_is_linked():
    """A sub-agent with its parent's start time and a smaller span id is still its child."""
    found = reconstruct(
        [
            agent("b", 5, of="boss"),
            chat("c", 6, [user("go")], said("gone"), parent="b"),
            agent("a", 5, of="clerk", parent="b"),
            chat("d", 7, [user("do")], said("done"), parent="a"),
        ]
    )

    by_agent = {t.agent: t for t in found}
    assert by_agent["clerk"].parent_id == by_agent["boss"].id


def test_a_tree_without_any_agent_is_no_trajectory_beside_one_that_has():
    """A stray request in the trace adds no empty trajectory; what is odd about it is told."""
    found = only(
        agent("a", 1),
        chat("c", 2, [user("hi")], said("ho"), parent="a"),
        span("stray", 1, parent="gone", end=500),
    )

    assert texts(found) == ["hi", "ho"]
    assert codes(found) == ["missing_parent"]
    assert found.end_ns == 3


def test_children_of_one_missing_parent_stay_together():
    """A root that was never exported is stood in for: its calls and tools are one run, one gap."""
    spans = [
        chat("c1", 2, [user("q")], asks(("look", {"x": 1}, "k1")), parent="gone"),
        tool("t", 4, id="k1", args='{"x":1}', result="r", parent="gone"),
        chat(
            "c2",
            6,
            [user("q"), asks(("look", {"x": 1}, "k1")), gives("r", "k1")],
            said("a"),
            parent="gone",
            end=9,
        ),
    ]

    found = only(*spans)

    assert brief(found.messages)[1:] == [
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r"),
        ("assistant", "a"),
    ]
    assert [(g.code, g.span_id) for g in found.gaps] == [("missing_parent", "c1")]
    assert (found.root_span.span_id, found.start_ns, found.end_ns) == ("gone", 2, 9)
    assert found.service == "svc"
    whole = only(*spans, span("gone", 1, end=10))
    assert (whole.id, whole.messages) == (found.id, found.messages)


def test_agents_below_one_missing_parent_stay_apart():
    """What is stood in for is no agent: two agents below it have a trajectory each, and no more."""
    found = reconstruct(
        [
            agent("a", 1, parent="gone", of="one", end=9),
            chat("c", 2, [user("hi")], said("ho"), parent="a"),
            agent("b", 11, parent="gone", of="two", end=19),
            chat("d", 12, [user("hu")], said("ha"), parent="b"),
        ]
    )

    assert [(t.agent, t.parent_id, texts(t)) for t in found] == [
        ("one", "", ["hi", "ho"]),
        ("two", "", ["hu", "ha"]),
    ]
    assert [codes(t) for t in found] == [["missing_parent"], []]


def test_agents_nested_in_tools_are_told_apart_however_deep():
    """Without agents' spans, each tool that asks models is an agent below the one that ran it."""
    found = reconstruct(
        [
            agent("a", 1, end=99),
            tool("t1", 2, of="outer", id="k1", parent="a", end=90),
            chat("c1", 3, [user("one")], asks(("inner", {}, "k2")), parent="t1"),
            tool("t2", 10, of="inner", id="k2", parent="t1", end=50),
            chat("c2", 11, [user("two")], said("deep"), parent="t2"),
            chat(
                "c3",
                60,
                [user("one"), asks(("inner", {}, "k2")), gives("deep", "k2")],
                said("done"),
                parent="t1",
            ),
        ]
    )

    main, outer, inner = found
    assert (outer.parent_id, outer.parent_call_id, outer.agent) == (main.id, "k1", "outer")
    assert (inner.parent_id, inner.parent_call_id, inner.agent) == (outer.id, "k2", "inner")
    assert texts(outer) == ["one", None, "deep", "done"]
    assert texts(inner) == ["two", "deep"]


def test_what_a_dialect_reads_is_no_unknown_dialect():
    """A span with a mark of unknown dialects is not one when a dialect reads it."""
    chain = {"langsmith.span.kind": "chain", "gen_ai.prompt": "{}"}

    assert reconstruct([span("a", 1, attributes=chain)]) == []


def test_trees_without_any_agent_beside_spans_that_no_dialect_reads_are_one_trajectory():
    """What looks like a model's spans keeps the trace in sight, once, with the gap that says so."""
    marked = {"llm.vendor": "x"}
    found = only(
        span("a", 1, attributes=marked), span("b", 2, end=9, attributes=marked), span("c", 3)
    )

    assert found.messages == ()
    assert codes(found) == ["unknown_dialect"]
    assert found.gaps[0].detail.startswith("2 spans")
    assert (found.start_ns, found.end_ns) == (1, 9)


def test_an_unknown_dialect_is_named_by_what_was_seen():
    """Spans that look like model spans of a dialect that is not read are counted and described."""
    found = only(
        span("a", 1, attributes={"llm.vendor": "x"}),
        span("b", 2, parent="a", attributes={"gen_ai.prompt": "p", "llm.x": 1}),
        span("c", 3, parent="a"),
    )

    assert found.messages == ()
    assert codes(found) == ["unknown_dialect"]
    assert found.gaps[0].detail.startswith("2 spans look like")
    assert found.gaps[0].detail.endswith(": gen_ai.prompt, llm.*")


def test_an_unknown_dialect_beside_a_known_one_is_not_lost():
    """A stray tree of a dialect that is not read stays a trajectory of its own."""
    found = reconstruct(
        [
            agent("a", 1),
            chat("c", 2, [user("hi")], said("ho"), parent="a"),
            span("x", 3, attributes={"weave.span_type": "llm"}),
        ]
    )

    assert [codes(t) for t in found] == [[], ["unknown_dialect"]]


def test_an_agent_without_model_spans_says_so():
    """An agent whose model client is not instrumented shows its tools and the gap."""
    found = only(
        agent(
            "a", 1, attributes={"gen_ai.output.messages": '[{"role":"assistant","content":"!"}]'}
        ),
        tool("t1", 2, id="k1", args='{"x":1}', result="r1", parent="a", end=5),
        tool("t2", 3, id="k2", args='{"x":2}', result="r2", parent="a", end=6),
        tool("t3", 8, id="k3", args='{"x":3}', result="r3", parent="a"),
    )

    assert codes(found) == ["no_model_spans"]
    assert brief(found.messages) == [
        ("assistant", [("look", {"x": 1}), ("look", {"x": 2})]),
        ("tool", "r1"),
        ("tool", "r2"),
        ("assistant", [("look", {"x": 3})]),
        ("tool", "r3"),
        ("assistant", "!"),
    ]


def test_model_calls_inside_a_tool_without_an_agent_are_a_run_of_that_tool():
    """A tool that asks a model itself is a sub-agent, named for the tool and linked to the call."""
    outer, inner = reconstruct(
        [
            agent("a", 1),
            chat("c1", 2, [user("go")], asks(("sum", {"n": 1}, "k1")), parent="a"),
            tool("t", 3, of="sum", id="k1", args='{"n":1}', result="short", parent="a", end=9),
            span("step", 4, parent="t"),
            chat("i1", 5, [user("sum up")], asks(("fetch", {}, "k9")), parent="step"),
            tool("it", 6, of="fetch", id="k9", args="{}", result="text", parent="t"),
            chat(
                "i2",
                7,
                [user("sum up"), asks(("fetch", {}, "k9")), gives("text", "k9")],
                said("short"),
                parent="step",
            ),
            chat(
                "c2",
                10,
                [user("go"), asks(("sum", {"n": 1}, "k1")), gives("short", "k1")],
                said("done"),
                parent="a",
            ),
        ]
    )

    assert (inner.agent, inner.parent_id, inner.parent_call_id) == ("sum", outer.id, "k1")
    assert brief(inner.messages) == [
        ("user", "sum up"),
        ("assistant", [("fetch", {})]),
        ("tool", "text"),
        ("assistant", "short"),
    ]
    assert inner.messages[1].tool_calls[0].span_id == "it"
    assert [m.role for m in outer.messages] == ["user", "assistant", "tool", "assistant"]
    assert (outer.gaps, inner.gaps) == ((), ())


def test_a_tool_that_is_the_root_is_the_run_of_the_models_it_calls():
    """A server's side of a call, with no agent above, is one trajectory and not two of one id."""
    found = only(
        tool("t", 1, of="sum", args="{}", result="short", end=9),
        chat("c", 2, [user("sum up")], said("short"), parent="t"),
    )

    assert (found.root_span.span_id, found.agent, found.gaps) == ("t", "sum", ())
    assert texts(found) == ["sum up", "short"]


def test_tools_inside_a_tool_are_part_of_it():
    """The spans that a transport writes below a tool's span are no calls of their own."""
    found = only(
        agent("a", 1),
        chat("c", 2, [user("go")], asks(("look", {}, "k1")), parent="a"),
        tool("t1", 3, id="k1", args="{}", result="r", parent="a"),
        tool("t2", 4, of="look", parent="t1"),
        tool("t3", 5, of="look", parent="t2"),
    )

    (call,) = found.messages[1].tool_calls
    assert (call.span_id, found.gaps) == ("t1", ())
    assert [m.role for m in found.messages] == ["user", "assistant", "tool"]


def test_a_conversation_id_may_stand_on_any_span_of_the_run():
    """The root's id counts first, then that of the run's spans, then that of the run above."""
    session = {"session.id": "s"}
    on_root = only(agent("a", 1, session="r", attributes=session))
    on_call = only(agent("a", 1), chat("c", 2, [user("hi")], said("ho"), parent="a", session="c"))
    above, below = reconstruct(
        [
            agent("a", 1, session="up"),
            chat("c", 2, [user("hi")], said("ho"), parent="a"),
            agent("b", 3, parent="a"),
            chat("d", 4, [user("do")], said("done"), parent="b"),
        ]
    )

    assert (on_root.conversation_id, on_call.conversation_id) == ("r", "c")
    assert (above.conversation_id, below.conversation_id) == ("up", "up")


def test_every_gap_has_one_line():
    """Whatever a gap is told, its explanation is one line."""
    found = gap("model_call_failed", "s", reason="first\n  second\t third")

    assert found.detail == "the model call failed: first second third"
    assert all("\n" not in text for text in CODES.values())


def test_a_gap_that_is_not_known_is_refused():
    """Codes are a closed list, and each needs the values its explanation names."""
    with pytest.raises(KeyError):
        gap("no_such_gap")
    with pytest.raises(KeyError):
        gap("redacted", key="k")
