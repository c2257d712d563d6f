from __future__ import annotations

import functools
import json
import math
import re

import pytest
from hypothesis import given, strategies as st

from oteval.base.errors import ConfigError, InputError
from oteval.evaluators import (
    create_async_trajectory_match_evaluator as make_async,
    create_trajectory_match_evaluator as make,
)
from oteval.evaluators.spec import make_rule
from oteval.evaluators.values import MISSING, lookup
from oteval.model import Message, ToolCall

from .helpers import args_comment, args_match, call, flat, passes, said, verdict

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, 1.0, "1", "a", "A "]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    ),
    max_leaves=6,
)
objects = st.dictionaries(st.sampled_from("abc"), json_values, max_size=3)


@pytest.mark.parametrize(
    ("out", "ref", "equal"),
    [
        ('{"a": 1, "b": 2}', '{"b":2,"a":1}', True),
        ('{"a": 1}', '{"a": 1.0}', True),
        ('{"a": [1, {"b": 2.0}]}', '{"a": [1.0, {"b": 2}]}', True),
        ('{"a": 1}', '{"a": true}', False),
        ('{"a": 0}', '{"a": false}', False),
        ('{"a": 1}', '{"a": "1"}', False),
        ('{"a": null}', "{}", False),
        ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
        ('{"a": 1234567890123456789}', '{"a": 1234567890123456788}', False),
    ],
)
def test_exact_is_deep_equality_of_json(out, ref, equal):
    """Key order and 1 against 1.0 do not count; true, "1", null and list order do."""
    for mode in ("strict", "unordered", "in_order"):
        assert passes([said(call("t", out))], [said(call("t", ref))], mode) == equal
        assert passes([said(call("t", ref))], [said(call("t", out))], mode) == equal


def test_ignore_compares_nothing():
    """Any arguments match any others under ignore."""
    assert args_match({"a": 1}, {"b": [2]}, "ignore")
    assert args_match('"text"', {}, "ignore")


@pytest.mark.parametrize(
    ("small", "big"),
    [
        ({}, {"a": 1}),
        ({"a": 1}, {"a": 1.0, "b": 2}),
        ({"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}),
        ({"a": [{"x": 1}]}, {"a": [{"x": 1, "y": 2}]}),
    ],
)
def test_subset_and_superset_are_recursive_and_directed(small, big):
    """The output is within the reference under subset, and the reverse under superset."""
    for mode in ("strict", "unordered", "subset", "superset", "in_order"):
        assert passes(flat(("t", small)), flat(("t", big)), mode, tool_args_match_mode="subset")
        assert passes(flat(("t", big)), flat(("t", small)), mode, tool_args_match_mode="superset")
        assert not passes(flat(("t", big)), flat(("t", small)), mode, tool_args_match_mode="subset")
        assert not passes(
            flat(("t", small)), flat(("t", big)), mode, tool_args_match_mode="superset"
        )


def test_subset_does_not_shorten_lists():
    """Lists of different lengths differ under subset."""
    assert not args_match({"a": [1]}, {"a": [1, 2]}, "subset")
    assert not args_match({"a": 1}, {"a": True}, "subset")


@given(objects, objects)
def test_subset_both_ways_is_equality(one, two):
    """Each within the other is the same as exact; superset is subset turned round."""
    both = args_match(one, two, "subset") and args_match(two, one, "subset")

    assert both == args_match(one, two, "exact")
    assert args_match(one, two, "superset") == args_match(two, one, "subset")


@given(objects, objects)
def test_a_mismatch_always_has_an_explanation(one, two):
    """A rule explains exactly what it does not match."""
    for form in ("exact", "ignore", "subset", "superset", "tolerant", ["a", "b.c"]):
        rule = make_rule(form, "rule")
        assert rule.matches(one, two) == (rule.explain(one, two) is None), form


@pytest.mark.parametrize(
    ("out", "ref", "equal"),
    [
        ({"n": "1"}, {"n": 1}, True),
        ({"n": " 1.50 "}, {"n": 1.5}, True),
        ({"n": "1e2"}, {"n": 100}, True),
        ({"n": "007"}, {"n": 7}, False),
        ({"n": "true"}, {"n": True}, False),
        ({"s": "San  Francisco\n"}, {"s": " san francisco"}, True),
        ({"s": "STRASSE"}, {"s": "straße"}, True),
        ({"s": "ab"}, {"s": "a b"}, False),
        ({"l": ["B", "1"]}, {"l": ["b", 1]}, True),
        ({"l": [1, 2]}, {"l": [2, 1]}, False),
        ({"Key": 1}, {"key": 1}, False),
        ({"n": "9" * 5000}, {"n": 1}, False),
    ],
)
def test_tolerant_folds_the_way_of_writing(out, ref, equal):
    """Numeric strings equal numbers; case and white space fold; keys and list order do not."""
    assert args_match(out, ref, "tolerant") == equal
    assert passes(flat(("t", out)), flat(("t", ref)), tool_args_match_mode="tolerant") == equal


def test_tolerant_compares_marked_lists_as_sets():
    """Only the lists at marked paths lose their order and their duplicates."""
    rule = {"tolerant": {"sets": ["tags", "rows.ids"]}}

    assert args_match({"tags": ["A", "b", "b"]}, {"tags": ["b", "a"]}, rule)
    assert args_match({"rows": [{"ids": [1, 2]}]}, {"rows": [{"ids": ["2", 1]}]}, rule)
    assert not args_match({"tags": ["a"]}, {"tags": ["a", "b"]}, rule)
    assert not args_match({"other": [1, 2]}, {"other": [2, 1]}, rule)
    assert "argument 'tags' is [\"a\"] in the output" in args_comment(
        {"tags": ["a"]}, {"tags": ["b"]}, rule
    )


def test_field_lists_compare_only_their_fields():
    """Dotted fields are compared exactly and the rest is not looked at."""
    out = {"time": {"start": 1, "end": 2}, "query": "x", "rows": [{"id": 7}]}
    ref = {"time": {"start": 1, "end": 9}, "query": "y", "rows": [{"id": 7}, {"id": 8}]}

    assert args_match(out, ref, ["time.start"])
    assert args_match(out, ref, ["time.start", "rows.0.id"])
    assert not args_match(out, ref, ["time.end"])
    assert not args_match({"a": 1}, {"a": True}, ["a"])


def test_an_empty_field_list_compares_no_fields():
    """[] lets any arguments match, where a peer falls back to the global mode."""
    assert args_match({"a": 1}, {"b": 2}, [])


@pytest.mark.parametrize("missing_ok", [False, True])
def test_a_field_missing_on_one_side_is_a_mismatch(missing_ok):
    """missing_ok does not excuse a field that only one side has; null is not missing."""
    for out, ref in (({"a": 1}, {}), ({}, {"a": 1}), ({"a": None}, {}), ({}, {"a": None})):
        assert not args_match(out, ref, ["a"], missing_ok=missing_ok)


def test_a_field_missing_on_both_sides_is_equal_unless_that_is_refused():
    """A field that neither side has is equal, as in agentevals; missing_ok=False refuses it."""
    assert args_match({}, {"x": 1}, ["a.b"])
    assert passes(
        flat(("t", {})), flat(("t", {"x": 1})), tool_args_match_overrides={"t": ["a", "b.c"]}
    )
    assert args_match({"a": None}, {"a": None}, ["a"])
    assert not args_match({}, {}, ["a.b"], missing_ok=False)
    assert "argument 'a.b' is on neither side, and missing_ok is False" in args_comment(
        {}, {}, ["a.b"], missing_ok=False
    )


def test_lookup_prefers_keys_that_hold_dots():
    """A key with a dot in it is found, and lists take indexes."""
    assert lookup({"a.b": {"c": 1}, "a": {"b": 2}}, "a.b.c") == 1
    assert lookup({"a": {"b": 2}}, "a.b") == 2
    assert lookup({"a": [{"b": 2}]}, "a.0.b") == 2
    for path in ("a.1", "a.x", "a.0.b.c", "b", "a.²"):
        assert lookup({"a": [{"b": 2}]}, path) is MISSING


def test_regex_per_tool_looks_at_the_output_alone():
    """{"regex": {field: pattern}} and the plain {field: pattern} fit whole values."""
    for rule in (
        {"regex": {"city": "San .*", "n": r"\d+"}},
        {"city": re.compile("san .*", re.IGNORECASE), "n": r"\d+"},
    ):
        assert args_match({"city": "San Jose", "n": 12}, {}, rule)
        assert not args_match({"city": "in San Jose", "n": 12}, {}, rule)
        assert not args_match({"city": "San Jose"}, {}, rule)
    assert "argument 'city' is \"Rome\"; its whole must fit 'San .*'" in args_comment(
        {"city": "Rome"}, {}, {"city": "San .*"}
    )
    assert "missing in the output" in args_comment({}, {}, {"city": "x"})


def test_regex_as_a_global_mapping():
    """The mapping forms serve all tools as well."""
    options = {"tool_args_match_mode": {"regex": {"city": "S.*"}}}

    assert passes(flat(("t", {"city": "Sofia"})), flat("t"), **options)
    assert not passes(flat(("t", {"city": "Rome"})), flat("t"), **options)


def test_regex_as_a_mode_reads_patterns_from_the_reference():
    """Under "regex" the reference's arguments are {field: pattern}."""
    ref = {"city": "San .*", "days": 3, "where": {"zip": r"\d{5}"}}

    assert args_match(
        {"city": "San Jose", "days": 3, "where": {"zip": 94088}, "more": 1}, ref, "regex"
    )
    assert not args_match({"city": "San Jose", "days": 4, "where": {"zip": "94088"}}, ref, "regex")
    assert not args_match({"city": "San Jose", "days": 3}, ref, "regex")
    with pytest.raises(InputError, match=r"reference_outputs.*not a valid pattern"):
        args_match({"a": "x"}, {"a": "("}, "regex")


def test_a_pattern_that_does_not_fit_itself():
    """Equal texts are no match under regex when the pattern does not fit them."""
    assert not args_match({"a": "a+b"}, {"a": "a+b"}, "regex")


def test_callables_get_output_and_reference_in_that_order():
    """The direction is (output, reference) in every trajectory mode."""
    seen = []

    def bigger(out, ref):
        seen.append((out, ref))
        return out["n"] >= ref["n"]

    for mode in ("strict", "unordered", "subset", "superset", "in_order"):
        assert passes(
            flat(("t", {"n": 2})),
            flat(("t", {"n": 1})),
            mode,
            tool_args_match_overrides={"t": bigger},
        )
    assert all(pair == ({"n": 2}, {"n": 1}) for pair in seen)


def test_callables_decide_even_about_equal_arguments():
    """Equal texts are no short cut past the user's function."""
    assert not args_match({"a": 1}, {"a": 1}, lambda _out, _ref: False)


def test_callables_that_fail_on_raw_strings_mean_no_match():
    """A function made for objects does not break on invalid JSON; other errors are passed on."""
    get = lambda out, ref: out["a"] == ref["a"]  # noqa: E731

    assert not args_match("{broken", {"a": 1}, get)
    with pytest.raises(KeyError):
        args_match({}, {"a": 1}, get)


def test_a_callable_that_turns_out_async_is_an_error():
    """A truthy coroutine never counts as a match."""

    async def compare_later(_out, _ref):
        return True

    with pytest.raises(ConfigError, match="create_async_trajectory_match_evaluator"):
        args_match({}, {}, lambda out, ref: compare_later(out, ref))


def test_overrides_replace_the_global_mode_for_their_tool_alone():
    """Another tool keeps the global mode; all rules may be given per tool."""
    options = {"tool_args_match_mode": "ignore", "tool_args_match_overrides": {"a": "exact"}}

    assert passes(flat(("b", {"x": 1})), flat(("b", {"x": 2})), **options)
    assert not passes(flat(("a", {"x": 1})), flat(("a", {"x": 2})), **options)


async def _later(_out, _ref):
    return True


class _LaterObject:
    async def __call__(self, _out, _ref):
        return True


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trajectory_match_mode": "loose"}, "trajectory_match_mode: unknown value 'loose'; known"),
        ({"tool_args_match_mode": "fuzzy"}, "tool_args_match_mode: unknown mode 'fuzzy'; known"),
        ({"tool_args_match_mode": 3}, "tool_args_match_mode is a int; expected a mode"),
        ({"tool_args_match_mode": None}, "tool_args_match_mode is a NoneType"),
        ({"tool_args_match_overrides": ["t"]}, "tool_args_match_overrides is a list"),
        ({"tool_args_match_overrides": {"t": "nope"}}, r"\['t'\]: unknown mode 'nope'"),
        ({"tool_args_match_overrides": {"t": 5}}, r"\['t'\] is a int"),
        ({"tool_args_match_overrides": {"t": dict}}, r"\['t'\] is a type"),
        ({"tool_args_match_overrides": {3: "exact"}}, "3 is not a tool name"),
        ({"tool_args_match_overrides": {"t": [1]}}, r"1 is not a field; write dotted paths"),
        ({"tool_args_match_overrides": {"t": [""]}}, r"'' is not a field"),
        ({"tool_args_match_overrides": {"t": {}}}, "no pattern given"),
        ({"tool_args_match_overrides": {"t": {"a": "("}}}, r"'\(' is not a valid pattern"),
        ({"tool_args_match_overrides": {"t": {"a": 1}}}, "not a field and a pattern"),
        ({"tool_args_match_overrides": {"t": {"tolerant": {"set": []}}}}, "'sets'"),
        ({"tool_args_match_overrides": {"t": _later}}, "async function"),
        ({"tool_args_match_overrides": {"t": _LaterObject()}}, "async function"),
        ({"tool_args_match_overrides": {"t": functools.partial(_later)}}, "async function"),
        ({"view": "reads"}, "view: unknown value 'reads'"),
        ({"effect_tools": "book"}, "effect_tools is 'book'; expected a list"),
        ({"error_pattern": "("}, "error_pattern: '\\(' is not a valid pattern"),
        ({"error_pattern": b"x"}, "error_pattern is a bytes"),
        ({"error_pattern": re.compile(b"x")}, "pattern for bytes"),
        ({"score_type": "f2"}, "score_type: unknown value 'f2'; known: bool, f1"),
        ({"strict_order": "yes"}, "strict_order is 'yes'; expected True or False"),
    ],
)
def test_wrong_configurations_are_refused_when_the_evaluator_is_made(options, words):
    """Everything wrong is a ValueError at once, and says what to write."""
    with pytest.raises(ConfigError, match=words) as caught:
        make(**options)
    assert isinstance(caught.value, ValueError)


async def test_async_callables_are_awaited():
    """An async evaluator awaits what a function returns, each pair once, and uses the answer."""
    asked = []

    async def same_city(out, ref):
        asked.append((out["city"], ref["city"]))
        return out["city"].lower() == ref["city"].lower()

    out = flat(("t", {"city": "ROME"}), ("t", {"city": "Oslo"}))
    ref = flat(("t", {"city": "oslo"}), ("t", {"city": "rome"}))
    options = {"tool_args_match_overrides": {"t": same_city}}

    unordered = make_async(trajectory_match_mode="unordered", **options)
    result = await unordered(outputs=out, reference_outputs=ref)
    assert result["score"]
    assert result["metadata"]["alignment"] == [(0, 1), (1, 0)]
    assert len(asked) == len(set(asked)) == 4

    asked.clear()
    strict = await make_async(**options)(outputs=out, reference_outputs=ref)
    assert not strict["score"]
    assert "same_city says no" in strict["comment"]
    assert asked == [("ROME", "oslo"), ("Oslo", "rome")]


async def test_async_evaluators_take_every_kind_of_callable():
    """Plain functions, async objects and functions that return awaitables all work."""
    for rule in (lambda _o, _r: True, _LaterObject(), lambda o, r: _later(o, r), _later):
        for mode in ("strict", "unordered", "subset", "superset", "in_order"):
            evaluator = make_async(trajectory_match_mode=mode, tool_args_match_mode=rule)
            found = await evaluator(outputs=flat("t", "t"), reference_outputs=flat("t", "t"))
            assert found["score"] is True


def test_arguments_that_were_not_captured_fail_closed():
    """They equal nothing, themselves included, and the comment says that they are not there."""
    unknown = [Message("assistant", tool_calls=(ToolCall("t"),))]

    for rule in ("exact", "subset", "superset", "tolerant", "regex", ["a"], lambda _o, _r: True):
        for mode in ("strict", "unordered", "superset", "in_order"):
            options = {"tool_args_match_overrides": {"t": rule}}
            assert not passes(unknown, unknown, mode, **options)
            assert not passes(unknown, flat("t"), mode, **options)
            assert not passes(flat("t"), unknown, mode, **options)
    found = verdict(unknown, flat("t"))
    assert found.comment is not None
    assert "the output's arguments were not captured" in found.comment


def test_arguments_that_were_not_captured_match_where_nothing_is_compared():
    """Under ignore, and under an empty field list, a call is a call."""
    unknown = [Message("assistant", tool_calls=(ToolCall("t"),))]

    for rule in ("ignore", []):
        assert passes(unknown, flat(("t", {"a": 1})), tool_args_match_mode=rule)
        assert passes(unknown, unknown, "unordered", tool_args_match_mode=rule)


def test_a_comment_shows_halves_of_a_pair_apart():
    """Two values that differ in a lone surrogate or in NaN do not look alike in the comment."""
    comment = args_comment({"a": "\ud83d"}, {"a": "\ufffd"}, "exact")

    assert r"""argument 'a' is "\ud83d" in the output, "�" in the reference""" in comment
    assert "is NaN in the output, null in" in args_comment({"a": math.nan}, {"a": None}, "exact")


@pytest.mark.parametrize("mode", ["strict", "unordered", "superset", "subset", "in_order"])
@pytest.mark.parametrize(
    ("out", "ref", "equal"),
    [
        ("12345678901234567890123", "12345678901234567890123", True),
        ("12345678901234567890123", "12345678901234567890124", False),
        ("12345678901234567890123", "1.2345678901234568e22", False),
        ("18446744073709551616", "18446744073709551617", False),
        ("-9223372036854775809", "-9223372036854775810", False),
        ("10000000000000000000000", "1e22", True),
        ("1", "1.0", True),
        ("1e999", "null", False),
        ("1e999", "-1e999", False),
        ('"\\ud83d"', '"\\ud83e"', False),
        ('"\\ud83d"', '"\\ufffd"', False),
        ('"\\ud83d"', '"\\uD83D"', True),
        ('"\\ud83d\\ude00"', '"😀"', True),
    ],
)
def test_arguments_are_compared_exactly_as_text_and_as_values(mode, out, ref, equal):
    """Integers of any size, infinities and lone surrogates equal only themselves."""
    texts = [f'{{"n": [{value}], "b": 1}}' for value in (out, ref)]
    for left in (texts[0], json.loads(texts[0])):
        for right in (texts[1], json.loads(texts[1])):
            sides = [said(call("t", left))], [said(call("t", right))]
            assert passes(*sides, mode) is equal
            assert passes(*sides, mode, tool_args_match_overrides={"t": ["n"]}) is equal
