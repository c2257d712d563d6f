from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, strategies as st

from oteval.evaluators import create_trajectory_match_evaluator as make

MODES = ("strict", "unordered", "superset", "subset", "in_order")

scalars = st.integers(-2, 2) | st.sampled_from(["a", "b", "1", 1.5, True, None])
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=10,
)
objects = st.dictionaries(st.sampled_from("xyz"), values, min_size=1, max_size=3)


def asks(*calls: tuple[str, Any]) -> list[dict[str, Any]]:
    """Return one assistant message with some calls."""
    made = [{"name": name, "args": arguments} for name, arguments in calls]
    return [{"role": "assistant", "tool_calls": made}]


def shuffled(value: Any, data: st.DataObject) -> Any:
    """Return a value with its lists in other orders."""
    if isinstance(value, dict):
        return {key: shuffled(item, data) for key, item in value.items()}
    if isinstance(value, list):
        return data.draw(st.permutations([shuffled(item, data) for item in value]))
    return value


@pytest.mark.parametrize("mode", MODES)
def test_a_comment_names_the_list_whose_order_differs(mode: str):
    """A call that differs in nothing but a list's order is told apart, with the option to use."""
    out = asks(("find", {}), ("refund", {"item_ids": [2, 1], "order": "7"}))
    ref = asks(("find", {}), ("refund", {"item_ids": [1, 2], "order": "7"}))

    result = make(trajectory_match_mode=mode)(outputs=out, reference_outputs=ref)

    assert result["score"] is False
    assert "refund: only the order of the list 'item_ids' differs" in result["comment"]
    assert '{"tolerant":{"sets":["item_ids"]}}' in result["comment"]
    assert result["metadata"]["reordered"] == {"refund": ["item_ids"]}


@pytest.mark.parametrize(
    ("out", "ref"),
    [
        ({"ids": [2, 1], "order": "7"}, {"ids": [1, 2], "order": "8"}),
        ({"ids": [2, 1, 1]}, {"ids": [1, 2, 2]}),
        ({"ids": [1, 2]}, {"ids": [1, 2, 3]}),
        ({"ids": [1, "2"]}, {"ids": [2, 1]}),
        ({"ids": "2,1"}, {"ids": "1,2"}),
    ],
)
def test_calls_that_differ_in_more_are_not_told_so(out: Any, ref: Any):
    """Other differences beside the order have the usual comment, and no run is marked."""
    result = make()(outputs=asks(("t", out)), reference_outputs=asks(("t", ref)))

    assert "only the order" not in result["comment"]
    assert "reordered" not in result["metadata"]


def test_the_nearest_namesake_is_the_one_that_differs_in_order_alone():
    """Of several calls of a tool, the comment takes the one with the same items."""
    out = asks(("t", {"ids": [1, 2, 9], "n": 1}), ("t", {"ids": [3, 2, 1], "n": 1}))
    ref = asks(("t", {"ids": [1, 2, 3], "n": 1}))

    result = make(trajectory_match_mode="superset")(outputs=out, reference_outputs=ref)

    assert "only the order of the list 'ids' differs" in result["comment"]


@pytest.mark.parametrize("rule", ["exact", "tolerant", "subset", "superset", ["ids"]])
def test_every_comparison_of_values_names_the_list(rule: Any):
    """The order is what differs, whichever way the rest is compared; an override is told too."""
    out, ref = asks(("t", {"ids": ["A", "b"]})), asks(("t", {"ids": ["b", "A"]}))

    result = make(tool_args_match_overrides={"t": rule})(outputs=out, reference_outputs=ref)

    assert result["metadata"]["reordered"] == {"t": ["ids"]}


@pytest.mark.parametrize("rule", ["regex", {"regex": {"ids": "x"}}, lambda _out, _ref: False])
def test_patterns_and_functions_are_asked_nothing_of_the_kind(rule: Any):
    """Where a pattern or the user's function decides, no order can be told apart."""
    out, ref = asks(("t", {"ids": ["A", "b"]})), asks(("t", {"ids": ["b", "A"]}))

    result = make(tool_args_match_overrides={"t": rule})(outputs=out, reference_outputs=ref)

    assert result["score"] is False
    assert "reordered" not in result["metadata"]


def test_lists_that_are_sets_already_stay_sets():
    """The option that a comment names holds the lists that the evaluator has as sets."""
    rule = {"tolerant": {"sets": ["tags"]}}
    out, ref = asks(("t", {"ids": [1, 2], "tags": [1]})), asks(("t", {"ids": [2, 1], "tags": [1]}))

    result = make(tool_args_match_mode=rule)(outputs=out, reference_outputs=ref)

    assert '{"tolerant":{"sets":["ids","tags"]}}' in result["comment"]


@given(objects, st.data())
def test_with_the_option_that_is_named_the_calls_match(value: dict[str, Any], data: Any):
    """Whatever is nested in what: the lists named, taken as sets, make the two equal."""
    other = shuffled(value, data)
    out, ref = asks(("t", value)), asks(("t", other))
    found = make(trajectory_match_mode="unordered")(outputs=out, reference_outputs=ref)
    assume(not found["score"])

    paths = found["metadata"]["reordered"]["t"]
    tolerant = make(
        trajectory_match_mode="unordered",
        tool_args_match_mode={"tolerant": {"sets": paths}},
    )

    assert tolerant(outputs=out, reference_outputs=ref)["score"] is True
