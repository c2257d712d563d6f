from __future__ import annotations

import pytest

from oteval.reconstruct.gaps import gap


@pytest.mark.parametrize(
    ("code", "one", "several"),
    [
        ("missing_parent", "1 parent span is", "2 parent spans are"),
        ("history_rewritten", "1 earlier message;", "2 earlier messages;"),
        ("unknown_dialect", "1 span looks", "2 spans look"),
        ("calls_left_out", "a tool call out", "2 tool calls out"),
    ],
)
def test_explanations_are_in_the_right_number(code: str, one: str, several: str):
    """One of a thing is singular in the explanation of a gap."""
    values = {"parent": "p", "marks": "w"}

    assert one in gap(code, count=1, **values).detail
    assert several in gap(code, count=2, **values).detail
