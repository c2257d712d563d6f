from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oteval.evaluate.alignment import align, first_divergence
from oteval.model import Message, ToolCall

messages = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["user", "assistant"]),
        content=st.sampled_from([None, "", "a", "b"]),
        tool_calls=st.lists(
            st.builds(ToolCall, st.sampled_from("fg"), st.sampled_from([None, {}, {"a": 1}])),
            max_size=2,
        ).map(tuple),
    ),
    max_size=6,
)


@given(messages, messages)
def test_every_message_is_on_its_side_once_and_in_order(left: list[Message], right: list[Message]):
    """An alignment loses, doubles and reorders nothing, and no row is empty."""
    pairs = align(left, right)

    assert [pair.left for pair in pairs if pair.left is not None] == left
    assert [pair.right for pair in pairs if pair.right is not None] == right
    assert all(pair.left is not None or pair.right is not None for pair in pairs)


@given(messages)
def test_a_trajectory_does_not_part_from_itself(given_messages: list[Message]):
    """Equal sides are the same row by row."""
    pairs = align(given_messages, given_messages)

    assert first_divergence(pairs) is None
    assert all(pair.same for pair in pairs)


def test_rows_that_differ_stand_beside_each_other():
    """Between equal messages, what was said instead is in the same row."""
    left = [Message("user", "a"), Message("assistant", "x"), Message("user", "b")]
    right = [
        Message("user", "a"),
        Message("assistant", "y"),
        Message("tool", "z"),
        Message("user", "b"),
    ]

    pairs = align(left, right)

    assert [pair.same for pair in pairs] == [True, False, False, True]
    assert (pairs[1].left, pairs[1].right) == (left[1], right[1])
    assert (pairs[2].left, pairs[2].right) == (None, right[2])
    assert first_divergence(pairs) == 1


def test_the_order_of_calls_in_a_message_and_ids_do_not_count():
    """Parallel calls in another order, other ids and key orders are the same message."""
    one = ToolCall("f", {"a": 1, "b": 2}, "1"), ToolCall("g", {})
    other = ToolCall("g", {}, "7"), ToolCall("f", {"b": 2, "a": 1.0})

    (pair,) = align([Message("assistant", None, one)], [Message("assistant", "", other)])

    assert pair.same


def test_a_failure_is_a_difference():
    """A tool message that failed is not the same as one that did not."""
    (pair,) = align([Message("tool", "x")], [Message("tool", "x", is_error=True)])

    assert not pair.same
