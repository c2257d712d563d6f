"""Recorded results for calls that differ: the rungs, in their order."""

from __future__ import annotations

import pytest

from oteval.base.errors import ConfigError
from oteval.base.patterns import compile_pattern
from oteval.model import RecordedToolCall
from oteval.replays.tool_ladder import ToolLadder

CALLS = [
    RecordedToolCall("weather", {"city": "Paris"}, "sunny"),
    RecordedToolCall("weather", {"city": "Rome", "days": 2}, "rain"),
    RecordedToolCall("refund", {"order": 17}, "done"),
    RecordedToolCall("refund", {"order": 18}, None),
]


@pytest.mark.parametrize(
    ("name", "arguments", "rung", "result"),
    [
        ("weather", {"city": "Paris"}, "exact", "sunny"),
        ("weather", {"city": " paris "}, "normalized", "sunny"),
        ("weather", {"city": "Paris", "days": None}, "normalized", "sunny"),
        ("weather", {"days": "2", "city": "ROME"}, "normalized", "rain"),
        ("refund", {"order": "17"}, "normalized", "done"),
        ("weather", {"city": "Rome", "days": 5}, "policy", "rain"),
        ("refund", {"order": 18}, "policy", "done"),
        ("unknown", {}, "missing", None),
    ],
)
def test_the_first_rung_that_has_a_result_answers(name, arguments, rung, result):
    """Exact beats normalized beats the nearest; another tool never answers."""
    ladder = ToolLadder(CALLS, policy="nearest")

    answer = ladder.take(name, arguments)

    assert answer.rung == rung
    assert (answer.call.result if answer.call else None) == result
    assert ladder.counts == {rung: 1}


def test_without_a_policy_unlike_calls_are_missing():
    """By default no result is guessed."""
    ladder = ToolLadder(CALLS)

    assert ladder.take("weather", {"city": "Rome", "days": 5}).rung == "missing"


def test_patterns_allow_what_varies():
    """An id that differs in every run is ignored."""
    calls = [RecordedToolCall("log", {"id": "r-123"}, "ok")]
    ladder = ToolLadder(calls, normalize=[compile_pattern(r"r-\d+")])

    assert ladder.take("log", {"id": "r-999"}).rung == "normalized"


def test_equal_calls_get_the_results_in_their_order():
    """Polling sees the recorded states; one more poll sees the last one again."""
    calls = [RecordedToolCall("status", {}, state) for state in ("queued", "done")]
    ladder = ToolLadder(calls)

    results = [ladder.take("status", {}).call for _ in range(3)]

    assert [call.result for call in results if call] == ["queued", "done", "done"]


def test_an_unknown_policy_is_named():
    """The error lists the policies."""
    with pytest.raises(ConfigError, match="choose one of error, nearest"):
        ToolLadder([], policy="guess")  # type: ignore[arg-type]
