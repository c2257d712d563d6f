from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import FOLLOWS_ANSWER, Span, Trajectory
from oteval.reconstruct import reconstruct

from .builders import agent, asks, brief, chat, codes, gives, said, system, texts, tool, user

Q1, A1, Q2, A2, Q3, A3 = user("q1"), said("a1"), user("q2"), said("a2"), user("q3"), said("a3")


def turn(
    number: int,
    sent: list[dict[str, Any]],
    got: dict[str, Any],
    session: str = "s",
    start: int = 0,
    **fields: Any,
) -> list[Span]:
    """Return a run of one model call in a trace of its own."""
    trace, start = f"{number:032x}", start or 100 * number
    return [
        agent(f"a{number}", start, trace=trace, session=session, end=start + 50, **fields),
        chat(f"c{number}", start + 1, sent, got, trace=trace, parent=f"a{number}", end=start + 40),
    ]


def step(number: int, sent: list[dict[str, Any]], got: dict[str, Any], **fields: Any) -> Span:
    """Return a model call below no agent, in a trace of its own."""
    return chat(f"c{number}", 100 * number, sent, got, trace=f"{number:032x}", **fields)


def by_turn(trajectories: list[Trajectory]) -> list[tuple[int, int, list[str | None]]]:
    return [(t.turn, t.new_from, texts(t)) for t in trajectories]


def test_turns_are_stitched_across_traces_by_the_conversations_id():
    """Each turn is a trajectory that holds the ones before by reference."""
    first, second, third = reconstruct(
        [
            *turn(1, [Q1], A1),
            *turn(2, [Q1, A1, Q2], A2),
            *turn(3, [Q1, A1, Q2, A2, Q3], A3),
        ]
    )

    assert by_turn([first, second, third]) == [
        (1, 0, ["q1", "a1"]),
        (2, 2, ["q1", "a1", "q2", "a2"]),
        (3, 4, ["q1", "a1", "q2", "a2", "q3", "a3"]),
    ]
    assert (third.history, second.history, first.history) == (second, first, None)
    assert [m.content for m in third.own_messages] == ["q3", "a3"]
    assert {t.conversation_id for t in (first, second, third)} == {"s"}


def test_turns_are_stitched_by_their_messages_without_an_id():
    """Without an id, a run follows the one whose whole conversation its input begins with."""
    first, other, second = reconstruct(
        [
            *turn(1, [system("s"), Q1], A1, session=""),
            *turn(2, [user("else")], said("other"), session=""),
            *turn(3, [system("s"), Q1, A1, Q2], A2, session=""),
        ]
    )

    assert (second.history, second.turn, second.new_from) == (first, 2, 3)
    assert second.follows == first.chain != ""
    assert (other.history, other.follows) == (None, "")


def test_a_turn_that_sends_only_what_is_new_follows_the_last():
    """In a session whose provider keeps the history, each turn goes on from the one before."""
    trajectories = reconstruct([*turn(1, [Q1], A1), *turn(2, [Q2], A2)])

    assert by_turn(trajectories) == [(1, 0, ["q1", "a1"]), (2, 2, ["q1", "a1", "q2", "a2"])]


def test_services_that_share_an_id_are_conversations_of_their_own():
    """A conversation is a service's: another one's run of that id is not its next turn."""
    trajectories = reconstruct(
        [
            *turn(1, [Q1], A1, service="front"),
            chat("b", 150, [Q2], A2, session="s", trace="b" * 32, service="back"),
            *turn(2, [Q1, A1, Q3], A3, service="front"),
        ]
    )

    assert [(t.turn, texts(t)) for t in trajectories if t.service == "back"] == [(1, ["q2", "a2"])]
    assert trajectories[2].history == trajectories[0]


def test_two_runs_at_once_in_one_session_do_not_follow_each_other():
    """A run that asked before the other was answered does not hold the other's messages."""
    first, second, third = reconstruct(
        [
            *turn(1, [Q1], A1, start=100),
            *turn(2, [Q2], A2, start=120),
            *turn(3, [Q1, A1, Q3], A3),
        ]
    )

    assert by_turn([first, second]) == [(1, 0, ["q1", "a1"]), (1, 0, ["q2", "a2"])]
    assert (first.gaps, second.gaps) == ((), ())
    assert (third.history, texts(third)) == (first, ["q1", "a1", "q3", "a3"])


def test_the_same_question_again_in_one_session_begins_anew():
    """A session that does not send its history asks the same twice: two runs, nothing rewritten."""
    trajectories = reconstruct([*turn(1, [system("s"), Q1], A1), *turn(2, [system("s"), Q1], A2)])

    assert by_turn(trajectories) == [(1, 0, ["s", "q1", "a1"]), (1, 0, ["s", "q1", "a2"])]
    assert [t.gaps for t in trajectories] == [(), ()]


def test_an_edited_question_branches_off_where_it_was_asked():
    """An edited question continues the turn before it, as its first version did."""
    first, second, edited, third = reconstruct(
        [
            *turn(1, [Q1], A1),
            *turn(2, [Q1, A1, Q2], A2),
            *turn(3, [Q1, A1, user("q2 better")], said("a2 better")),
            *turn(4, [Q1, A1, Q2, A2, Q3], A3),
        ]
    )

    assert (edited.history, edited.turn, edited.gaps) == (first, 2, ())
    assert texts(edited) == ["q1", "a1", "q2 better", "a2 better"]
    assert (third.history, third.turn) == (second, 3)
    assert texts(third) == ["q1", "a1", "q2", "a2", "q3", "a3"]


def test_a_history_rewritten_between_turns_stands_on_its_own():
    """A turn whose input differs from an earlier turn keeps its own version, with the gap."""
    first, second = reconstruct([*turn(1, [Q1], A1), *turn(2, [Q1, said("summary"), Q2], A2)])

    assert texts(first) == ["q1", "a1"]
    assert (second.history, second.turn, second.new_from) == (None, 2, 2)
    assert texts(second) == ["q1", "summary", "q2", "a2"]
    assert codes(second) == ["history_rewritten"]


def test_a_history_rewritten_within_a_turn_keeps_both_versions():
    """A run that compacts earlier turns has its own history; its first version is a rewrite."""
    spans = [*turn(1, [Q1], A1), *turn(2, [Q1, A1, Q2], asks(("look", {}, "k")))]
    trace = spans[2].trace_id
    compact = [Q1, said("summary"), Q2, asks(("look", {}, "k")), gives("r", "k")]
    spans.append(chat("c9", 290, compact, A2, trace=trace, parent="a2"))

    _, second = reconstruct(spans)

    assert second.history is None
    assert texts(second) == ["q1", "summary", "q2", None, "r", "a2"]
    assert [m.content for m in second.own_messages] == ["q2", None, "r", "a2"]
    assert [m.content for m in second.rewrites[0].messages] == ["q2", None]
    assert codes(second) == ["history_rewritten"]


def test_a_window_over_the_turns_before_loses_nothing():
    """A turn that is sent only the last messages still shows the whole conversation."""
    trajectories = reconstruct(
        [*turn(1, [Q1], A1), *turn(2, [Q1, A1, Q2], A2), *turn(3, [Q2, A2, Q3], A3)]
    )

    assert by_turn(trajectories)[2] == (3, 4, ["q1", "a1", "q2", "a2", "q3", "a3"])


def test_turn_two_alone_knows_where_it_begins():
    """If only turn 2's trace has arrived, its input shows the turn before."""
    (alone,) = reconstruct(turn(2, [system("s"), Q1, A1, system("now"), Q2], A2))

    assert (alone.turn, alone.history) == (2, None)
    assert texts(alone) == ["s", "now", "q1", "a1", "q2", "a2"]
    assert [m.content for m in alone.own_messages] == ["q2", "a2"]


def test_model_calls_below_no_agent_join_where_one_brings_the_others_results():
    """An agent loop without any agent span is one run, though each call is a trace."""
    look, book = asks(("look", {}, "k1")), asks(("book", {}, "k2"))
    sent = [Q1]
    first = step(1, sent, look)
    sent = [*sent, look, gives("r1", "k1")]
    second = step(2, sent, book)
    sent = [*sent, book, gives("r2", "k2")]
    third = step(3, sent, A1)
    again = step(4, [*sent, A1, Q2], A2)

    trajectories = reconstruct([first, second, third, again])

    assert by_turn(trajectories) == [
        (1, 0, ["q1", None, "r1", None, "r2", "a1"]),
        (2, 6, ["q1", None, "r1", None, "r2", "a1", "q2", "a2"]),
    ]
    assert trajectories[0].trace_ids == (first.trace_id, second.trace_id, third.trace_id)
    assert (trajectories[0].gaps, trajectories[0].usage.model_calls) == ((), 3)
    assert trajectories[1].history == trajectories[0]


def test_tools_keep_their_spans_when_later_results_join_a_run():
    """Matches from the first model call stay when the next one joins the run."""
    look, book = asks(("look", {}, "k1")), asks(("book", {}, "k2"))
    sent = [Q1, look, gives("r1", "k1")]
    trace = f"{2:032x}"
    trajectories = reconstruct(
        [
            step(1, [Q1], look),
            step(2, sent, book),
            tool("t", 210, of="book", id="k2", parent="c2", trace=trace),
            step(3, [*sent, book, gives("r2", "k2")], A1),
        ]
    )

    (run,) = trajectories
    assert run.messages[3].tool_calls[0].span_id == "t"
    assert run.messages[4].span_id == "t"
    assert run.gaps == ()


def test_a_hand_off_is_one_turn_of_one_trajectory():
    """A sibling agent that answers the first one's call is the same turn, without a gap."""
    trace, give = "f" * 32, asks(("transfer", {}, "k"))
    (handed,) = reconstruct(
        [
            agent("top", 1, of="flow", trace=trace, session="s", end=99),
            agent("a", 2, of="desk", parent="top", trace=trace, end=20),
            chat("c1", 3, [system("desk"), Q1], give, parent="a", trace=trace),
            agent("b", 30, of="expert", parent="top", trace=trace, end=50),
            chat(
                "c2",
                31,
                [system("expert"), Q1, give, gives("ok", "k")],
                A1,
                parent="b",
                trace=trace,
            ),
        ]
    )

    assert (handed.agent, handed.turn, handed.gaps) == ("desk", 1, ())
    assert handed.steps == (("desk", "expert"),)
    assert [(m.role, m.name) for m in handed.messages] == [
        ("system", ""),
        ("user", ""),
        ("assistant", "desk"),
        ("tool", ""),
        ("system", ""),
        ("assistant", "expert"),
    ]


def test_a_call_that_the_next_turn_does_not_answer_stays_a_gap():
    """Only a result removes the gap of a missing result."""
    first, second = reconstruct(
        [*turn(1, [Q1], asks(("look", {}, "k"))), *turn(2, [Q1, asks(("look", {}, "k")), Q2], A2)]
    )

    assert codes(first) == ["missing_tool_result"]
    assert (second.history, second.gaps) == (first, ())


def test_sub_agents_are_no_turns_of_the_conversation():
    """A sub-agent with its parent's conversation id is a child, and the next turn goes on."""
    spans = turn(1, [Q1], asks(("ask", {}, "k")))
    trace = spans[0].trace_id
    spans += [
        tool(
            "t", 110, of="ask", id="k", args="{}", result="done", parent="a1", trace=trace, end=140
        ),
        agent("b", 111, of="clerk", session="s", parent="t", trace=trace),
        chat("d", 112, [user("do")], said("done"), parent="b", trace=trace),
        chat(
            "e",
            145,
            [Q1, asks(("ask", {}, "k")), gives("done", "k")],
            A1,
            parent="a1",
            trace=trace,
        ),
    ]

    first, inner, second = reconstruct(
        [*spans, *turn(2, [Q1, asks(("ask", {}, "k")), gives("done", "k"), A1, Q2], A2)]
    )

    assert (inner.parent_id, inner.parent_call_id, inner.turn) == (first.id, "k", 1)
    assert (inner.history, inner.chain, texts(inner)) == (None, "", ["do", "done"])
    assert (second.history, second.turn) == (first, 2)
    assert (first.gaps, second.gaps) == ((), ())


def test_a_changed_system_prompt_between_turns_is_named():
    """The first turn's prompt is shown; that the next one's differs is a gap of that turn."""
    first, second = reconstruct(
        [*turn(1, [system("v1"), Q1], A1), *turn(2, [system("v2"), Q1, A1, Q2], A2)]
    )

    assert texts(second) == ["v1", "q1", "a1", "q2", "a2"]
    assert (codes(first), codes(second)) == ([], ["system_prompt_changed"])


def test_an_agents_own_words_stand_in_for_model_spans():
    """Without model spans, the question and the answer come from the agent's span."""
    said_by_agent = {
        "gen_ai.system_instructions": '[{"type":"text","content":"be good"}]',
        "gen_ai.input.messages": '[{"role":"user","content":"q"}]',
        "gen_ai.output.messages": '[{"role":"assistant","content":"a"}]',
    }

    (trajectory,) = reconstruct([agent("a", 1, attributes=said_by_agent)])

    assert texts(trajectory) == ["be good", "q", "a"]
    assert codes(trajectory) == ["no_model_spans"]


def test_an_agents_own_words_do_not_repeat_what_its_model_calls_tell():
    """Messages that the agent's span repeats appear once."""
    said_by_agent = {
        "gen_ai.input.messages": '[{"role":"user","content":"q1"}]',
        "gen_ai.output.messages": '[{"role":"assistant","content":"a1"}]',
    }

    (trajectory,) = reconstruct(turn(1, [Q1], A1, attributes=said_by_agent))

    assert texts(trajectory) == ["q1", "a1"]


def test_runs_at_the_same_time_are_told_in_one_order():
    """Runs that start together come in the order of their ids, in whatever order they arrive."""
    spans = [
        agent("b", 1, trace="2" * 32),
        agent("a", 1, trace="2" * 32),
        agent("a", 1, trace="1" * 32),
    ]

    there = [t.root_span for t in reconstruct(spans)]
    back = [t.root_span for t in reconstruct(spans[::-1])]

    assert there == back
    assert [(r.span_id, r.trace_id[0]) for r in there] == [("a", "1"), ("a", "2"), ("b", "2")]


def responses_turn(number: int, previous: str, **attributes: Any) -> list[Span]:
    """Return a run that sends only its question, and names the answer that it goes on from."""
    named = {"llm.invocation_parameters": json.dumps({"previous_response_id": previous})}
    return [
        chat(
            f"c{number}",
            10**12 * number,
            [user(f"q{number}")],
            said(f"a{number}"),
            trace=f"{number:032x}",
            attributes={
                "gen_ai.response.id": f"resp_{number}",
                **(named if previous else {}),
                **attributes,
            },
        )
    ]


def test_parameters_that_a_backend_gives_back_as_values_name_the_answer_too():
    """MLflow gives JSON back as objects."""
    named = {"llm.invocation_parameters": {"previous_response_id": "resp_1"}}
    spans = [*responses_turn(1, ""), *responses_turn(2, "", **named)]

    assert [run.turn for run in reconstruct(spans)] == [1, 2]


@pytest.mark.parametrize("conversation", [None, "previous", "own"])
def test_a_run_that_names_an_earlier_answer_is_the_next_turn(conversation: str | None):
    """The previous answer's id joins turns, also if it is written as the conversation's id."""
    spans = []
    for number in (1, 2, 3):
        previous = f"resp_{number - 1}" if number > 1 else ""
        id_ = {"previous": previous, "own": f"resp_{number}"}.get(conversation or "", "")
        attributes = {"gen_ai.conversation.id": id_} if id_ else {}
        spans += responses_turn(number, previous, **attributes)

    trajectories = reconstruct(spans)

    assert by_turn(trajectories) == [
        (1, 0, ["q1", "a1"]),
        (2, 2, ["q1", "a1", "q2", "a2"]),
        (3, 4, ["q1", "a1", "q2", "a2", "q3", "a3"]),
    ]
    assert {t.conversation_id for t in trajectories} == {""}


def test_another_conversations_answer_is_not_gone_on_from():
    """An id that no earlier answer of the service has joins nothing."""
    first, second = reconstruct([*responses_turn(1, ""), *responses_turn(2, "resp_9")])

    assert (second.history, second.turn) == (None, 1)
    assert first.follows == ""
    assert second.follows.startswith(FOLLOWS_ANSWER)


@pytest.mark.parametrize("is_part", [True, False])
def test_a_conversation_that_was_compacted_is_a_gap(is_part: bool):
    """The span's attribute, or the part that the provider leaves, says that history was cut."""
    first = {"role": "user", "parts": [{"type": "compaction", "id": "x"}]} if is_part else Q1
    attributes = {} if is_part else {"gen_ai.conversation.compacted": True}

    (trajectory,) = reconstruct([chat("c", 1, [first, Q2], A2, attributes=attributes)])

    assert codes(trajectory) == ["history_compacted"]


def swarm(handed: dict[str, Any], *, parent: str = "top", start: int = 40) -> list[Span]:
    """Return two agents; the first hands over with a text in place of the messages."""
    give = asks(("handoff_to_agent", {"agent_name": "Weather Desk", "message": "m"}, "k"))
    answer = asks(("look", {"x": 1}, "k2"))
    return [
        agent("top", 1, of="swarm", end=99),
        agent("a", 2, of="triage", parent="top", end=20),
        chat("c1", 3, [system("triage"), Q1], give, parent="a"),
        tool("t1", 5, of="handoff_to_agent", id="k", result="handed", parent="a"),
        agent("b", start, of="weather_desk", parent=parent, end=90),
        chat("c2", start + 1, [system("desk"), handed], answer, parent="b"),
        tool("t2", start + 3, id="k2", args={"x": 1}, result="r", parent="b"),
        chat("c3", start + 6, [system("desk"), handed, answer, gives("r", "k2")], A1, parent="b"),
    ]


def test_an_agent_that_is_handed_a_summary_goes_on_with_the_turn():
    """The question appears once, nothing is repeated, and a gap reports the missing messages."""
    (trajectory,) = reconstruct(swarm(user("Handoff Message: m\nUser Request: q1")))

    assert brief(trajectory.messages) == [
        ("system", "triage"),
        ("user", "q1"),
        (
            "assistant",
            [("handoff_to_agent", {"agent_name": "Weather Desk", "message": "m"})],
        ),
        ("tool", "handed"),
        ("system", "desk"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r"),
        ("assistant", "a1"),
    ]
    assert (codes(trajectory), trajectory.agents) == (
        ["handoff_summarized"],
        ("triage", "weather_desk"),
    )


@pytest.mark.parametrize("fields", [{"parent": "t1"}, {"start": 2}])
def test_an_agent_in_a_tool_or_beside_the_other_is_not_handed_to(fields: dict[str, Any]):
    """A tool's own agent is a sub-agent, and one that runs at the same time began by itself."""
    spans = swarm(user("Other question"), **fields)

    trajectories = reconstruct(spans)

    assert [run.agents for run in trajectories] == [()] * len(trajectories)
    assert len(trajectories) > 1


@pytest.mark.parametrize("first", ["c1", "c2"])
def test_after_an_interrupt_each_result_stays_with_its_call(first: str):
    """Of two calls, one was declined and one ran in the next trace; neither gets the other's."""
    lookups = asks(("look", {"x": 1}, "c1"), ("look", {"x": 1}, "c2"))
    other = "c2" if first == "c1" else "c1"
    first_trace, second_trace = "1" * 32, "2" * 32
    spans = [
        agent("a1", 1, trace=first_trace, session="s", end=9),
        chat("m1", 2, [Q1], lookups, parent="a1", trace=first_trace),
        agent("a2", 100, trace=second_trace, session="s", end=199),
        tool("t", 101, id=other, args={"x": 1}, result="ran", parent="a2", trace=second_trace),
        chat(
            *("m2", 110, [Q1, lookups, gives("declined", first), gives("ran", other)], A1),
            parent="a2",
            trace=second_trace,
        ),
    ]

    (trajectory,) = reconstruct(spans)

    results = {
        m.tool_call_id: (m.content, m.span_id) for m in trajectory.messages if m.role == "tool"
    }
    assert results == {first: ("declined", "m2"), other: ("ran", "t")}
    assert (trajectory.turn, trajectory.gaps, trajectory.trace_ids) == (
        1,
        (),
        (first_trace, second_trace),
    )


def test_a_run_that_was_interrupted_and_arrives_alone_has_its_call():
    """Without the trace before, the call whose tool ran here is the run's own."""
    lookup = asks(("look", {"x": 1}, "c1"))

    (trajectory,) = reconstruct(
        [
            agent("a2", 100, end=199),
            tool("t", 101, id="c1", args={"x": 1}, result="ran", parent="a2"),
            chat("m2", 110, [Q1, lookup, gives("ran", "c1")], A1, parent="a2"),
        ]
    )

    assert (trajectory.turn, trajectory.new_from, trajectory.gaps) == (1, 1, ())
    assert [call.span_id for call in trajectory.messages[1].tool_calls] == ["t"]


def test_tools_that_run_after_an_interrupt_belong_to_their_calls_without_a_model_call():
    """A run that only executes what was approved adds the results to the turn before."""
    lookup = asks(("look", {"x": 1}, "c1"))
    (trajectory,) = reconstruct(
        [
            *turn(1, [Q1], lookup),
            agent("a2", 300, trace="2" * 32, session="s", end=399),
            tool("t", 301, id="c1", args={"x": 1}, result="ran", parent="a2", trace="2" * 32),
        ]
    )

    assert brief(trajectory.messages) == [
        ("user", "q1"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "ran"),
    ]
    assert "missing_tool_result" not in codes(trajectory)


def test_the_result_that_the_next_turn_brings_is_of_the_turn_before():
    """An output tool's result stands in the next turn's input, before the question."""
    output_call = asks(("final", {"x": 1}, "c1"))
    first, second = reconstruct(
        [*turn(1, [Q1], output_call), *turn(2, [Q1, output_call, gives("done", "c1"), Q2], A2)]
    )

    assert brief(first.messages)[-1] == ("tool", "done")
    assert (first.gaps, second.gaps) == ((), ())
    assert (second.turn, brief(second.own_messages)) == (2, [("user", "q2"), ("assistant", "a2")])


def test_an_agent_may_say_a_word_after_it_handed_over():
    """The call that names the next agent decides, also if the agent answered after it."""
    spans = swarm(user("Handoff Message: m\nUser Request: q1"))
    give = asks(("handoff_to_agent", {"agent_name": "Weather Desk", "message": "m"}, "k"))
    spans.append(
        chat("c9", 8, [system("triage"), Q1, give, gives("handed", "k")], said("Over"), parent="a")
    )

    (trajectory,) = reconstruct(spans)

    assert trajectory.agents == ("triage", "weather_desk")
    assert [m.content for m in trajectory.messages if m.role == "assistant"] == [
        None,
        "Over",
        None,
        "a1",
    ]


def test_an_agent_that_nobody_names_is_not_handed_to():
    """In a workflow, the next agent gets the answer of the one before; it is a run of its own."""
    writer, editor = reconstruct(
        [
            agent("top", 1, of="flow", end=99),
            agent("a", 2, of="writer", parent="top", end=20),
            chat("c1", 3, [Q1], asks(("look", {"x": 1}, "k")), parent="a"),
            tool("t1", 5, id="k", args={"x": 1}, result="r", parent="a"),
            chat("c2", 8, [Q1, asks(("look", {"x": 1}, "k")), gives("r", "k")], A1, parent="a"),
            agent("b", 30, of="editor", parent="top", end=50),
            chat("c3", 31, [user("a1")], A2, parent="b"),
        ]
    )

    assert ([m.role for m in editor.messages], editor.agents) == (["user", "assistant"], ())
    assert writer.agents == ()


def test_a_turn_whose_beginning_no_trace_has_is_the_runs_own():
    """The calls since the question count, for checks as well; an earlier turn stays history."""
    sent = [Q1, A1, Q2, asks(("pay", {"order": 1}, "k")), gives("Error: no funds", "k")]

    (alone,) = reconstruct([chat("c1", 1, sent, A2)])

    assert alone.new_from == 2
    assert brief(alone.own_messages) == [
        ("user", "q2"),
        ("assistant", [("pay", {"order": 1})]),
        ("tool", "Error: no funds"),
        ("assistant", "a2"),
    ]


def test_two_traces_of_one_turn_are_one_run_in_any_order():
    """With the trace of its beginning, the turn belongs to that trace."""
    call = asks(("pay", {"order": 1}, "k"))
    first = chat("c1", 1, [Q1], call, session="s", trace="1" * 32)
    second = chat("c2", 9, [Q1, call, gives("ok", "k")], A1, session="s", trace="2" * 32)

    for spans in ([first, second], [second, first]):
        (run,) = reconstruct(spans)
        assert [m.role for m in run.own_messages] == ["user", "assistant", "tool", "assistant"]
