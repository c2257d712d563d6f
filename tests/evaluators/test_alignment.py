from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from oteval.evaluators import alignment
from oteval.evaluators.alignment import align, first_divergence
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


def rows(left: list[Message], right: list[Message]) -> list[tuple[int | None, int | None]]:
    """Return the places that stand beside each other."""
    return [(pair.left_at, pair.right_at) for pair in align(left, right)]


@given(messages, messages)
def test_different_roles_never_share_a_row(left: list[Message], right: list[Message]):
    """What a user said never stands beside what a model or a tool said."""
    for pair in align(left, right):
        if pair.left and pair.right:
            assert pair.left.role == pair.right.role


def test_messages_stand_beside_those_that_say_nearly_the_same():
    """Of several messages of a role, the most similar is the counterpart."""
    left = [
        Message("user", "Where is my order?"),
        Message("assistant", "Let me look that up."),
        Message("assistant", "Your order 4711 arrives on Monday."),
    ]
    right = [
        Message("user", "where is my order"),
        Message("assistant", "Your order 4711 arrives on Friday."),
    ]

    assert rows(left, right) == [(0, 0), (1, None), (2, 1)]


def test_a_result_stands_beside_the_result_of_the_same_tool():
    """Results are told apart by the calls they answer, also where they look alike."""
    calls = ToolCall("get_order", {"id": 1}, "a"), ToolCall("check_policy", {}, "b")
    left = [
        Message("assistant", None, calls),
        Message("tool", '{"order": 1}', (), "a"),
        Message("tool", '{"policy": 1}', (), "b"),
    ]
    right = [
        Message("assistant", None, (ToolCall("check_policy", {}, "x"),)),
        Message("tool", '{"order": 9}', (), "x"),
    ]

    assert rows(left, right) == [(0, 0), (1, None), (2, 1)]


def test_system_messages_stand_aside():
    """They come first, wherever they were, and no run parts there."""
    left = [Message("user", "a"), Message("system", "be kind"), Message("assistant", "b")]
    right = [Message("user", "a"), Message("assistant", "b")]

    pairs = align(left, right)

    assert [(pair.left_at, pair.right_at) for pair in pairs] == [(1, None), (0, 0), (2, 1)]
    assert [pair.is_system for pair in pairs] == [True, False, False]
    assert first_divergence(pairs) is None


def test_the_spacing_of_a_results_json_does_not_count():
    """Frameworks write the same result differently; other values still differ."""
    spaced, dense = Message("tool", '{"a": 1.0, "b": [2]}'), Message("tool", '{"b":[2],"a":1}')
    other = Message("tool", '{"b":[2],"a":12345678901234567890123}')
    near = Message("tool", '{"b":[2],"a":12345678901234567890124}')

    assert align([spaced], [dense])[0].same
    assert not align([other], [near])[0].same
    assert not align([Message("assistant", "{}")], [Message("assistant", "{ }")])[0].same


def test_other_images_are_a_difference():
    """Messages that differ in an image alone are not the same; reasoning is not compared."""
    one, other = (Message("user", "look", parts=({"type": "image", "url": url},)) for url in "ab")
    thought = Message("user", "look", parts=({"type": "reasoning", "text": "hm"},))

    assert not align([one], [other])[0].same
    assert align([Message("user", "look")], [thought])[0].same


def test_long_trajectories_are_aligned_in_time():
    """Thousands of messages that all differ a little still line up by role."""
    left = [Message(("user", "assistant")[n % 2], f"left {n}") for n in range(3000)]
    right = [Message(("user", "assistant")[n % 2], f"right {n}") for n in range(3001)]

    pairs = align(left, right)

    assert len(pairs) == 3001
    assert all(p.left.role == p.right.role for p in pairs if p.left and p.right)


@given(messages, messages)
def test_long_sides_lose_and_reorder_nothing(left: list[Message], right: list[Message]):
    """Where not all pairs are compared, messages stay in order, and roles never share a row."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "_MOST_PAIRS", 2)
        patch.setattr(alignment, "_MOST_MATCHED", 3)
        pairs = align(left, right)

    assert [pair.left for pair in pairs if pair.left is not None] == left
    assert [pair.right for pair in pairs if pair.right is not None] == right
    assert all(pair.left is not None or pair.right is not None for pair in pairs)
    assert all(p.left.role == p.right.role for p in pairs if p.left and p.right)


def test_calls_that_repeat_are_aligned_with_calls_and_results():
    """A run of thousands of calls lines up with one of calls and results, which never match."""
    call = Message("assistant", None, tool_calls=(ToolCall("search", {"q": 1}),))
    left = [call] * 5000
    right = [Message("assistant", "next"), Message("tool", "found")] * 5000

    pairs = align(left, right)

    assert len(pairs) == 10_000
    assert sum(p.left is not None and p.right is not None for p in pairs) == 5000
    assert not any(pair.same for pair in pairs)


def test_as_many_equal_messages_as_possible_share_a_row():
    """In a long run with one message more in between, all others are the same."""
    left = [Message("user", f"{n % 50}") for n in range(2000)]
    right = [*left[:700], Message("user", "new"), *left[700:1500], *left[1510:]]

    pairs = align(left, right)

    assert sum(pair.same for pair in pairs) == 1990
    assert first_divergence(pairs) == 700
