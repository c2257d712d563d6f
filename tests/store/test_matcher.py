from __future__ import annotations

import math
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oteval.evaluators import compare, make_spec
from oteval.model import Message, ToolCall, Trajectory
from oteval.pipeline import refresh
from oteval.selection import Selection
from oteval.store import Store
from oteval.store.matcher import ArgumentMode, MatchMode

from ..make import CAPTURES, asks, call, capture, keep, run

MODES: tuple[MatchMode, ...] = get_args(MatchMode)
ARGUMENTS: tuple[ArgumentMode, ...] = get_args(ArgumentMode)
COUNTED = ("unordered", "subset", "superset")

# Few names and values, so that matches happen; some are there to confuse lists, patterns and SQL.
names = st.sampled_from(["f", "g", "f,g", "f\x02g", ".*", "'; --", "é\0", "\ud83d", "\ufffd"])
arguments = st.sampled_from(
    [
        None,
        {},
        {"a": 1},
        {"a": 1.0},
        {"a": True},
        {"a": "1"},
        {"b": [1, {}], "a": None},
        "text",
        10**30,
        1e30,
        {"a": 12345678901234567890123},
        {"a": 12345678901234567890124},
        {"a": 1.2345678901234568e22},
        {"a": 2**64},
        {"a": "\ud83d"},
        {"a": "\ufffd"},
        {"\ude00": "\ud83d\ude00"},
        {"\ude00": "😀"},
        {"a": math.nan},
        {"a": math.inf},
        {"a": None},
    ]
)
times = st.sampled_from([(0, 0), (1, 3), (2, 4), (5, 6)])
calls = st.builds(
    lambda name, value, when: ToolCall(name, value, start_ns=when[0], end_ns=when[1]),
    names,
    arguments,
    times,
)
messages = st.one_of(
    st.sampled_from([Message("user", "x"), Message("system", "x"), Message("tool", "x")]),
    st.builds(lambda made: asks(*made), st.lists(calls, max_size=3)),
)
conversations = st.lists(messages, max_size=4).map(tuple)


def verdicts(store: Store, reference: Any, mode: MatchMode, how: ArgumentMode) -> dict[str, Any]:
    """Return the rows of a match by trajectory."""
    return {
        row["trajectory_id"]: row for row in store.matching.match(reference, mode, how).to_pylist()
    }


def overlaps(messages: tuple[Message, ...]) -> bool:
    """Return whether calls of different messages ran at the same time."""
    timed = [
        (at, c.start_ns, c.end_ns)
        for at, message in enumerate(messages)
        for c in message.tool_calls
        if c.start_ns and c.end_ns
    ]
    return any(a[0] != b[0] and a[1] < b[2] and b[1] < a[2] for a in timed for b in timed)


def compared(store: Store, trajectories: list[Trajectory], reference: tuple[Message, ...]) -> int:
    """Compare the verdicts of SQL and Python in every mode, and return how many were compared."""
    count = 0
    stored = {t.id: store.trajectories.get(t.id).own_messages for t in trajectories}
    for mode in MODES:
        for how in ARGUMENTS:
            spec = make_spec(trajectory_match_mode=mode, tool_args_match_mode=how)
            rows = verdicts(store, reference, mode, how)
            assert rows.keys() == {t.id for t in trajectories}
            for t in trajectories:
                row, own = rows[t.id], t.own_messages
                count += 1
                if row["passed"] is None:
                    assert mode == "strict"
                    assert overlaps(own) or overlaps(reference)
                    continue
                expected = compare(own, reference, spec)
                again = compare(stored[t.id], reference, spec)
                assert again[:5] == expected[:5], (mode, how, own, reference)
                assert row["passed"] == expected.passed, (mode, how, own, reference)
                if mode in COUNTED:
                    figures = (row["matched"], row["missing"], row["extra"])
                    assert figures == (expected.matched, expected.missing, expected.extra)
    return count


@settings(max_examples=15, deadline=None)
@given(st.lists(conversations, min_size=1, max_size=6), conversations)
def test_sql_and_python_agree_on_random_runs(
    given_runs: list[tuple[Message, ...]], reference: tuple[Message, ...]
):
    """SQL and the evaluator give the same verdict on each run; some runs equal the reference."""
    made = [run(number, *own) for number, own in enumerate([*given_runs, reference], 1)]
    with Store() as store:
        keep(store, *made)

        assert compared(store, made, reference) == len(made) * len(MODES) * len(ARGUMENTS)


@pytest.mark.parametrize("references", [2, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_sql_and_python_agree_on_all_captures(store: Store, references: int):
    """Captured trajectories, matched with some of the others, get the same verdicts both ways."""
    for name in CAPTURES:
        store.spans.write(*capture(name))
    refresh(store)
    trajectories = list(store.trajectories.read())

    for reference in trajectories[:: len(trajectories) // references]:
        count = compared(store, trajectories, reference.own_messages)

        assert count == len(trajectories) * len(MODES) * len(ARGUMENTS)


@pytest.mark.parametrize("how", ARGUMENTS)
def test_overlapping_calls_have_no_verdict_in_strict_mode(store: Store, how: ArgumentMode):
    """Calls of different messages that overlap give null in strict mode, a verdict in others."""
    parallel = (
        asks(call("f", {}, start_ns=1, end_ns=5)),
        asks(call("g", {}, start_ns=2, end_ns=3)),
    )
    keep(store, run(1, *parallel), run(2, asks(call("f", {})), asks(call("g", {}))))

    strict = verdicts(store, [asks(call("f", {})), asks(call("g", {}))], "strict", how)
    from_parallel = verdicts(store, parallel, "strict", how)
    others = [verdicts(store, parallel, mode, how) for mode in MODES if mode != "strict"]

    assert [strict[run(n).id]["passed"] for n in (1, 2)] == [None, True]
    assert [row["passed"] for row in from_parallel.values()] == [None, None]
    assert all(row["passed"] for rows in others for row in rows.values())


def test_unknown_arguments_never_match_exactly(store: Store):
    """A call without recorded arguments matches only if arguments are ignored."""
    keep(store, run(1, asks(call("f"))))

    exact = verdicts(store, [asks(call("f"))], "unordered", "exact")[run(1).id]
    ignored = verdicts(store, [asks(call("f"))], "unordered", "ignore")[run(1).id]

    assert (exact["passed"], exact["missing"], exact["extra"]) == (False, 1, 1)
    assert ignored["passed"]


def test_only_selected_and_current_trajectories_are_matched(store: Store):
    """Filters apply, and a superseded revision is not matched."""
    keep(store, run(1, asks(call("f", {}))), run(2, agent="b"), run(3, agent="b"))
    keep(store, run(3, asks(call("f", {})), agent="b"))

    table = store.matching.match(
        [asks(call("f", {}))], "superset", "exact", Selection(agents=("b",))
    )

    rows = {(row["trajectory_id"], row["rev"], row["passed"]) for row in table.to_pylist()}
    assert rows == {(run(2).id, 1, False), (run(3).id, 2, True)}


def test_only_the_messages_of_the_turn_are_matched(store: Store):
    """Messages of earlier turns do not count."""
    first = run(1, asks(call("f", {})))
    second = run(2, asks(call("g", {})), history=first, new_from=1)
    keep(store, first, second)

    rows = verdicts(store, [asks(call("g", {}))], "strict", "exact")

    assert [rows[t.id]["passed"] for t in (first, second)] == [False, True]
