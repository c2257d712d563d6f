"""JSON text, its canonical form, and plain JSON of any value."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from pydantic import BaseModel

from oteval.base.jsontext import (
    call_hash,
    canonical,
    dumps,
    dumps_exact,
    loads,
    loads_exact,
    restore,
    to_jsonable,
)

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def nested(depth: int) -> str:
    """Return the text of a list in a list, so deep."""
    return "[" * depth + "]" * depth


@given(values)
def test_written_values_are_read_back(value: Any):
    """`restore` inverts `dumps`, whatever the size of the integers."""
    assert restore(dumps(value)) == value == loads(json.dumps(value))


@given(values)
def test_the_canonical_text_does_not_depend_on_order_or_form(value: Any):
    """Read again with its keys turned round, a value has the same text."""
    turned = restore(dumps(_turned(value)))

    assert canonical(turned) == canonical(restore(dumps(value)))


def _turned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _turned(value[key]) for key in reversed(value)}
    return [_turned(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        (1, 1.0, True),
        ({"a": 1, "b": [2.0]}, {"b": [2], "a": 1.0}, True),
        (1e16, 10**16, True),
        (1, True, False),
        (1, "1", False),
        (0, False, False),
        (None, {}, False),
        ("é", "e\u0301", False),
        ({"a": 1.5}, {"a": 1.25}, False),
    ],
)
def test_values_are_equal_when_their_texts_are(first: Any, second: Any, equal: bool):
    """Key order and the form of a number do not count, types do."""
    assert (canonical(first) == canonical(second)) is equal
    assert (call_hash("f", first) == call_hash("f", second)) is equal


def test_a_call_hash_fits_a_column():
    """The hash is a positive number of 63 bits, and another tool's is another."""
    assert 0 <= call_hash("f", {"a": "x"}) < 2**63
    assert call_hash("f", {}) != call_hash("g", {})


@pytest.mark.parametrize("text", ["", "{", "nul", "[1,]", '"\\x"', "1" * 5000])
def test_invalid_json_is_a_value_error(text: str):
    """Broken text, and numbers without end, raise ValueError alone."""
    with pytest.raises(ValueError, match=r".*"):
        loads(text)


def test_nonstandard_json_of_emitters_is_read():
    """NaN and the infinities are read, as are integers of any size."""
    nan, infinite, big = loads("[NaN, -Infinity, 123456789012345678901234567890]")

    assert math.isnan(nan)
    assert (infinite, big) == (-math.inf, 123456789012345678901234567890)
    assert loads("18446744073709551615") == 2**64 - 1


@given(st.integers(-(10**40), 10**40), st.sampled_from(["{}", "[{}]", '{{"a": [1.5, {}]}}']))
@example(2**63, "{}")
@example(-(2**63) - 1, "{}")
@example(2**64, "{}")
@example(12345678901234567890123, '{{"a": {}}}')
def test_integers_of_any_size_are_read_as_they_are(number: int, form: str):
    """No integer becomes a float, and the neighbours of a big one differ from it."""
    text, near = form.format(number), form.format(number + 1)

    assert json.dumps(loads(text)) == json.dumps(json.loads(text))
    assert json.dumps(loads(text.encode())) == json.dumps(json.loads(text))
    assert canonical(loads(text)) != canonical(loads(near))
    assert dumps(loads(text)) == text.replace(" ", "")


@pytest.mark.parametrize("depth", [255, 900, 2000, 100_000])
@pytest.mark.parametrize("start", ["", '"\\ud800", ', "NaN, "])
def test_text_nested_too_deep_is_refused(depth: int, start: str):
    """Where Python's recursion might not survive a value, there is none."""
    with pytest.raises(ValueError, match="nested more than 254 levels deep"):
        loads(f"[{start}{nested(depth)}]")


def test_text_nested_as_deep_as_allowed_can_be_handled():
    """A value at the limit of nesting is written, hashed and read back."""
    value = loads(nested(254))

    assert restore(dumps({"wrapped": [value]})) == {"wrapped": [value]}
    assert call_hash("f", value) == call_hash("f", loads(nested(254)))


def test_lone_surrogates_become_the_replacement_character():
    """Half a character, as in truncated text, is written as UTF-8 and as standard JSON."""
    assert loads('{"a\\udfff": "x\\ud83d"}') == {"a\ufffd": "x\ufffd"}
    assert loads('"\\ud83d\\ude00"') == "😀"
    assert dumps("\ud83d") == '"\ufffd"'
    assert dumps({"a": math.nan, "b": [10**30, math.inf]}) == f'{{"a":null,"b":[{10**30},null]}}'


HALVES = ["\ud83d", "\ud83e", "\ude00", "\ufffd", "\\ud83d", "?", "😀", "\ude00\ud83d"]


@pytest.mark.parametrize("first", HALVES)
@pytest.mark.parametrize("second", HALVES)
def test_a_lone_surrogate_equals_only_itself(first: str, second: str):
    """Halves of a pair differ from each other, from U+FFFD and from their escapes as text."""
    for form in (lambda text: text, lambda text: {"a": [text]}, lambda text: {text: 1}):
        assert (canonical(form(first)) == canonical(form(second))) is (first == second)
        assert (call_hash("f", form(first)) == call_hash("f", form(second))) is (first == second)
        canonical(form(first)).encode()


def test_two_halves_of_a_pair_are_their_character():
    """A character equals its two escapes, which JSON text cannot distinguish."""
    assert canonical("\ud83d\ude00") == canonical("😀") == canonical(json.loads('"\\ud83d\\ude00"'))


@pytest.mark.parametrize("first", [math.nan, math.inf, -math.inf, None, "NaN", 0])
@pytest.mark.parametrize("second", [math.nan, math.inf, -math.inf, None, "NaN", 0])
def test_non_finite_numbers_equal_only_themselves(first: Any, second: Any):
    """NaN and the infinities are distinct values, and different from null."""
    assert (canonical({"a": first}) == canonical({"a": second})) is (repr(first) == repr(second))


odd = st.recursive(
    scalars
    | st.floats()
    | st.integers(-(10**30), 10**30)
    | st.text(st.characters(codec=None, categories=["Cs", "L"]), max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(odd)
def test_exact_text_is_read_back_exactly(value: Any):
    """`restore` inverts `dumps_exact` for all Python values, and the text is UTF-8."""
    text = dumps_exact(value)

    assert canonical(restore(text)) == canonical(value) == canonical(loads_exact(text))
    assert text.encode()


def test_integers_too_long_for_decimal_text_are_compared():
    """Integers of more than 4,300 digits are compared, shown and hashed."""
    assert canonical(10**5000) != canonical(10**5000 + 1)
    assert dumps({"a": 10**5000}) != dumps({"a": 10**5000 + 1})


def test_the_text_of_a_value_does_not_depend_on_its_neighbours():
    """A value that JSON lacks, such as a date, has the same text next to a whole float."""
    when = datetime(2026, 5, 1, tzinfo=UTC)

    assert canonical({"at": when, "n": 1.0}) == canonical({"at": when, "n": 1})
    assert canonical({True: 1, None: 2.0}) == canonical({True: 1, None: 2})


@pytest.mark.parametrize("digits", ["1" * 19, "1" * 20, "9" * 40])
@pytest.mark.parametrize("text", ['{"id": "%s"}', '["a-%s"]', '{"%s": 1}', '"say: %s"'])
def test_digits_in_a_text_are_no_number(digits: str, text: str):
    """Ids of digits are read as text, and long numbers beside them exactly."""
    combined = f"[{text % digits}, 123456789012345678901, -1234567890123456789, {text % 'x'}]"
    assert restore(text % digits) == json.loads(text % digits)
    assert restore(combined) == json.loads(combined)


@dataclass
class Point:
    """A dataclass."""

    x: int
    tags: tuple[str, ...] = ()


class Model(BaseModel):
    """A pydantic model."""

    when: date
    point: dict[str, int]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (1.5, 1.5),
        ("é\ud800", "é\ud800"),
        ({1: (2, {3})}, {"1": [2, [3]]}),
        (Point(1, ("a",)), {"x": 1, "tags": ["a"]}),
        (Model(when=date(2026, 1, 2), point={"x": 1}), {"when": "2026-01-02", "point": {"x": 1}}),
        ([Point], [str(Point)]),
        (2**70, 2**70),
    ],
)
def test_any_value_has_a_json_form(value: Any, expected: Any):
    """Containers, dataclasses and models become dicts and lists, anything else its text."""
    assert to_jsonable(value) == expected


def test_the_result_shares_nothing_with_the_value():
    """Changes to the result do not change the original."""
    original = {"list": [1]}
    copy = to_jsonable(original)
    copy["list"].append(2)

    assert original == {"list": [1]}


def test_values_are_converted_first():
    """Special values are converted wherever they occur."""

    def convert(value: Any) -> Any:
        return f"point {value.x}" if isinstance(value, Point) else value

    assert to_jsonable({"p": [Point(1)]}, convert) == {"p": ["point 1"]}
