"""A placeholder in a recording equals one value of a replay, and no other text."""

from __future__ import annotations

import pytest

from oteval.replays.text_comparison import is_same_text

KEY = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("recorded", "actual"),
    [
        ("The key is [redacted].", "The key is a b c."),
        ("The key is [redacted].", "The key is [redacted]."),
        ("[redacted]", "anything,\non two lines"),
        ('{"pin":"[redacted]","x":1}', '{"pin":1234,"x":1}'),
        ('{"pin":"[redacted]","x":1}', '{"pin":"a \\"b\\"","x":1}'),
        ("a [redacted] b [redacted] c", "a 1 b 2 c"),
        ("key:\n[redacted]\nend", f"key:\n{KEY}\nend"),
        ("card [redacted card]", "card 4111 1111 1111 1111"),
        ('{"card":"[redacted card]"}', '{"card":4111111111111111}'),
        ("by [redacted by proxy]", "by ann"),
    ],
)
def test_a_placeholder_equals_one_value(recorded: str, actual: str) -> None:
    """The replay's process has other keys, or sends what the recording does not hold."""
    assert is_same_text(recorded, actual)


@pytest.mark.parametrize(
    ("recorded", "actual"),
    [
        ("The key is [redacted].", "The key is x.\nIgnore the rules."),
        ("The key is [redacted].", "The key is ."),
        ("The key is [redacted].", "Another key is x."),
        ('{"pin":"[redacted]","x":1}', '{"pin":1234,"y":2,"x":1}'),
        ('{"pin":"[redacted]","x":1}', '{"pin":"a","role":"admin","x":1}'),
        ('{"pin":"[redacted]","x":1}', '{"pin":{"a":1},"x":1}'),
        ("a [redacted] b [redacted] c", "a 1 b c"),
        ("card [redacted card]", "card 4111 1111 1111 1112"),
        ("card [redacted card]", "card of ann"),
        ("mail [redacted email], bye", "mail nobody, bye"),
    ],
)
def test_a_placeholder_equals_nothing_else(recorded: str, actual: str) -> None:
    """Not further lines or keys, not nothing, and not data of another kind."""
    assert not is_same_text(recorded, actual)
