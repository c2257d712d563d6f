from __future__ import annotations

import io

from rich.console import Console

from oteval.model import Message, Trajectory
from oteval.scoring import align
from oteval.views import diff_view

from ..make import asks, call, run


def shown(left: Trajectory, right: Trajectory, width: int = 100) -> str:
    """Return what `oteval diff` prints of two runs."""
    pairs = align(left.own_messages, right.own_messages)
    console = Console(file=io.StringIO(), width=width)
    console.print(diff_view(left, right, pairs, starts=(left.new_from, right.new_from)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_missing_system_message_is_no_divergence():
    """It is said above the table, and the runs part where the conversation does."""
    left = run(1, Message("system", "be kind"), Message("user", "a"), Message("assistant", "x"))
    right = run(2, Message("user", "a"), Message("assistant", "x"))

    text = shown(left, right)

    assert "System messages differ" in text
    assert "< system: be kind" in text
    assert "> —" in text
    assert "No difference in 2 messages." in text


def test_messages_are_numbered_as_show_numbers_them():
    """The place where runs part is given by each run's own numbers."""
    first = run(1, Message("user", "before"), Message("assistant", "answered"))
    left = run(2, Message("user", "a"), Message("assistant", "x"), history=first, new_from=2)
    right = run(3, Message("system", "s"), Message("user", "a"), Message("assistant", "y"))

    text = shown(left, right)

    assert "2 user: a" in text
    assert "First divergence at message 3 of the first run, 2 of the second; 1 of 2 rows" in text
    assert "1 of 2 rows differs." in text


def test_a_difference_late_in_a_long_text_is_seen():
    """Long texts are shown from just before they part, with how much they share."""
    left = run(1, Message("assistant", "x" * 1000 + " Monday"))
    right = run(2, Message("assistant", "x" * 1000 + " Friday"))

    text = shown(left, right)

    assert "Monday" in text
    assert "Friday" in text
    assert "(961 equal characters)" in text


def test_what_was_not_captured_is_not_called_equal():
    """Rows that look equal because their content is missing are counted beside the verdict."""
    left = run(1, Message("user", None), asks(call("f")))
    right = run(2, Message("user", None), asks(call("f")))

    text = shown(left, right)

    assert "No difference in 2 messages." in text
    assert "2 rows could not be compared in full" in text
    assert "(content not captured)" in text


def test_a_message_of_one_side_only_is_named_by_its_side():
    """A divergence where one run has no message says whose message it is."""
    left = run(1, Message("user", "a"))
    right = run(2, Message("user", "a"), Message("assistant", "b"))

    assert "First divergence at message 1 of the second run" in shown(left, right)
    assert "First divergence at message 1 of the first run" in shown(right, left)
