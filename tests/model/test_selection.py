from __future__ import annotations

from typing import Any

import pytest

from oteval.base.errors import ConfigError
from oteval.model import Gap, Message, SpanRef, ToolCall, Trajectory, Usage
from oteval.model.columns import FIELDS, column_values
from oteval.model.selection import Condition, Selection, parse_condition

CALLS = (ToolCall("look", {}), ToolCall("book", {}))
RUN = Trajectory(
    "abcdef",
    SpanRef("t", "s"),
    tail=(
        Message("user", "old"),
        Message("assistant", tool_calls=(ToolCall("old", {}),)),
        Message("tool", is_error=True),
        Message("assistant", tool_calls=CALLS),
        Message("tool", is_error=True),
        Message("tool"),
    ),
    new_from=3,
    conversation_id="chat",
    turn=2,
    agent="desk",
    service="shop",
    parent_id="up",
    models=("m1", "m2"),
    dialects=("genai",),
    usage=Usage(100, 20),
    start_ns=2_000_000_000,
    end_ns=3_500_000_000,
    gaps=(Gap("redacted", ""), Gap("content_truncated", "")),
    attributes={"plan": "gold", "beta": True, "tier": 2, "rate": 0.5},
)


@pytest.mark.parametrize(
    "text",
    [
        *("agent=desk", "service=shop", "conversation=chat", "model=m2", "dialect=genai"),
        *("gap=redacted", "turn=2", "turn=2.0", "parent=up", "tool=book", "calls=2", "errors=1"),
        *("input_tokens=100", "output_tokens>=20", "seconds=1.5", "attributes.plan=gold"),
        *("attributes.beta=true", "attributes.beta=True", "attributes.tier=2"),
        *("attributes.rate<1", "errors>0", "turn<=2", "turn>1", "turn>=2", "turn<3"),
        *("agent!=other", "attributes.none!=x", "agent~^de", "tool~oo", "attributes.plan~ol"),
        *(" agent = desk ", "seconds>1.4", "seconds<1.6"),
    ],
)
def test_conditions_that_are_true(text: str):
    """Each field and operator matches the values of a trajectory, or any of several."""
    assert parse_condition(text).holds(RUN)


@pytest.mark.parametrize(
    "text",
    [
        *("agent=des", "agent!=desk", "model!=m1", "tool=old", "gap=other", "turn=3", "turn>2"),
        *("errors>=2", "errors<1", "attributes.none=x", "attributes.none~x", "attributes.plan>1"),
        *("attributes.beta=1", "attributes.tier=gold", "agent~^esk", "agent=", "seconds<=1"),
    ],
)
def test_conditions_that_are_false(text: str):
    """Other values do not match, and values that cannot be compared never do."""
    assert not parse_condition(text).holds(RUN)


@pytest.mark.parametrize("operator", ["=", "!=", "~", ">", "<", ">=", "<="])
def test_a_condition_has_three_parts(operator: str):
    """An operator of two characters is not read as one of a single character."""
    assert parse_condition(f"turn{operator}1") == Condition("turn", operator, "1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write FIELD OPERATOR VALUE"),
        ("errors", "write FIELD OPERATOR VALUE"),
        ("color=red", "unknown field 'color'; the fields are agent, "),
        ("agent~(", "invalid regular expression"),
        ("errors>many", "> compares with a number"),
    ],
)
def test_an_invalid_condition_is_an_error(text: str, message: str):
    """The error names the text and the remedy."""
    with pytest.raises(ConfigError) as caught:
        parse_condition(text)

    assert repr(text) in str(caught.value)
    assert message in str(caught.value)


def test_every_field_works_on_an_empty_trajectory():
    """No field fails on a trajectory without any data."""
    empty = Trajectory("x", SpanRef("t", "s"))

    for name in FIELDS:
        is_unknown = column_values(empty)(name) is None
        assert parse_condition(f"{name}!=7").holds(empty) is not is_unknown


@pytest.mark.parametrize("text", ["turn=x", "calls!=many", "errors=nan", "seconds<", "turn>nan"])
def test_a_number_is_compared_with_a_number(text: str):
    """Another value would silently select nothing, or everything."""
    with pytest.raises(ConfigError, match="compares with a number"):
        parse_condition(text)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"ids": ("abc",)},
        {"ids": ("zzz", "abcdef")},
        {"since_ns": 2_000_000_000},
        {"until_ns": 2_000_000_001},
        {"agents": ("other", "desk")},
        {"services": ("shop",)},
        {"conversations": ("chat",)},
        {"models": ("m0", "m2")},
        {"attributes": {"plan": ("silver", "gold"), "tier": ("2",)}},
        {"conditions": (Condition("turn", "=", "2"), Condition("errors", ">", "0"))},
        {"excluded": Selection(agents=("other",))},
        {"limit": 0},
    ],
)
def test_a_selection_matches(fields: dict[str, Any]):
    """One of several values must match; empty fields and the limit are ignored."""
    assert Selection(**fields).matches(RUN)


@pytest.mark.parametrize(
    "fields",
    [
        {"ids": ("bcd",)},
        {"since_ns": 2_000_000_001},
        {"until_ns": 2_000_000_000},
        {"agents": ("other",)},
        {"services": ("des",)},
        {"conversations": ("",)},
        {"models": ("m",)},
        {"attributes": {"plan": ("gold",), "none": ("x",)}},
        {"conditions": (Condition("turn", "=", "2"), Condition("errors", ">", "9"))},
        {"excluded": Selection(agents=("desk",))},
        {"agents": ("desk",), "services": ("other",)},
    ],
)
def test_a_selection_does_not_match_if_one_field_fails(fields: dict[str, Any]):
    """All fields must match."""
    assert not Selection(**fields).matches(RUN)
