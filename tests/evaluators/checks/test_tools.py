"""Forbidden tools, failed calls, order and loops."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from oteval import (
    ConfigError,
    create_forbidden_tools_evaluator,
    create_loop_evaluator,
    create_tool_error_evaluator,
    create_tool_order_evaluator,
)
from oteval.evaluators.checks.loops import longest_cycle
from oteval.model import Message, ToolCall

from ...make import gap, run
from .helpers import asks, called, comment, gives, runs, score

names = st.lists(st.sampled_from("abc"), max_size=12)


def test_a_forbidden_tool_is_named_with_its_call() -> None:
    """The comment has the number of the call, the figures all wrong ones."""
    check = create_forbidden_tools_evaluator(forbidden=["delete_*"])

    result = check(outputs=called("look", "delete_user", "delete_all"))

    assert result == {
        "key": "forbidden_tools",
        "score": False,
        "comment": (
            "call 1 delete_user({}) must not be made; call 2 delete_all({}) must not be made"
        ),
        "metadata": {"calls": 3, "wrong_calls": 2, "tools": ["delete_all", "delete_user"]},
    }
    assert check(outputs=called("look"))["score"] is True


def test_only_allowed_tools_may_be_called() -> None:
    """A tool outside the list fails, and an empty list allows none."""
    check = create_forbidden_tools_evaluator(allowed=["look"])

    assert check(outputs=called("look"))["score"] is True
    assert check(outputs=called("look", "pay"))["score"] is False
    assert create_forbidden_tools_evaluator(allowed=[])(outputs=called("a"))["score"] is False


@given(names, st.sets(st.sampled_from("abc")))
def test_forbidden_and_allowed_are_opposites(tools: list[str], some: set[str]) -> None:
    """What a forbidden list passes, the list of all others as allowed passes too."""
    forbidden = create_forbidden_tools_evaluator(forbidden=some)
    allowed = create_forbidden_tools_evaluator(allowed=set("abc") - some)
    outputs = called(*tools)

    assert forbidden(outputs=outputs)["score"] == allowed(outputs=outputs)["score"]


def test_a_tool_that_ran_unasked_keeps_a_run_from_passing() -> None:
    """A span of a tool that no message asks for may be the forbidden one."""
    trajectory = run(1, *called("look"), gaps=(gap("unmatched_tool_span"),))

    result = score(create_forbidden_tools_evaluator(forbidden=["pay"]), trajectory)

    assert (result.status, result.score) == ("not_evaluated", None)


@pytest.mark.parametrize(
    "check",
    [
        create_forbidden_tools_evaluator(forbidden=["x"]),
        create_tool_order_evaluator(rules="a before b"),
        create_loop_evaluator(),
        create_tool_error_evaluator(),
    ],
    ids=lambda check: check.key,
)
def test_calls_that_may_be_unseen_are_never_a_pass(check: Any) -> None:
    """A run whose content was not captured and that has no tool's span is not evaluated."""
    trajectory = run(1, Message("assistant"), gaps=(gap("content_not_captured"),))

    result = score(check, trajectory)

    assert result.status == "not_evaluated"
    assert "content_not_captured" in result.comment


def test_results_that_nearly_are_errors_are_shown() -> None:
    """A pass tells what it did not take for an error, and the option that would."""
    outputs = [asks("a"), gives("error_rate: 0.1"), asks("b"), gives("sunny")]

    result = create_tool_error_evaluator()(outputs=outputs)

    assert result["score"] is True
    assert result["comment"] == (
        "not counted as errors: call 0 a({}): error_rate: 0.1; "
        "error_pattern decides otherwise which results are errors"
    )
    assert result["metadata"]["near_misses"] == 1


def test_failed_calls_are_named_with_what_they_said() -> None:
    """Calls fail by a flag or by their text; the comment has both numbers."""
    outputs = [
        asks("a"),
        gives("Error: no"),
        asks("b"),
        gives("x", is_error=True),
        asks("c"),
        gives(),
    ]

    result = create_tool_error_evaluator()(outputs=outputs)

    assert result["score"] is False
    assert result["comment"] == (
        "2 of 3 calls failed (at most 0): call 0 a({}): Error: no (the result is the text of an "
        "error), call 1 b({}): x (recorded as failed); error_pattern decides otherwise which "
        "results are errors"
    )
    assert result["metadata"]["error_rate"] == pytest.approx(2 / 3)
    assert create_tool_error_evaluator(max_errors=2)(outputs=outputs)["score"] is True
    assert create_tool_error_evaluator(tools=["c"])(outputs=outputs)["score"] is True
    pattern = re.compile("FINE", re.IGNORECASE)
    assert (
        create_tool_error_evaluator(error_pattern=pattern, tools=["c"])(outputs=outputs)["score"]
        is False
    )


def test_a_failed_result_whose_call_is_not_there_is_no_pass() -> None:
    """The call may be one that the run made; a result that did not fail says nothing."""
    result = {"role": "tool", "tool_call_id": "9", "content": "Error: failed"}
    outputs = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}, result]

    failed = create_tool_error_evaluator()(outputs=outputs)
    sound = create_tool_error_evaluator()(outputs=[*outputs[:2], {**result, "content": "ok"}])

    assert failed["score"] is None
    assert failed["comment"] == ("a failed result belongs to no call in the trace: Error: failed")
    assert sound["score"] is True


def test_a_call_without_a_result_may_have_failed() -> None:
    """Such a run is not evaluated, unless that is said to be fine or enough others failed."""
    outputs = [asks("a"), gives("Error"), asks("b")]
    check = create_tool_error_evaluator(max_errors=1)

    result = check(outputs=outputs)

    assert result["score"] is None
    assert result["metadata"] == {"status": "not_evaluated"}
    assert result["comment"] == "no result of call 1 b({}) is in the trace"
    assert create_tool_error_evaluator(max_errors=1, missing_ok=True)(outputs=outputs)["score"]
    assert create_tool_error_evaluator()(outputs=outputs)["score"] is False


@pytest.mark.parametrize(
    "name", ["genai_openai_chat", "openinference_chat", "vercel_ai6_stream", "strands_latest"]
)
def test_the_failed_tool_of_a_capture_is_found(name: str) -> None:
    """In real traces the second run has a tool that failed, the first has none."""
    first, second, *_ = runs(name)

    assert score(create_tool_error_evaluator(), first).passed is True
    assert score(create_tool_error_evaluator(), second).passed is False


def test_results_that_were_not_captured_are_not_known_to_be_fine() -> None:
    """Without content a tool may have answered with an error; one that is flagged has."""
    first, second, *_ = runs("genai_openai_chat_nocontent")

    assert score(create_tool_error_evaluator(), first).status == "not_evaluated"
    assert score(create_tool_error_evaluator(), second).passed is False


ORDER = [
    ("a before b", "ab", True),
    ("a before b", "ba", False),
    ("a before b", "b", False),
    ("a before b", "a", True),
    ("a before b", "abb", True),
    ("a immediately before b", "xab", True),
    ("a immediately before b", "axb", False),
    ("a immediately before b", "abb", False),
    ("every a is followed by b", "aab", True),
    ("every a is followed by b", "aba", False),
    ("every a is followed by b", "b", True),
    ("every a is immediately followed by b", "abxab", True),
    ("every a is immediately followed by b", "axb", False),
    ("never b after a", "ba", True),
    ("never b after a", "bxaxb", False),
    ("never a after a", "a", True),
    ("never a after a", "axa", False),
]


@pytest.mark.parametrize(("rule", "tools", "holds"), ORDER)
def test_rules_of_order(rule: str, tools: str, holds: bool) -> None:
    """Each sentence holds where it says so, and a rule about no call holds."""
    check = create_tool_order_evaluator(rules=rule)

    assert check(outputs=called(*tools))["score"] is holds
    assert check(outputs=[])["score"] is True


def test_calls_of_one_message_have_no_order() -> None:
    """What is asked for at once is neither before nor after."""
    together = [asks("a", "b")]

    for rule in ("a before b", "b before a", "every a is followed by b"):
        assert create_tool_order_evaluator(rules=rule)(outputs=together)["score"] is False
    assert create_tool_order_evaluator(rules="never b after a")(outputs=together)["score"] is True
    successive = [asks("a", "x"), asks("b")]
    assert (
        create_tool_order_evaluator(rules="a immediately before b")(outputs=successive)["score"]
        is True
    )


def test_a_broken_rule_is_named_with_the_call() -> None:
    """The comment has the rule and the calls, the figures all broken rules."""
    check = create_tool_order_evaluator(rules=["look before pay", "never 'look up' after pay"])

    result = check(outputs=called("pay", "look up", "look"))

    assert result["comment"] == (
        "'look before pay' does not hold: call 0 pay({}) is made before call 2 look({}); "
        "'never 'look up' after pay' does not hold: call 1 look up({}) is made after call 0 pay({})"
    )
    assert result["metadata"]["broken"] == ["look before pay", "never 'look up' after pay"]


@given(names)
def test_rules_imply_each_other(tools: list[str]) -> None:
    """What is immediately before is before; what follows immediately follows."""

    def holds(rule: str) -> Any:
        return create_tool_order_evaluator(rules=rule)(outputs=called(*tools))["score"]

    assert not holds("a immediately before b") or holds("a before b")
    assert not holds("every a is immediately followed by b") or holds("every a is followed by b")
    assert holds("never b after a") == (not any("a" in tools[:i] for i in at(tools, "b")))


def at(tools: list[str], name: str) -> list[int]:
    """Return where a tool is called."""
    return [i for i, tool in enumerate(tools) if tool == name]


def test_the_same_call_again_and_again_is_a_loop() -> None:
    """Equal calls in a row are counted; other arguments are another call."""
    check = create_loop_evaluator()
    again = [asks("look", q=1)] * 3

    result = check(outputs=again)

    assert result["comment"] == 'call 0 look({"q":1}) made 3 times in a row (at most 2)'
    assert result["metadata"] == {"calls": 3, "repeats": 3, "cycle": ["look"], "most_equal": 3}
    assert check(outputs=again[:2])["score"] is True
    assert check(outputs=[asks("look", q=n) for n in range(9)])["score"] is True
    assert create_loop_evaluator(ignore_tools=["lo*"])(outputs=again)["score"] is True


def test_calls_that_take_turns_are_a_loop() -> None:
    """A cycle of several calls is found, and named by its calls."""
    outputs = called("x", *"ababab")

    assert comment(create_loop_evaluator(), outputs) == (
        "call 1 a({}), call 2 b({}) made 3 times in a row (at most 2)"
    )
    assert create_loop_evaluator(max_cycle=1)(outputs=outputs)["score"] is True
    assert comment(create_loop_evaluator(max_equal=2), called(*"axayaz")) == (
        "call 0 a({}) made 3 times (at most 2)"
    )


def test_arguments_that_were_not_captured_may_be_a_loop() -> None:
    """Calls without arguments are not evaluated where equal ones would be a loop."""
    unknown = [Message("assistant", tool_calls=(ToolCall("look"),))] * 3

    result = create_loop_evaluator()(outputs=unknown)

    assert result["comment"] == "the arguments of look are not in the trace"
    assert create_loop_evaluator()(outputs=unknown[:2])["score"] is True


@given(names, st.integers(1, 5))
def test_the_longest_cycle_is_one(tools: list[str], longest: int) -> None:
    """The calls found do repeat as often as said, and no cycle repeats more often."""
    cycle = longest_cycle(tools, longest)

    if cycle is None:
        assert tools == []
        return
    start, length, repeats = cycle
    block = tools[start : start + length]
    assert tools[start : start + length * repeats] == block * repeats
    for size in range(1, longest + 1):
        for begin in range(len(tools)):
            more = tools[begin : begin + size] * (repeats + 1)
            assert tools[begin : begin + len(more)] != more


def test_captured_runs_do_not_loop() -> None:
    """Real runs that call each tool once pass."""
    for captured in runs("genai_openai_chat")[:2]:
        assert score(create_loop_evaluator(), captured).passed is True


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (create_forbidden_tools_evaluator, {}, "give forbidden or allowed"),
        (
            create_forbidden_tools_evaluator,
            {"forbidden": "x"},
            "forbidden is 'x'; 'str' instances are not allowed",
        ),
        (create_tool_error_evaluator, {"max_errors": -1}, "max_errors is -1"),
        (create_tool_error_evaluator, {"max_errors": True}, "max_errors is True"),
        (create_tool_error_evaluator, {"error_pattern": "("}, "not a valid pattern"),
        (create_tool_error_evaluator, {"error_pattern": 1}, "error_pattern is 1"),
        (
            create_loop_evaluator,
            {"max_repeats": 0},
            "max_repeats is 0; input should be greater than or equal to 1",
        ),
        (create_tool_order_evaluator, {"rules": []}, "rules is empty"),
        (create_tool_order_evaluator, {"rules": "a after b"}, "rule 'a after b' is not known"),
        (create_tool_order_evaluator, {"rules": "a before a"}, "names the same tool twice"),
    ],
)
def test_wrong_arguments_are_refused(make: Any, options: dict[str, Any], message: str) -> None:
    """The text names the argument."""
    with pytest.raises(ConfigError, match=message):
        make(**options)
