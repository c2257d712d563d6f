"""Budgets and latency."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from oteval import ConfigError, create_budget_evaluator, create_latency_evaluator
from oteval.model import Message, ToolCall, Trajectory, Usage, reported_cost

from ...make import gap, run
from .helpers import asks, called, runs, says, score

SECOND = 1_000_000_000
PRICES = {
    "small": {"input": 1.0, "output": 10.0},
    "big": {"input": 2.0, "output": 20.0, "cached_input": 0.5},
}


def used(*models: str, **fields: Any) -> Trajectory:
    """Return a run that used a million tokens each way, half of those read cached."""
    usage = Usage(1_000_000, 1_000_000, 500_000, 3)
    return run(1, says("x"), models=models, **{"usage": usage, **fields})


def test_every_limit_is_held_against_what_was_used() -> None:
    """Each limit fails below what was used and passes at it, with the figure in the comment."""
    trajectory = replace(used("small"), tail=(*called("a", "b"), says("done")))
    limits = {
        "max_steps": (3, "steps 3 (at most 2)"),
        "max_tool_calls": (2, "tool calls 2 (at most 1)"),
        "max_model_calls": (3, "model calls 3 (at most 2)"),
        "max_input_tokens": (1_000_000, "input tokens 1000000 (at most 999999)"),
        "max_output_tokens": (1_000_000, "output tokens 1000000 (at most 999999)"),
        "max_total_tokens": (2_000_000, "total tokens 2000000 (at most 1999999)"),
    }

    for name, (count, comment) in limits.items():
        within = create_budget_evaluator(**{name: count})(outputs=trajectory)
        over = create_budget_evaluator(**{name: count - 1})(outputs=trajectory)
        assert (within["score"], within["comment"]) == (True, None)
        assert (over["score"], over["comment"]) == (False, comment)
        assert over["metadata"][name.removeprefix("max_")] == count


def test_the_cost_is_that_of_the_model_that_answered() -> None:
    """Tokens are paid by the million, cached ones at their own price where they have one."""
    small = create_budget_evaluator(max_cost=11.0, prices=PRICES)(outputs=used("small"))
    big = create_budget_evaluator(max_cost=21.0, prices=PRICES)(outputs=used("big"))

    assert (small["score"], small["metadata"]["cost"]) == (True, 11.0)
    assert reported_cost(small["metadata"]) == 0  # asking nobody costs nothing
    assert (big["score"], big["comment"]) == (False, "cost 21.25 (at most 21)")


def test_the_cost_of_several_models_is_known_within_bounds() -> None:
    """Over the cheapest is a failure, within the dearest a pass, between not evaluated."""
    trajectory = used("small", "big")

    results = [
        create_budget_evaluator(max_cost=most, prices=PRICES)(outputs=trajectory)
        for most in (10.0, 15.0, 22.0)
    ]

    assert [feedback["score"] for feedback in results] == [False, None, True]
    assert results[0]["comment"] == "cost at least 11 (at most 10)"
    assert results[1]["comment"] == "the cost is between 11 and 21.25, by model"


def test_a_model_of_the_table_needs_no_price_of_ones_own() -> None:
    """A dated model has the price that the bundled table gives its name."""
    trajectory = used("gpt-4o-mini-2024-07-18")

    assert create_budget_evaluator(max_cost=1.0)(outputs=trajectory)["score"] is True
    assert create_budget_evaluator(max_cost=0.5)(outputs=trajectory)["score"] is False


@pytest.mark.parametrize(
    ("options", "outputs", "comment"),
    [
        ({"max_cost": 1.0}, used("no-such-model"), "'no-such-model' has no price"),
        ({"max_cost": 1.0}, used(), "does not name the model"),
        ({"max_total_tokens": 5}, used("small", usage=Usage(model_calls=1)), "reports no tokens"),
        ({"max_model_calls": 5}, used("small", usage=Usage()), "shows no model call"),
        (
            {"max_total_tokens": 5},
            [Message("user", "?"), says("x")],
            "messages alone do not tell it",
        ),
        ({"max_steps": 5}, used("small", gaps=(gap("content_truncated"),)), "content_truncated"),
        (
            {"max_tool_calls": 5},
            used("small", gaps=(gap("content_not_captured"),)),
            "content_not_captured",
        ),
    ],
)
def test_what_a_trace_does_not_tell_is_not_evaluated(
    options: dict[str, Any], outputs: Any, comment: str
) -> None:
    """No tokens, models, prices or calls are no pass."""
    feedback = create_budget_evaluator(**options)(outputs=outputs)

    assert feedback["score"] is None
    assert feedback["metadata"] == {"status": "not_evaluated"}
    assert comment in feedback["comment"]


def test_one_limit_that_is_passed_is_enough_to_fail() -> None:
    """What is not known does not hide what is."""
    check = create_budget_evaluator(max_steps=0, max_total_tokens=5)

    assert check(outputs=[says("x")])["comment"] == "steps 1 (at most 0)"


def test_the_scope_says_whose_usage_counts() -> None:
    """A run is charged for itself, a conversation for all of its runs."""
    second = replace(used("small"), history=used("small"), new_from=1)
    check = create_budget_evaluator(max_model_calls=3)

    assert score(check, second).passed is True
    assert score(check, second, scope="conversation").passed is False


@pytest.mark.parametrize("name", ["genai_openai_chat_nocontent", "openinference_hidden"])
def test_a_run_without_content_is_held_to_its_budget(name: str) -> None:
    """Tokens and times are known where messages are not."""
    first = runs(name)[0]

    assert score(create_budget_evaluator(max_total_tokens=204), first).passed is True
    assert score(create_budget_evaluator(max_total_tokens=203), first).passed is False
    assert score(create_latency_evaluator(max_seconds=60), first).passed is True
    assert score(create_latency_evaluator(max_seconds=0.001), first).passed is False
    assert score(create_budget_evaluator(max_steps=9), first).status == "not_evaluated"


@given(st.integers(0, 6), st.integers(0, 6))
def test_a_higher_limit_never_fails_what_a_lower_one_passes(low: int, more: int) -> None:
    """Budgets are monotone."""
    messages = [asks("a")] * 4

    lower = create_budget_evaluator(max_tool_calls=low)(outputs=messages)["score"]
    higher = create_budget_evaluator(max_tool_calls=low + more)(outputs=messages)["score"]

    assert not lower or higher


def timed(start: int, end: int, **fields: Any) -> Trajectory:
    """Return a run that took from start to end, in seconds."""
    return run(1, **{"start_ns": start * SECOND, "end_ns": end * SECOND, **fields})


def test_a_run_that_took_too_long_fails() -> None:
    """The comment has both times."""
    feedback = create_latency_evaluator(max_seconds=2)(outputs=timed(10, 13))

    assert feedback["comment"] == "the run took 3.000 s (at most 2 s)"
    assert feedback["metadata"]["seconds"] == 3.0
    assert create_latency_evaluator(max_seconds=3)(outputs=timed(10, 13))["score"] is True


def test_the_time_between_runs_does_not_count() -> None:
    """Of a conversation the runs' times are added up."""
    second = replace(timed(100, 102), history=timed(10, 13))

    assert create_latency_evaluator(max_seconds=5)(outputs=second)["metadata"]["seconds"] == 5.0


def test_a_slow_tool_is_named() -> None:
    """Each call's own span counts; a call without one may have taken any time."""
    fast = ToolCall("look", {}, start_ns=1 * SECOND, end_ns=2 * SECOND)
    slow = ToolCall("pay", {}, start_ns=1 * SECOND, end_ns=5 * SECOND)
    check = create_latency_evaluator(max_tool_seconds=2)

    feedback = check(outputs=[Message("assistant", tool_calls=(fast, slow, ToolCall("x", {})))])

    assert feedback["comment"] == "call 1 pay({}) took 4.000 s (at most 2 s)"
    assert feedback["metadata"] == {"tool_seconds": 5.0, "slowest_tool_seconds": 4.0}
    some = create_latency_evaluator(max_tool_seconds=2, tools=["look", "x"])
    untimed = some(outputs=[Message("assistant", tool_calls=(fast, ToolCall("x", {})))])
    assert untimed["score"] is None
    assert untimed["comment"] == "no span shows how long call 1 x({}) took"
    assert some(outputs=[Message("assistant", tool_calls=(fast, slow))])["score"] is True


@pytest.mark.parametrize(
    "outputs",
    [
        timed(0, 0),
        timed(5, 4),
        timed(1, 2, gaps=(replace(gap("missing_parent"), span_id=run(1).root_span.span_id),)),
        [says("x")],
    ],
)
def test_times_that_are_not_known_are_no_pass(outputs: Any) -> None:
    """A run without times, or whose root is not in the trace, is not evaluated."""
    feedback = create_latency_evaluator(max_seconds=10)(outputs=outputs)

    assert (feedback["score"], feedback["metadata"]) == (None, {"status": "not_evaluated"})


def test_a_run_whose_root_is_missing_may_still_be_too_slow() -> None:
    """What is seen is enough to fail."""
    root = replace(gap("missing_parent"), span_id=run(1).root_span.span_id)

    feedback = create_latency_evaluator(max_seconds=1)(outputs=timed(1, 9, gaps=(root,)))

    assert feedback["score"] is False


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (create_budget_evaluator, {}, "give at least one limit"),
        (create_budget_evaluator, {"max_steps": 1.5}, "max_steps is 1.5"),
        (create_budget_evaluator, {"max_cost": float("nan")}, "max_cost is nan"),
        (create_budget_evaluator, {"max_cost": 1, "prices": {"m": {"in": 1}}}, "prices.'m'."),
        (create_latency_evaluator, {}, "give max_seconds or max_tool_seconds"),
        (create_latency_evaluator, {"max_seconds": -1}, "max_seconds is -1"),
    ],
)
def test_wrong_arguments_are_refused(make: Any, options: dict[str, Any], message: str) -> None:
    """The text names the argument."""
    with pytest.raises(ConfigError, match=message):
        make(**options)
