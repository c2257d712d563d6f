from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.evaluators import to_messages
from oteval.model import Span

from .builders import agent, asks, brief, chat, codes, gives, only, said, tool, user


def run(*spans: Span) -> Any:
    """Return the messages, less the first, of an agent that asks what its user says."""
    return only(agent("a", 1, end=99), *spans)


def test_parallel_calls_keep_their_overlap():
    """Calls of one message carry the times of their spans, and overlap as those did."""
    look = asks(("look", {"x": 1}, "k1"), ("look", {"x": 2}, "k2"))

    found = run(
        chat("c1", 2, [user("q")], look, parent="a"),
        tool("t1", 10, id="k1", args='{"x":1}', result="r1", parent="a", end=30),
        tool("t2", 20, id="k2", args='{"x":2}', result="r2", parent="a", end=40),
        chat(
            "c2", 50, [user("q"), look, gives("r1", "k1"), gives("r2", "k2")], said("a"), parent="a"
        ),
    )

    one, two = found.messages[1].tool_calls
    assert (one.start_ns, one.end_ns, one.span_id) == (10, 30, "t1")
    assert (two.start_ns, two.end_ns, two.span_id) == (20, 40, "t2")
    assert two.start_ns < one.end_ns


def test_results_are_paired_by_id_whatever_their_order():
    """Results that come back in another order still carry their own call's id, span and error."""
    look = asks(("look", {"x": 1}, "k1"), ("look", {"x": 2}, "k2"))

    found = run(
        chat("c1", 2, [user("q")], look, parent="a"),
        tool("t2", 10, id="k2", args='{"x":2}', parent="a", status_code=2, status_message="no"),
        tool("t1", 11, id="k1", args='{"x":1}', result="r1", parent="a"),
        chat(
            "c2", 50, [user("q"), look, gives("r2", "k2"), gives("r1", "k1")], said("a"), parent="a"
        ),
    )

    second, first = found.messages[2:4]
    assert (first.content, first.tool_call_id, first.span_id, first.is_error) == (
        "r1",
        "k1",
        "t1",
        False,
    )
    assert (second.content, second.tool_call_id, second.span_id, second.is_error) == (
        "r2",
        "k2",
        "t2",
        True,
    )


def test_results_without_ids_are_paired_in_order():
    """Results without ids belong to the calls before them, one by one."""
    look = asks(("look", {"x": 1}, "k1"), ("look", {"x": 2}, "k2"))

    found = run(chat("c1", 2, [user("q"), look, gives("r1"), gives("r2")], said("a"), parent="a"))

    assert [m.tool_call_id for m in found.messages[2:4]] == ["k1", "k2"]


def test_spans_without_ids_are_matched_by_name_and_arguments():
    """Tool spans without ids find their calls by what was asked, not by when they ran."""
    look = asks(("look", {"x": 1}), ("look", {"x": 2}), ("book", {"x": 1}))

    found = run(
        chat("c1", 2, [user("q")], look, parent="a"),
        tool("t3", 10, of="book", args='{"x": 1}', result="r3", parent="a"),
        tool("t2", 11, args='{"x": 2.0}', result="r2", parent="a"),
        tool("t1", 12, args="{'x': 1}", result="r1", parent="a"),
    )

    assert [c.span_id for c in found.messages[1].tool_calls] == ["t1", "t2", "t3"]
    assert [m.content for m in found.messages[2:]] == ["r1", "r2", "r3"]


def test_spans_with_other_arguments_are_matched_by_name():
    """A framework that fills in defaults still has its spans matched, in order of start."""
    look = asks(("look", {"x": 1}), ("look", {"x": 2}))

    found = run(
        chat("c1", 2, [user("q")], look, parent="a"),
        tool("t1", 10, args='{"x": 1, "n": 9}', result="r1", parent="a"),
        tool("t2", 11, args='{"x": 2, "n": 9}', result="r2", parent="a"),
    )

    assert [c.span_id for c in found.messages[1].tool_calls] == ["t1", "t2"]
    assert [c.arguments for c in found.messages[1].tool_calls] == [{"x": 1}, {"x": 2}]


def test_ids_that_repeat_are_used_once_each_in_order():
    """A call id that comes back in a later call of the same run belongs to that call."""
    look = asks(("look", {"x": 1}, "k"))
    first = [user("q"), look, gives("r1", "k")]
    again = [*first, said("a"), user("again")]

    found = run(
        chat("c1", 2, [user("q")], look, parent="a"),
        tool("t1", 3, id="k", args='{"x":1}', result="r1", parent="a"),
        chat("c2", 4, first, said("a"), parent="a"),
        chat("c3", 5, again, look, parent="a"),
        tool("t2", 6, id="k", args='{"x":1}', result="r2", parent="a"),
        chat("c4", 7, [*again, look, gives("r2", "k")], said("b"), parent="a"),
    )

    calls = [call for m in found.messages for call in m.tool_calls]
    results = [m for m in found.messages if m.role == "tool"]
    assert [c.span_id for c in calls] == ["t1", "t2"]
    assert [(m.content, m.span_id) for m in results] == [("r1", "t1"), ("r2", "t2")]


def test_two_calls_with_one_id_in_one_message_are_two():
    """Even within one message an id may repeat: results and spans are dealt out in order."""
    look = asks(("look", {"x": 1}, "k"), ("look", {"x": 2}, "k"))

    results = [gives("r1", "k"), gives("r2", "k")]

    found = run(
        chat("c1", 2, [user("q")], look, parent="a"),
        tool("t1", 3, id="k", args='{"x":1}', parent="a"),
        tool("t2", 4, id="k", args='{"x":2}', parent="a"),
        chat("c2", 5, [user("q"), look, *results], said("a"), parent="a"),
    )

    assert [c.span_id for c in found.messages[1].tool_calls] == ["t1", "t2"]
    assert [m.span_id for m in found.messages[2:4]] == ["t1", "t2"]


def test_the_last_result_comes_from_the_tools_span():
    """A run that ends with a tool has its result from the span, with name, id and error."""
    found = run(
        chat("c1", 2, [user("q")], asks(("look", {}, "k1")), parent="a"),
        tool("t1", 3, id="k1", args="{}", result="late", parent="a", status_code=2),
    )

    last = found.messages[-1]
    assert (last.role, last.content, last.tool_call_id, last.name) == ("tool", "late", "k1", "look")
    assert (last.is_error, last.span_id) == (True, "t1")
    assert found.gaps == ()


def test_a_failed_tool_without_a_result_tells_its_error():
    """Where a failed tool's span holds no result, the error stands in for it."""
    found = run(
        chat("c1", 2, [user("q")], asks(("look", {}, "k1")), parent="a"),
        tool("t1", 3, id="k1", args="{}", parent="a", status_code=2, status_message="too far"),
    )

    assert found.messages[-1].content == "Error: too far"


@pytest.mark.parametrize(
    ("text", "failed"),
    [("Error: gone", True), (" Traceback (most", True), ("Errors: 0", False), ("no Error", False)],
)
def test_an_error_is_known_by_how_it_begins(text: str, failed: bool):
    """A result that begins like an error counts as one, also where the tool's span is sound."""
    look = asks(("look", {}, "k1"))
    spans = [
        chat("c1", 2, [user("q")], look, parent="a"),
        chat("c2", 5, [user("q"), look, gives(text, "k1")], said("a"), parent="a"),
    ]

    alone = run(*spans)
    ran = run(*spans, tool("t1", 3, id="k1", args="{}", result=text, parent="a"))

    assert [one.messages[2].is_error for one in (alone, ran)] == [failed, failed]
    assert not alone.messages[2].is_outcome_recorded


def test_a_call_without_a_result_is_a_gap():
    """A call that nothing answers is named."""
    found = run(chat("c1", 2, [user("q")], asks(("look", {}, "k1")), parent="a"))

    assert codes(found) == ["missing_tool_result"]
    assert "look" in found.gaps[0].detail
    assert found.gaps[0].span_id == "c1"


def test_a_tool_that_nobody_asked_for_is_a_gap():
    """A tool run without a call is named and not put into the model's mouth."""
    found = run(
        chat("c1", 2, [user("q")], said("a"), parent="a"),
        tool("t1", 3, of="warm_up", args="{}", result="r", parent="a"),
    )

    assert brief(found.messages) == [("user", "q"), ("assistant", "a")]
    assert codes(found) == ["unmatched_tool_span"]
    assert "warm_up" in found.gaps[0].detail
    assert found.gaps[0].span_id == "t1"


def test_a_gap_stays_one_short_line_whatever_it_names():
    """A tool's name of several lines and thousands of letters is cut where a gap names it."""
    found = run(
        chat("c1", 2, [user("q")], said("a"), parent="a"),
        tool("t1", 3, of="warm\n\u2028" + "up" * 5000, args="{}", result="r", parent="a"),
    )

    (only_gap,) = found.gaps
    assert only_gap.detail.startswith("the tool warm up")
    assert "... ran, but" in only_gap.detail
    assert len(only_gap.detail) < 1200
    assert len(only_gap.detail.splitlines()) == 1


def test_tools_after_an_answer_that_was_not_captured_are_its_calls():
    """Without content, the tools that ran after a model call are what it asked for."""
    found = run(
        chat("c1", 2, parent="a"),
        tool("t1", 4, id="k1", args='{"x":1}', result="r1", parent="a"),
        chat("c2", 6, parent="a"),
        tool("t2", 8, id="k2", args='{"x":2}', result="r2", parent="a"),
        chat("c3", 10, parent="a"),
    )

    assert brief(found.messages) == [
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r1"),
        ("assistant", [("look", {"x": 2})]),
        ("tool", "r2"),
        ("assistant", None),
    ]
    assert set(codes(found)) == {"content_not_captured"}


def test_a_span_without_content_is_no_gap_where_the_messages_tell():
    """A tool's span without content matters only where the messages do not hold it."""
    look = asks(("look", {"x": 1}, "k1"))
    first = chat("c1", 2, [user("q")], look, parent="a")
    ran = tool("t1", 3, id="k1", parent="a")

    told = run(
        first, ran, chat("c2", 5, [user("q"), look, gives("r", "k1")], said("a"), parent="a")
    )
    untold = run(first, ran)

    assert codes(told) == []
    assert codes(untold) == ["content_not_captured"]


def test_earlier_turns_calls_do_not_take_this_turns_tools():
    """A turn that arrives alone repeats a call of the turn before: its span is this turn's."""
    look = asks(("look", {"x": 1}))
    before = [user("q"), look, gives("old"), said("a"), user("again")]

    found = run(
        chat("c1", 2, before, look, parent="a"),
        tool("t1", 3, args='{"x":1}', result="new", parent="a"),
        chat("c2", 4, [*before, look, gives("new")], said("b"), parent="a"),
    )

    calls = [call for m in found.messages for call in m.tool_calls]
    assert [c.span_id for c in calls] == ["", "t1"]
    assert [m.span_id for m in found.messages if m.role == "tool"] == ["c1", "t1"]
    assert (found.new_from, found.turn) == (4, 2)


def test_calls_that_share_an_id_are_told_apart_by_their_arguments():
    """Parallel calls of some servers have one id; the tools' spans may end in any order."""
    asked = asks(("read", {"f": "a"}, "k"), ("read", {"f": "b"}, "k"))

    found = run(
        chat("c1", 2, [user("q")], asked, parent="a"),
        tool("t1", 3, of="read", id="k", args='{"f": "b"}', result="BBB", parent="a"),
        tool("t2", 4, of="read", id="k", args='{"f": "a"}', result="AAA", parent="a"),
    )

    assert [m.content for m in found.messages if m.role == "tool"] == ["AAA", "BBB"]
    assert [call.span_id for call in found.messages[1].tool_calls] == ["t2", "t1"]


@pytest.mark.parametrize(
    ("returned", "sent", "failed"),
    [
        ('{"error": "no such order"}', "It did not work.", True),
        ('{"content": [], "isError": true}', "It did not work.", True),
        ('{"content": [], "isError": false}', "Error: none of them", False),
        ("sunny", "Error: no such order", True),
        ("sunny", "It is sunny.", False),
    ],
)
def test_what_the_tool_returned_counts_beside_what_the_model_was_sent(
    returned: str, sent: str, failed: bool
):
    """The message's text stays; either of the two may show that the call failed."""
    look = asks(("look", {}, "k1"))

    found = run(
        chat("c1", 2, [user("q")], look, parent="a"),
        tool("t1", 3, id="k1", args="{}", result=returned, parent="a"),
        chat("c2", 5, [user("q"), look, gives(sent, "k1")], said("a"), parent="a"),
    )

    assert (found.messages[2].content, found.messages[2].is_error) == (sent, failed)


def test_a_recorded_success_survives_as_json():
    """The run's JSON tells a recorded success, so that its text is not taken for an error again."""
    result = {"content": [{"type": "text", "text": "Error: none"}], "isError": False}

    found = run(
        chat("c1", 2, [user("q")], asks(("look", {}, "k1")), parent="a"),
        tool("t1", 3, id="k1", args="{}", result=json.dumps(result), parent="a"),
    )

    assert not found.messages[-1].is_error
    assert not to_messages(found.as_dict())[-1].is_error


@pytest.mark.parametrize("ids", [("k1", "k2"), ("", "")], ids=["by id", "without ids"])
@pytest.mark.parametrize("is_history_sent", [True, False])
def test_a_parallel_call_that_only_its_tool_knows_is_a_call(
    ids: tuple[str, str], is_history_sent: bool
):
    """The message shows one of two calls; the other one's tool ran, and its result was sent."""
    shown = asks(("look", {"x": 1}, ids[0]))
    sent = [user("q"), shown, gives("r1", ids[0]), gives("r2", ids[1])]
    found = run(
        chat("c1", 2, [user("q")], shown, parent="a"),
        tool("t1", 3, id=ids[0], args='{"x": 1}', result="r1", parent="a", end=9),
        tool("t2", 4, of="other", id=ids[1], args='{"y": 2}', result="r2", parent="a", end=8),
        chat("c2", 20, sent if is_history_sent else None, said("a"), parent="a"),
    )

    calls = [(c.name, c.arguments) for m in found.own_messages for c in m.tool_calls]
    assert calls == [("look", {"x": 1}), ("other", {"y": 2})]
    assert [m.content for m in found.messages if m.role == "tool"] == ["r1", "r2"]
    assert "unmatched_tool_span" not in codes(found)


def test_a_tool_that_another_instrumentation_writes_as_well_is_no_second_call():
    """Its span has another scope, and perhaps another name: it is named as a gap."""
    shown = asks(("look", {"x": 1}, "k1"))
    found = run(
        chat("c1", 2, [user("q")], shown, parent="a"),
        tool("t1", 3, id="k1", args='{"x": 1}', result="r1", parent="a", end=9),
        tool("t2", 4, of="mcp__look", parent="a", end=8, scope="mcp"),
        chat("c2", 20, [user("q"), shown, gives("r1", "k1")], said("a"), parent="a"),
    )

    assert [c.name for m in found.messages for c in m.tool_calls] == ["look"]
    assert "unmatched_tool_span" in codes(found)
