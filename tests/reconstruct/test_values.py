from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from oteval.messages.values import Parsed, parse, parse_arguments, text_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (' [1, "two"] ', [1, "two"]),
        (json.dumps(json.dumps({"a": 1})), {"a": 1}),
        (json.dumps(json.dumps(json.dumps([1]))), [1]),
        ("{'a': None, 'b': (True, 2)}", {"a": None, "b": [True, 2]}),
        ("['x']", ["x"]),
        ("plain text", "plain text"),
        ("12", "12"),
        ("true", "true"),
        ("", ""),
        ('"a b', '"a b'),
        ("{not json}", "{not json}"),
        ("{'a'}", "{'a'}"),
        ("{(1, 2): 3}", "{(1, 2): 3}"),
        ("[b'x']", "[b'x']"),
        ("[...]", "[...]"),
    ],
)
def test_text_is_unwrapped_as_far_as_it_means_something(text: str, value: Any):
    """JSON, JSON in JSON and Python reprs become values; what is neither stays text."""
    assert parse(text) == Parsed(value)


@pytest.mark.parametrize("value", [None, 1, 1.5, True, [1], {"a": 1}])
def test_what_is_no_text_stays_as_it_is(value: Any):
    """Structured values pass through."""
    assert parse(value) == Parsed(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('[{"role": "user", "content": "a"}, {"role": "us', [{"role": "user", "content": "a"}]),
        ('[{"parts": [{"t": 1}, {"t": 2}, {"t":', [{"parts": [{"t": 1}, {"t": 2}]}]),
        ('[{"parts": [{"t": 1}', []),
        ('{"a": 1, "b": [1, 2', {"a": 1, "b": [1, 2]}),
        ("[", []),
    ],
)
def test_cut_json_gives_what_precedes_the_cut(text: str, value: Any):
    """Of a list of messages the one that the cut goes through is left out."""
    assert parse(text) == Parsed(value, truncated=True)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        "{" * 5000,
        "[" + "1" * 5000 + "]",
        "[0x" + "f" * 6000 + "]",
        "[\ud800",
        "[\ud800]",
    ],
    ids=["lists", "objects", "digits", "hex", "cut surrogate", "surrogate"],
)
def test_hostile_text_is_survived(text: str):
    """Text that no parser takes stays text, or what can be had of it."""
    found = parse(text)

    assert found.value == text or found.truncated


def test_an_odd_escape_warns_nobody():
    """A regular expression in broken JSON is read without a warning on the user's screen."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = parse('{"pattern": "\\d+"}')

    assert caught == []
    assert found.value == {"pattern": "\\d+"}


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (None, {}),
        ("", {}),
        ('{"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ("{'a': 1}", {"a": 1}),
        ("Paris", "Paris"),
        ('{"a": 1, "b', '{"a": 1, "b'),
        ({"a": 1}, {"a": 1}),
        ("<elided>", None),
        ("__REDACTED__", None),
    ],
)
def test_arguments_are_parsed_or_kept_as_text(text: Any, arguments: Any):
    """Arguments that are no JSON, or cut, stay text; a placeholder is nothing."""
    assert parse_arguments(text) == arguments


def test_any_value_has_a_text():
    """Text stays, None stays, and anything else is written as JSON."""
    assert text_of("a") == "a"
    assert text_of(None) is None
    assert text_of({"a": [1, None]}) == '{"a":[1,null]}'


@pytest.mark.parametrize(
    "call",
    [
        {"type": "tool_call", "name": "f", "arguments": {"q": "x\ud83d", "n": 10**25}},
        {"type": "tool_use", "name": "f", "input": {"q": "x\ud83d", "n": 10**25}},
        {"name": "f", "args": {"q": "x\ud83d", "n": 10**25}},
        {"name": "f", "arguments": json.dumps({"q": "x\ud83d", "n": 10**25})},
    ],
)
def test_arguments_keep_what_messages_cannot_hold(call: dict[str, Any]):
    """Half of a pair becomes U+FFFD in content; in arguments it stays, as do big integers."""
    parsed = parse(json.dumps({"content": "y\ud83d", "call": call})).value
    key = next(key for key in ("arguments", "input", "args") if key in call)

    assert parsed["content"] == "y\ufffd"
    assert parse_arguments(parsed["call"][key]) == {"q": "x\ud83d", "n": 10**25}


def test_emoji_written_as_escapes_are_read():
    """Escapes of whole pairs are characters, in content and in arguments."""
    parsed = parse('{"content": "\\ud83d\\ude00", "arguments": {"q": "\\uD83D\\uDE00"}}').value

    assert parsed == {"content": "😀", "arguments": {"q": "😀"}}


_CUT_MESSAGES = json.dumps(
    [
        {"role": "user", "parts": [{"type": "text", "content": "Hé 12\n"}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "arguments": {"n": 12, "b": True}}]},
        {"role": "user", "parts": [{"type": "text", "content": "more"}]},
    ],
    ensure_ascii=False,
)
_MARKERS = (
    *("...", "…", "... [truncated, 1043 chars total]", "<truncated>", "[TRUNCATED]", "[...]"),
    *("... (truncated)", "…(+1043 chars)", " ... 1043 more characters", "--- truncated ---"),
    *("...[cut]", "\n... [output truncated]", "... (12 more items)", "...<1043 bytes omitted>"),
)


@pytest.mark.parametrize("marker", _MARKERS)
def test_json_cut_anywhere_with_a_remark_is_the_part_before_the_cut(marker: str):
    """Wherever a text is cut, and whatever the emitter writes there, it is cut JSON, never text."""
    whole = json.loads(_CUT_MESSAGES)
    for end in range(12, len(_CUT_MESSAGES)):
        found = parse(_CUT_MESSAGES[:end] + marker)

        assert found.truncated, _CUT_MESSAGES[:end]
        assert found.value == whole[: len(found.value)]


@pytest.mark.parametrize(
    "text",
    ["[1] see this ...", "[Note] cut here...", "{name} is...", "[...]", '["a", b]', "[a](b) ..."],
)
def test_a_text_that_only_looks_like_json_stays_a_text(text: str):
    """Brackets and an ellipsis do not make JSON."""
    assert parse(text) == Parsed(text)
