from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from oteval.model import ToolCall
from oteval.views.text import ago, call_text, clean, clock, duration, one_line, short_ids, shorten


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain é 日本 😀\n\ttext", "plain é 日本 😀\n\ttext"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\rb\x07\x00", "a\\x0db\\x07\\x00"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("\u202eevil\u2069", "\\u202eevil\\u2069"),
        ("a\u2028b", "a\\u2028b"),
        ("\ud800", "\\ud800"),
        ("\uffff", "\\uffff"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_what_acts_on_a_terminal_is_made_visible(text: str, expected: str):
    """Escapes, bidirectional and invisible characters are shown; other text stays."""
    assert clean(text) == expected


@given(st.text())
def test_clean_text_can_be_encoded_and_is_clean(text: str):
    """Whatever the text, the result is UTF-8 without control characters, and stays as it is."""
    found = clean(text)

    found.encode()
    assert clean(found) == found
    assert "\x1b" not in found


def test_one_line_is_one_line():
    """Messages of several lines, as exceptions have them, become one."""
    assert one_line("a\nb\r\nc\u2028d\x1be\n") == "a b c d\\x1be"


def test_long_text_says_what_was_left_out():
    """Shortened text ends with how many characters it lacks."""
    assert shorten("abc", 3) == "abc"
    assert shorten("abcdef", 4) == "abcd … (2 more characters)"
    assert shorten("\x1b" * 10, 4) == "\\x1b … (36 more characters)"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (ToolCall("f", {"city": "Paris", "n": [1]}), 'f(city="Paris", n=[1])'),
        (ToolCall("f", {}), "f()"),
        (ToolCall("f"), "f(… not captured …)"),
        (ToolCall("f", "not json"), 'f("not json")'),
        (ToolCall("f\n\x1b", {"a\n": "b\n"}), 'f\\n\\x1b(a\\n="b\\n")'),
    ],
)
def test_a_call_is_written_as_in_code(call: ToolCall, expected: str):
    """A call is one line, whatever its name and arguments hold."""
    assert call_text(call) == expected


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [(0, "0 ms"), (1_500_000, "1.5 ms"), (2_345_678_901, "2.35 s"), (3_600_000_000_000, "60 min")],
)
def test_durations_have_three_figures(nanoseconds: int, expected: str):
    """Each duration is shown in the unit that suits it."""
    assert duration(nanoseconds) == expected


@pytest.mark.parametrize(
    ("time_ns", "expected"),
    [(0, "-"), (1_700_000_000_000_000_000, "2023-11-14 22:13:20"), (2**70, "?")],
)
def test_times_are_shown_in_utc(time_ns: int, expected: str):
    """A time that is not there or beyond all calendars does not end the output."""
    assert clock(time_ns) == expected


_HOUR = 3600 * 10**9


@pytest.mark.parametrize(
    ("age_ns", "expected"),
    [
        (0, "0 s ago"),
        (59_999_999_999, "59 s ago"),
        (180 * 10**9, "3 min ago"),
        (23 * _HOUR, "23 h ago"),
        (48 * _HOUR, "2 d ago"),
        (90 * 24 * _HOUR, "2026-01-01"),
        (-5 * _HOUR, "in 5 h"),
    ],
)
def test_times_are_shown_by_their_age(age_ns: int, expected: str):
    """A time is how long ago it was, up to a month; a clock ahead of ours is said."""
    now_ns = 1_775_001_600 * 10**9  # 2026-04-01

    assert ago(now_ns - age_ns, now_ns) == expected


def test_a_time_that_is_not_known_has_no_age():
    """0 is no time."""
    assert ago(0, 10**18) == "-"


def test_short_ids_tell_ids_apart():
    """Ids have 8 characters, more only where two that are shown begin alike."""
    ids = ["28ba67f002a70175", "28ba67f0ffffffff", "9a49abde3f27fe05", "9a49abde3f27fe05"]

    assert short_ids(ids) == {
        "28ba67f002a70175": "28ba67f00",
        "28ba67f0ffffffff": "28ba67f0f",
        "9a49abde3f27fe05": "9a49abde",
    }
