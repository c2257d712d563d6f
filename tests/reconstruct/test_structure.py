"""Spans whose place does not tell by itself what they belong to."""

from __future__ import annotations

import json
import random

import pytest

from oteval.reconstruct import reconstruct

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

CALLED = [
    ("user", "q"),
    ("assistant", [("f", {"a": 1})]),
    ("tool", "r"),
    ("assistant", "done"),
]


def test_tools_below_the_model_call_stand_between_question_and_answer():
    """A client that calls tools itself writes one span: what ran inside comes before the answer."""
    found = only(
        chat("c", 1, [user("q")], said("done"), end=99),
        tool("t", 5, of="f", id="k", args='{"a": 1}', result="r", parent="c"),
    )

    assert brief(found.messages) == CALLED
    assert (found.messages[1].tool_calls[0].span_id, found.messages[2].tool_call_id) == ("t", "k")
    assert codes(found) == []


def test_tools_that_ran_at_once_inside_a_model_call_are_one_message():
    """Overlapping tools were asked for together, and later ones by themselves."""
    found = only(
        chat("c", 1, [user("q")], said("done"), end=99),
        tool("t1", 5, of="f", args='{"n": 1}', result="1", parent="c", end=9),
        tool("t2", 6, of="f", args='{"n": 2}', result="2", parent="c", end=9),
        tool("t3", 10, of="g", args='{"n": 3}', result="3", parent="c", end=12),
    )

    assert brief(found.messages)[1:-1] == [
        ("assistant", [("f", {"n": 1}), ("f", {"n": 2})]),
        ("tool", "1"),
        ("tool", "2"),
        ("assistant", [("g", {"n": 3})]),
        ("tool", "3"),
    ]


@pytest.mark.parametrize("is_told", [True, False])
def test_the_next_call_goes_on_from_what_ran_inside(is_told: bool):
    """Whether or not the next input repeats the tools that ran inside, nothing is rewritten."""
    inside = [asks(("f", {"a": 1}, "k")), gives("r", "k")] if is_told else []
    found = only(
        agent("a", 1, end=99),
        chat("c", 2, [user("q")], said("done"), parent="a", end=20),
        tool("t", 5, of="f", id="k", args='{"a": 1}', result="r", parent="c"),
        chat("d", 30, [user("q"), *inside, said("done"), user("more")], said("bye"), parent="a"),
    )

    assert brief(found.messages) == [*CALLED, ("user", "more"), ("assistant", "bye")]
    assert (codes(found), found.rewrites) == ([], ())


def test_the_next_turn_goes_on_from_what_ran_inside():
    """A turn in a trace of its own whose history leaves the inner calls out is the same talk."""
    first, second = reconstruct(
        [
            chat("c", 2, [user("q")], said("done"), end=20, session="s"),
            tool("t", 5, of="f", id="k", args='{"a": 1}', result="r", parent="c"),
            chat(
                "d",
                30,
                [user("q"), said("done"), user("more")],
                said("bye"),
                session="s",
                trace="b" * 32,
            ),
        ]
    )

    assert (second.history, second.turn, second.gaps) == (first, 2, ())
    assert brief(second.messages) == [*CALLED, ("user", "more"), ("assistant", "bye")]


def test_a_tool_below_the_model_call_that_asks_for_it_is_its_run():
    """Where the answer itself asks for the tool, the span only completes it."""
    look = asks(("f", {"a": 1}, "k"))
    found = only(
        agent("a", 1, end=99),
        chat("c", 2, [user("q")], look, parent="a", end=20),
        tool("t", 5, of="f", id="k", args='{"a": 1}', result="r", parent="c"),
        chat("d", 30, [user("q"), look, gives("r", "k")], said("done"), parent="a"),
    )

    assert brief(found.messages) == CALLED
    assert codes(found) == []


@pytest.mark.parametrize("echoed", [{}, {"tz": "NY"}])
def test_the_arguments_that_a_tool_ran_with_replace_empty_ones(echoed: dict[str, str]):
    """A streamed call recorded without its arguments has those of the tool's span."""
    echo = asks(("f", echoed, "k"))
    found = only(
        agent("a", 1, end=99),
        chat("c", 2, [user("q")], asks(("f", {}, "k")), parent="a"),
        tool("t", 5, of="f", id="k", args='{"tz": "NY"}', result="r", parent="a"),
        chat("d", 8, [user("q"), echo, gives("r", "k")], said("done"), parent="a"),
    )

    assert found.messages[1].tool_calls[0].arguments == {"tz": "NY"}
    assert (len(found.messages), codes(found), found.rewrites) == (4, [], ())


def test_a_call_without_arguments_that_ran_without_any_stays_so():
    """Empty arguments on both sides are those of a tool that takes none."""
    found = only(
        agent("a", 1, end=99),
        chat("c", 2, [user("q")], asks(("f", {}, "k")), parent="a"),
        tool("t", 5, of="f", id="k", args="{}", result="r", parent="a"),
    )

    assert found.messages[1].tool_calls[0].arguments == {}


def test_orphans_join_the_agent_whose_time_holds_them():
    """Two lost parents beside one agent make one run, and one gap that counts them."""
    spans = [
        agent("a", 1, end=99),
        chat("c", 2, [user("q")], asks(("f", {"a": 1}, "k")), parent="gone"),
        tool("t", 5, of="f", id="k", args='{"a": 1}', result="r", parent="lost"),
        chat(
            "d",
            8,
            [user("q"), asks(("f", {"a": 1}, "k")), gives("r", "k")],
            said("done"),
            parent="a",
        ),
    ]

    found = only(*spans)
    random.Random(1).shuffle(spans)

    assert brief(found.messages) == CALLED
    [gap] = found.gaps
    assert gap.code == "missing_parent"
    assert gap.detail == "2 parent spans are not in the trace (gone, lost)"
    assert only(*spans) == found


@pytest.mark.parametrize("start", [1, 50])
def test_orphans_that_no_one_agent_holds_stay_apart(start: int):
    """Out of the agent's time, or within two agents' times, a span's agent is not known."""
    found = reconstruct(
        [
            agent("a", 1, of="one", end=99),
            chat("c", 2, [user("q")], said("x"), parent="a"),
            agent("b", start, of="two", end=120),
            chat("d", start + 2, [user("p")], said("y"), parent="b"),
            chat("e", 110 if start == 50 else 60, [user("o")], said("z"), parent="gone"),
        ]
    )

    assert texts(next(t for t in found if t.agent == "one")) == ["q", "x"]
    if start == 1:
        assert sorted(t.agent for t in found) == ["", "one", "two"]
    else:
        assert sorted(t.agent for t in found) == ["one", "two"]


def test_missing_parents_are_counted_once():
    """However many parents are missing, a trajectory has one gap of them."""
    found = only(
        agent("a", 1, end=999, parent="top"),
        chat("c", 2, [user("q")], said("x"), parent="a"),
        *(span(f"s{n}", 10 + n, parent=f"gone{n}") for n in range(20)),
    )

    assert codes(found) == ["missing_parent"]
    assert found.gaps[0].span_id == "a"
    assert found.gaps[0].detail.startswith("21 parent spans")


def test_a_provider_alone_makes_no_model_call():
    """A span that only names the provider surrounds the calls; it is not one."""
    named = {"gen_ai.system": "openai", "name": "helper"}
    found = only(
        span("r", 1, attributes=named, end=99), chat("c", 2, [user("q")], said("a"), parent="r")
    )

    assert (texts(found), codes(found), found.usage.model_calls) == (["q", "a"], [], 1)


def test_several_calls_inside_one_that_says_nothing_are_all_told():
    """A model span without content around two calls with content only surrounds them."""
    look = asks(("f", {"a": 1}, "k"))
    found = only(
        chat("outer", 1, None, None, end=99, scope="x"),
        chat("c", 2, [user("q")], look, parent="outer", scope="y"),
        tool("t", 5, of="f", id="k", args='{"a": 1}', result="r", parent="outer"),
        chat("d", 8, [user("q"), look, gives("r", "k")], said("done"), parent="outer", scope="y"),
    )

    assert brief(found.messages) == CALLED
    assert (codes(found), found.usage.model_calls) == ([], 2)


def outer(**attributes: object) -> dict[str, object]:
    return {"attributes": attributes, "end": 99}


def test_an_outer_agents_answer_is_kept():
    """An outer agent whose answer is not the inner one's is a run with that answer."""
    told = {
        "gen_ai.input.messages": json.dumps([user("q")]),
        "gen_ai.output.messages": json.dumps([said("The whole story")]),
    }
    found = reconstruct(
        [
            agent("o", 1, of="boss", **outer(**told)),
            agent("a", 2, of="worker", parent="o", end=50),
            chat("c", 3, [user("do it")], said("part"), parent="a"),
        ]
    )

    boss, worker = found
    assert (boss.agent, texts(boss)) == ("boss", ["q", "The whole story"])
    assert (worker.agent, texts(worker), worker.parent_id) == ("worker", ["do it", "part"], boss.id)


def test_an_outer_agent_that_repeats_the_answer_only_surrounds():
    """An outer agent that answers what the inner one did adds no run, but its name."""
    told = {"gen_ai.output.messages": json.dumps([said("part")])}
    found = only(
        agent("o", 1, of="boss", session="s", **outer(**told)),
        agent("a", 2, of="", parent="o", end=50),
        chat("c", 3, [user("do it")], said("part"), parent="a"),
    )

    assert (found.agent, found.conversation_id) == ("boss", "s")
    assert texts(found) == ["do it", "part"]


def test_an_outer_agents_answer_stands_in_for_one_that_is_missing():
    """Where the inner run has not got its answer, the outer agent's is shown."""
    told = {"gen_ai.output.messages": json.dumps([said("done")])}
    found = only(
        agent("o", 1, of="boss", **outer(**told)),
        agent("a", 2, of="worker", parent="o", end=50),
        chat("c", 3, [user("do it")], parent="a"),
    )

    assert (found.agent, texts(found)) == ("worker", ["do it", "done"])
    assert TRACE in found.trace_ids
