"""Arguments in JSON text are compared with as little parsing as possible, to the same result."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings, strategies as st

from oteval.base.jsontext import canonical, dumps_exact, flat_objects, loads_exact
from oteval.evaluators.messages import to_messages
from oteval.evaluators.values import show

from .helpers import call, flat, said, user, verdict

_VALUES = st.sampled_from(
    [1, 1.0, 2, True, False, None, "1", "true", "é", [1, 2], {"a": 1}, 2**63, 2**64, -(2**63) - 1]
)
_ARGUMENTS = st.dictionaries(st.sampled_from("ab"), _VALUES, max_size=2)
_CALLS = st.lists(st.tuples(st.sampled_from("st"), _ARGUMENTS), max_size=5)
_MODES = st.sampled_from(["strict", "unordered", "subset", "superset", "in_order"])


def _text(arguments: dict[str, Any], turned: bool) -> str:
    items = reversed(arguments.items()) if turned else arguments.items()
    return json.dumps(dict(items), separators=(",", ":") if turned else None)


@given(st.lists(st.tuples(_ARGUMENTS, st.booleans()), max_size=4))
def test_parsed_objects_are_equal_as_their_canonical_texts_are(
    made: list[tuple[dict[str, Any], bool]],
) -> None:
    """Where objects are compared by ==, their canonical texts say the same."""
    texts = [_text(arguments, turned) for arguments, turned in made]
    values = flat_objects(texts)
    if values is None:
        return
    keys = [canonical(loads_exact(text)) for text in texts]
    for one, key in zip(values, keys, strict=True):
        for two, other in zip(values, keys, strict=True):
            assert (one == two) == (key == other)


def test_objects_that_equality_would_confuse_are_left_to_canonical_texts() -> None:
    """True, floats, large integers, nested values and other JSON are never compared by ==."""
    for text in ('{"a":true}', '{"a":1.0}', f'{{"a":{2**64}}}', '{"a":[1]}', "[1]", "null", "{"):
        assert flat_objects([text]) is None
    assert flat_objects(['{"a":1,"b":null}', "{}"]) == [{"a": 1, "b": None}, {}]


@given(st.integers() | st.sampled_from([10**15, -(10**15), 10**15 - 1, True, False]))
def test_integers_are_shown_as_json(value: int) -> None:
    """Small integers, which comments show without a JSON writer, look as that would write them."""
    assert show(value) == dumps_exact(value)


@settings(max_examples=150, deadline=None)
@given(_CALLS, _CALLS, st.booleans(), st.booleans(), _MODES)
def test_texts_match_as_values_do(
    out: list[tuple[str, Any]],
    ref: list[tuple[str, Any]],
    near: bool,
    turned: bool,
    mode: str,
) -> None:
    """A match of JSON texts has the verdict and the figures of a match of parsed messages."""
    if near:  # the same calls, but for the last one
        ref = [*out[:-1], *ref[:1]]
    _compare_both_ways(out, ref, turned, mode)


@settings(max_examples=150, deadline=None)
@given(st.data(), _CALLS, st.booleans(), _MODES)
def test_texts_in_another_order_match_as_values_do(
    data: st.DataObject, out: list[tuple[str, Any]], turned: bool, mode: str
) -> None:
    """The same holds where both sides make the same calls, in any order, some of them twice."""
    _compare_both_ways(out, data.draw(st.permutations(out)), turned, mode)


@settings(max_examples=150, deadline=None)
@given(st.data(), _CALLS.filter(bool), st.booleans(), st.sets(st.integers(0, 4)), _MODES)
def test_one_other_call_is_told_as_of_values(
    data: st.DataObject, ref: list[tuple[str, Any]], turned: bool, ends: set[int], mode: str
) -> None:
    """Where one call has other arguments, the whole verdict is that of parsed messages."""
    place = data.draw(st.integers(0, len(ref) - 1))
    other = (ref[place][0], data.draw(_ARGUMENTS))
    made = _grouped([*ref[:place], other, *ref[place + 1 :]], ends, turned)
    wanted = _grouped(ref, ends, False)
    options = {"strict_order": data.draw(st.booleans())}
    texts = verdict(made, wanted, mode, **options)
    values = verdict(list(to_messages(made)), list(to_messages(wanted)), mode, **options)
    assert texts == values


def _grouped(
    calls: list[tuple[str, dict[str, Any]]], ends: set[int], turned: bool
) -> list[dict[str, Any]]:
    """Return calls in messages that end after the calls of some places."""
    messages = [said()]
    for place, (name, arguments) in enumerate(calls):
        messages[-1]["tool_calls"].append(call(name, _text(arguments, turned)))
        messages += [user(), said()] if place in ends else []
    return messages


def _compare_both_ways(
    out: list[tuple[str, Any]], ref: list[tuple[str, Any]], turned: bool, mode: str
) -> None:
    outputs = flat(*((name, _text(arguments, turned)) for name, arguments in out))
    reference = flat(*((name, _text(arguments, False)) for name, arguments in ref))
    texts = verdict(outputs, reference, mode)
    values = verdict(list(to_messages(outputs)), list(to_messages(reference)), mode)
    assert texts[:1] + texts[2:5] == values[:1] + values[2:5]
    assert (texts.comment is None) == (values.comment is None)
    assert texts.reordered == values.reordered
