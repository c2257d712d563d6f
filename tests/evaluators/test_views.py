from __future__ import annotations

import re

import pytest

from oteval.evaluators import to_messages
from oteval.evaluators.views import failed_calls
from oteval.model import Message, SpanRef, ToolCall, Trajectory

from .helpers import call, flat, passes, said, tool, user, verdict

BOOKED = [
    user(),
    said(call("search", {"q": 1}, "1")),
    tool("[]", "1"),
    said(call("book", {"seat": 1}, "2")),
    tool("Error: seat taken", "2"),
    said(call("book", {"seat": 2}, "3")),
    tool("booked", "3"),
    said(content="done"),
]
WRITES = {"view": "writes", "effect_tools": ["book"]}
EFFECTS = {"view": "effects", "effect_tools": ["book"]}


def failed(messages, pattern=None) -> set[int]:
    """Return the indexes of the failed calls."""
    return failed_calls(to_messages(messages), pattern)


def test_all_is_the_default_view():
    """Without a view every call counts."""
    assert not passes(BOOKED, flat(("book", {"seat": 2})), "unordered")


def test_writes_leaves_reads_out_on_both_sides():
    """Only calls to declared tools count, in the reference too."""
    ref = flat("look_up", ("book", {"seat": 1}), ("book", {"seat": 2}))

    assert passes(BOOKED, ref, "unordered", **WRITES)
    assert not passes(BOOKED, flat(("book", {"seat": 2})), "unordered", **WRITES)


def test_effects_leaves_failed_writes_of_the_output_out():
    """A write whose result was an error did nothing, so it does not count."""
    assert passes(BOOKED, flat(("book", {"seat": 2})), "unordered", **EFFECTS)
    assert not passes(BOOKED, flat(("book", {"seat": 1})), "unordered", **EFFECTS)


def test_effects_takes_the_references_writes_as_they_are():
    """The reference says what is wanted; results in it are not looked at."""
    ref = [said(call("book", {"seat": 2}, "x")), tool("Error: none", "x")]

    assert passes(BOOKED, ref, "unordered", **EFFECTS)


def test_a_write_without_a_result_counts():
    """Nothing says that it failed."""
    assert passes(flat("book"), flat("book"), "unordered", **EFFECTS)


def test_strict_under_a_view_compares_the_messages_that_hold_its_calls():
    """Messages without a counted call are left out on both sides."""
    assert passes(BOOKED, flat(("book", {"seat": 2})), **EFFECTS)
    assert passes(BOOKED, flat(("book", {"seat": 1}), ("book", {"seat": 2})), **WRITES)
    assert not passes(BOOKED, flat(("book", {"seat": 2}), ("book", {"seat": 1})), **WRITES)


def test_alignment_counts_all_calls_whatever_the_view():
    """An index in the alignment finds its call in the whole trajectory."""
    found = verdict(BOOKED, flat("look_up", ("book", {"seat": 2})), "unordered", **EFFECTS)

    assert found.alignment == [(2, 1)]
    assert (found.matched, found.missing, found.extra) == (1, 0, 0)


@pytest.mark.parametrize("flag", [{"is_error": True}, {"error": "no"}, {"status": "error"}])
def test_flags_of_a_failed_result(flag):
    """A tool message may say by is_error, error or status that the call failed."""
    assert failed([said(call("f", {}, "1")), tool("fine", "1", **flag)]) == {0}


@pytest.mark.parametrize(
    ("text", "is_error"),
    [
        ("Error: no", True),
        ("  Error", True),
        ("Exception in tool", True),
        ("Traceback (most recent call last)", True),
        ("Unknown action x", True),
        ("No Error here", False),
        ("No errors found", False),
        ("", False),
    ],
)
def test_by_default_a_result_that_begins_as_an_error_is_one(text, is_error):
    """`oteval.messages.call_outcome` decides where there is no pattern."""
    assert bool(failed([said(call("f", {}, "1")), tool(text, "1")])) == is_error


def test_a_users_error_pattern_is_searched():
    """A pattern of the user's replaces the default and is found anywhere."""
    session = [said(call("book", {}, "1")), tool("sorry: FAILED", "1")]

    assert passes(session, flat("book"), "unordered", **EFFECTS)
    for pattern in ("FAILED", re.compile("failed", re.IGNORECASE)):
        assert not passes(session, flat("book"), "unordered", **EFFECTS, error_pattern=pattern)


def test_results_in_anthropic_and_genai_form():
    """Errors are seen wherever a provider keeps results."""
    block = {"type": "tool_result", "tool_use_id": "1", "content": "no", "is_error": True}
    part = {"type": "tool_call_response", "id": "1", "response": "Error: no"}

    assert failed([said(call("f", {}, "1")), {"role": "user", "content": [block]}]) == {0}
    assert failed([said(call("f", {}, "1")), {"role": "tool", "parts": [part]}]) == {0}


def test_ids_that_repeat_are_paired_by_order():
    """A later call with an old id gets the later result."""
    session = [
        said(call("f", {}, "same")),
        tool("Error", "same"),
        said(call("f", {}, "same")),
        tool("fine", "same"),
        said(call("f", {}, "same"), call("f", {}, "same")),
        tool("fine", "same"),
        tool("Error", "same"),
    ]

    assert failed(session) == {0, 3}


def test_a_lost_result_does_not_shift_the_others():
    """When a call's result is missing, the next call with its id keeps its own result."""
    session = [
        said(call("f", {}, "same")),
        said(call("g", {}, "other")),
        tool("fine", "other"),
        said(call("f", {}, "same")),
        tool("Error", "same"),
    ]

    assert failed(session) == {2}


def test_calls_in_messages_of_their_own_are_answered_in_order():
    """Calls with no result between them are one batch."""
    session = [*flat("f", "f"), tool("Error"), tool("fine")]

    assert failed(session) == {0}


def test_results_in_another_order_go_by_id():
    """Ids win over positions."""
    session = [said(call("f", {}, "1"), call("f", {}, "2")), tool("fine", "2"), tool("Error", "1")]

    assert failed(session) == {0}


def test_results_without_ids_go_by_name_and_order():
    """A result that names its tool answers a call of that tool."""
    session = [said(call("f"), call("g")), tool("Error", name="g"), tool("fine", name="f")]

    assert failed(session) == {1}


def test_a_result_nobody_asked_for_is_ignored():
    """An unknown id answers no call that has an id."""
    assert failed([said(call("f", {}, "1")), tool("Error", "2")]) == set()
    assert failed([tool("Error", "2")]) == set()


def trajectory(*tools: dict[str, object]) -> Trajectory:
    """Return a trajectory of one read and one write, offered some tools."""
    messages = (Message("assistant", tool_calls=(ToolCall("read", {}), ToolCall("write", {}))),)
    return Trajectory("t", SpanRef("0" * 32, "0" * 16), tail=messages, tools=tools)


def hinted(name: str, read_only: bool) -> dict[str, object]:
    """Return a tool definition with MCP's hint."""
    return {"name": name, "annotations": {"readOnlyHint": read_only}}


def test_mcp_hints_of_tool_definitions():
    """The hint readOnlyHint: false makes a tool a write; true, or no hint, does not."""
    out = trajectory(hinted("read", True), hinted("write", False), {"name": "other"})

    assert passes(out, flat("write"), "unordered", view="writes")
    wrapped = {"type": "function", "function": hinted("write", False)}
    assert passes(trajectory(wrapped), flat("write"), "unordered", view="writes")
    shape = {"messages": flat("read", "write"), "tools": [hinted("write", False)]}
    assert passes(shape, flat("write"), "unordered", view="writes")


def test_declared_tools_join_the_hints():
    """A tool declared in effect_tools is a write whatever its hint says."""
    out = trajectory(hinted("read", True), hinted("write", False))
    options = {"view": "writes", "effect_tools": ["read"]}

    assert passes(out, flat("read", "write"), "unordered", **options)


def test_a_view_that_knows_no_writes_is_refused():
    """Comparing nothing would pass, so it is an error that says what to pass."""
    for out in (flat("f"), trajectory(), trajectory({"name": "read"})):
        with pytest.raises(ValueError, match=r"pass effect_tools=\[\.\.\.\]"):
            passes(out, flat("f"), "unordered", view="effects")


@pytest.mark.parametrize(
    ("text", "flag", "pattern", "is_error"),
    [
        ("Error: no", {}, "refused", False),
        ('{"error": "no"}', {}, "refused", False),
        ("refused", {}, "refused", True),
        ("fine", {"is_error": True}, "refused", True),
        ('{"content": [], "isError": true}', {}, "refused", True),
        ("Error: no", {"is_error": False}, None, False),
        ('{"error": "no"}', {"is_error": False}, None, True),
    ],
)
def test_a_pattern_decides_on_what_no_flag_marks_as_failed(text, flag, pattern, is_error):
    """A pattern narrows what is read from results; flags of failures stay."""
    compiled = None if pattern is None else re.compile(pattern)

    assert bool(failed([said(call("f", {}, "1")), tool(text, "1", **flag)], compiled)) == is_error
