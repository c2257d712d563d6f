from __future__ import annotations

import copy
import json
import pickle
import sys
import types
from typing import Any

import pytest
from hypothesis import given, strategies as st

import oteval
import oteval.evaluators as ev
from oteval.evaluators import (
    create_async_trajectory_match_evaluator as make_async,
    create_trajectory_match_evaluator as make,
)
from oteval.evaluators.calls import CallTable
from oteval.evaluators.evaluator import EvaluationContext
from oteval.model import Message, ToolCall

from ..make import run
from .helpers import call, flat, passes, said, timed, tool, user, verdict

MODES = ("strict", "unordered", "subset", "superset", "in_order")

arguments = st.dictionaries(st.sampled_from("ab"), st.integers(0, 1), max_size=1)
calls = st.lists(st.tuples(st.sampled_from("fg"), arguments), max_size=4)
rules = st.sampled_from(["exact", "ignore", "subset", "superset", "tolerant", ["a"]])


def test_strict_needs_the_same_number_of_messages():
    """A message more or less fails, with the counts in the comment."""
    mismatch = verdict([user(), said()], [user(), said(), user()])

    assert not mismatch.passed
    assert mismatch.comment == (
        "position 2: the output ends where the other side goes on with role 'user' "
        "(2 messages against the reference's 3)"
    )


def test_strict_needs_the_same_role_at_each_position():
    """The first position whose role differs is named."""
    mismatch = verdict([user(), said(), user()], [user(), said(), said()])

    assert mismatch.comment == "position 2: role 'user' in the output, 'assistant' in the reference"


def test_strict_needs_the_same_calls_in_each_message():
    """The same calls at other positions are no strict match."""
    out, ref = flat("a", "b"), flat("b", "a")

    assert not passes(out, ref)
    assert passes(out, ref, "unordered")
    assert not passes([said(call("a"), call("b")), said()], flat("a", "b"))


def test_strict_names_the_first_position_that_differs():
    """Of several differences the earliest is told, with the argument and both values."""
    out = [user(), *flat(("f", {"a": 1, "b": 2}), "x")]
    ref = [user(), *flat(("f", {"a": 1, "b": 3}), "y")]

    assert verdict(out, ref).comment == (
        'position 1: missing 1 call: f({"a":1,"b":3}); extra 1 call: f({"a":1,"b":2}); '
        "f: argument 'b' is 2 in the output, 3 in the reference"
    )


def test_strict_does_not_compare_content_ids_or_results():
    """What was said, call ids and tool results may differ."""
    out = [user("a"), said(call("f", {}, "1"), content="x"), tool("one", "1"), said(content="y")]
    ref = [user("b"), said(call("f", {}, "2")), tool("two", "2", is_error=True), said(content="z")]

    assert passes(out, ref)


@given(st.permutations([("f", {"n": n}) for n in range(3)] + [("g", {}), ("g", {})]))
def test_strict_takes_calls_inside_a_message_in_any_order(shuffled):
    """Calls of one message form an unordered group, unless strict_order."""
    plain = [("f", {"n": n}) for n in range(3)] + [("g", {}), ("g", {})]
    out, ref = [said(*(call(*c) for c in shuffled))], [said(*(call(*c) for c in plain))]

    assert passes(out, ref)
    assert passes(out, ref, strict_order=True) == (shuffled == plain)


def test_strict_order_says_which_call_is_out_of_place():
    """A call that belongs elsewhere in the message is named with what should be there."""
    out, ref = [said(call("a"), call("b"))], [said(call("b"), call("a"))]

    mismatch = verdict(out, ref, strict_order=True)

    assert mismatch.comment == "position 0: a({}) where the reference has b({})"
    assert passes(out, out, strict_order=True)


@pytest.mark.parametrize("timed_side", ["output", "reference"])
def test_calls_that_overlapped_in_time_form_a_group(timed_side):
    """Parallel calls in messages of their own may come in any order, on either side's word."""
    parallel = [timed("a", 10, 30), timed("b", 20, 40), timed("c", 39, 50)]
    other = flat("c", "a", "b")
    out, ref = (parallel, other) if timed_side == "output" else (other, parallel)

    assert passes(out, ref)
    assert not passes(out, ref, strict_order=True)


def test_calls_one_after_the_other_are_no_group():
    """Spans that only touch, or have no times, keep their order."""
    after = [timed("a", 10, 20), timed("b", 20, 30)]
    unknown = [timed("a", 0, 20), timed("b", 10, 30)]

    assert not passes(after, flat("b", "a"))
    assert not passes(unknown, flat("b", "a"))


def test_roles_are_compared_per_position_within_a_group():
    """A group takes in calls of several positions, but the roles stay where they are."""
    out = [timed("a", 10, 30), Message("user", "hm"), timed("b", 20, 40)]

    assert passes(out, [*flat("b"), user(), *flat("a")])
    assert not passes(out, [user(), *flat("b", "a")])


@given(st.permutations(range(4)))
def test_shuffled_parallel_calls_never_change_the_verdict(order):
    """Whatever order parallel calls are reported in, every order-free mode passes, and strict."""
    messages = [timed(f"t{n}", 10 + n, 100, {"n": n}) for n in range(4)]
    shuffled = [messages[n] for n in order]
    wrong = [*messages[:3], timed("t3", 13, 100, {"n": 99})]

    for mode in ("strict", "unordered", "subset", "superset"):
        assert passes(shuffled, messages, mode)
        assert not passes(shuffled, wrong, mode)


@pytest.mark.parametrize(
    ("out", "ref", "accepting_modes"),
    [
        ([], [], {"strict", "unordered", "subset", "superset", "in_order"}),
        (["a"], [], {"superset", "in_order"}),
        ([], ["a"], {"subset"}),
        (["a", "b"], ["b", "a"], {"unordered", "subset", "superset"}),
        (["a", "b", "c"], ["c", "a"], {"superset"}),
        (["a", "b", "c"], ["a", "c"], {"superset", "in_order"}),
        (["a"], ["b", "a"], {"subset"}),
        (["a", "a"], ["a"], {"superset", "in_order"}),
        (["a"], ["a", "a"], {"subset"}),
        (["a"], ["b"], set()),
    ],
)
def test_what_each_mode_accepts(out, ref, accepting_modes):
    """Multisets: duplicates count, empty meets empty, an empty reference is only a lower bound."""
    passing_modes = {mode for mode in MODES if passes(flat(*out), flat(*ref), mode)}

    assert passing_modes == accepting_modes


def test_calls_are_flattened_over_messages():
    """Calls in one message and in several are the same to the modes without positions."""
    out, ref = [said(call("a"), call("b")), tool(), tool()], [*flat("a"), user(), *flat("b")]

    for mode in ("unordered", "subset", "superset", "in_order"):
        assert passes(out, ref, mode)


def test_in_order_tells_order_from_absence():
    """A call that is there but too early has its own comment."""
    mismatch = verdict(flat("a", "b"), flat("b", "a"), "in_order")

    assert (
        mismatch.comment == "missing 1 call: b({}); b is called, but not in the reference's order"
    )
    assert (mismatch.matched, mismatch.missing, mismatch.extra) == (1, 1, 1)


@given(calls, calls, rules)
def test_unordered_is_superset_and_subset(out, ref, rule):
    """The two bounds together are the same as unordered, for every argument rule."""
    options = {"tool_args_match_mode": rule}
    out, ref = flat(*out), flat(*ref)

    within_bounds = passes(out, ref, "superset", **options) and passes(
        out, ref, "subset", **options
    )

    assert passes(out, ref, "unordered", **options) == within_bounds


@given(calls, calls, rules, st.sampled_from(MODES))
def test_verdicts_are_consistent(out, ref, rule, mode):
    """Pairs are a matching, the figures follow from it, and a comment means a failure."""
    match = verdict(flat(*out), flat(*ref), mode, tool_args_match_mode=rule)
    meta = match.metadata()

    assert len(match.alignment) == match.matched
    assert len({i for i, _ in match.alignment}) == len({j for _, j in match.alignment})
    assert all(out[i][0] == ref[j][0] for i, j in match.alignment)
    assert match.matched + match.extra == len(out)
    assert match.matched + match.missing == len(ref)
    assert (match.comment is None) == match.passed
    assert 0 <= meta["f1"] <= 1
    assert meta["f1"] == match.f1
    assert meta["precision"] == (match.matched / len(out) if out else 1)
    assert meta["recall"] == (match.matched / len(ref) if ref else 1)
    total = meta["precision"] + meta["recall"]
    assert meta["f1"] == pytest.approx(
        2 * meta["precision"] * meta["recall"] / total if total else 0
    )
    if mode == "superset":
        assert match.passed == (meta["recall"] == 1)
    if mode == "subset":
        assert match.passed == (meta["precision"] == 1)
    if mode in ("strict", "unordered"):
        assert not match.passed or meta["f1"] == 1


@given(calls, calls, rules, st.sampled_from(MODES))
def test_text_and_parsed_arguments_give_the_same_verdict(out, ref, rule, mode):
    """The short cut through equal texts changes nothing: parsed arguments give the same."""
    parsed = [
        [Message("assistant", tool_calls=(ToolCall(*c),)) for c in side] for side in (out, ref)
    ]

    by_text = verdict(flat(*out), flat(*ref), mode, tool_args_match_mode=rule)
    by_value = verdict(*parsed, mode, tool_args_match_mode=rule)

    assert by_text.passed == by_value.passed
    assert by_text.matched == by_value.matched


@given(calls, calls, rules, st.sampled_from(MODES))
def test_inputs_are_never_changed(out, ref, rule, mode):
    """Both sides equal their deep copies after an evaluation."""
    out, ref = flat(*out), {"messages": flat(*ref)}
    before = copy.deepcopy((out, ref))

    verdict(out, ref, mode, tool_args_match_mode=rule)

    assert (out, ref) == before


def test_missing_and_extra_calls_are_named():
    """Without positions the comment lists both, and the nearest call with what differs in it."""
    out = flat(("book", {"city": "Rome", "n": 2}), ("book", {"city": "Oslo", "n": 9}), "search")
    ref = flat(("book", {"city": "Rome", "n": 1}), "pay")

    assert verdict(out, ref, "unordered").comment == (
        'missing 2 calls: book({"city":"Rome","n":1}), pay({}); extra 3 calls: '
        'book({"city":"Rome","n":2}), book({"city":"Oslo","n":9}), search({}); '
        "book: argument 'n' is 2 in the output, 1 in the reference"
    )


def test_comments_tell_only_what_counts():
    """Superset is silent about extra calls and subset about missing ones."""
    out, ref = flat("a", "b"), flat("a", "c")

    assert verdict(out, ref, "superset").comment == "missing 1 call: c({})"
    assert verdict(out, ref, "subset").comment == "extra 1 call: b({})"


def test_comments_stay_readable():
    """Long values are cut around what differs, and long lists of calls after three."""
    text = "x" * 500
    out, ref = flat(("f", {"s": text + "A"})), flat(("f", {"s": text + "B"}))
    long = verdict(out, ref, "unordered").comment
    many = verdict([], flat(*"abcdef"), "unordered").comment

    assert long is not None
    assert len(long) < 600
    assert "xxxA" in long
    assert "xxxB" in long
    assert many == "missing 6 calls: a({}), b({}), c({}) and 3 more"


def test_one_sided_arguments_are_named():
    """An argument that only one side has is told as such, by its path."""
    out, ref = flat(("f", {"a": {"x": 1}})), flat(("f", {"a": {}, "b": 2}))

    comments = [verdict(*pair, "unordered").comment or "" for pair in ((out, ref), (ref, out))]

    assert "argument 'a.x' is 1 in the output; the reference has none" in comments[0]
    assert "argument 'a.x' is missing in the output; the reference has 1" in comments[1]


def test_figures_of_empty_sides():
    """Precision of no calls and recall of none wanted are 1; f1 is 0 when one side is empty."""
    figures = {
        (): verdict([], [], "unordered"),
        ("out",): verdict(flat("a"), [], "unordered"),
        ("ref",): verdict([], flat("a"), "unordered"),
    }

    assert {k: (v.precision, v.recall, v.f1) for k, v in figures.items()} == {
        (): (1.0, 1.0, 1.0),
        ("out",): (0.0, 1.0, 0.0),
        ("ref",): (1.0, 0.0, 0.0),
    }


def test_results_have_exactly_four_keys():
    """key, score, comment, metadata; a pass has no comment and the figures are plain JSON."""
    result = make()(outputs=flat("a"), reference_outputs=flat("a"), inputs={"q": 1}, other=2)

    assert result == {
        "key": "trajectory_strict_match",
        "score": True,
        "comment": None,
        "metadata": {
            "matched": 1,
            "missing": 0,
            "extra": 0,
            "precision": 1.0,
            "recall": 1.0,
            "f1": 1.0,
            "alignment": [(0, 0)],
        },
    }
    json.dumps(result)


@pytest.mark.parametrize("mode", MODES)
async def test_keys_and_twins(mode):
    """The factory's key names the mode, and the async twin gives the same result."""
    out, ref = flat("a", "b"), flat("b", "c")
    result = make(trajectory_match_mode=mode)(outputs=out, reference_outputs=ref)
    twin = make_async(trajectory_match_mode=mode)

    assert result["key"] == f"trajectory_{mode}_match"
    assert await twin(outputs=out, reference_outputs=ref, inputs=None, run=1) == result


@pytest.mark.parametrize(
    ("score_type", "score"), [("bool", False), ("precision", 1 / 3), ("recall", 0.5), ("f1", 0.4)]
)
def test_score_types(score_type, score):
    """The score may be a figure in place of the verdict; the comment still says why."""
    evaluator = make(trajectory_match_mode="unordered", score_type=score_type)

    result = evaluator(outputs=flat("a", "b", "c"), reference_outputs=flat("a", "d"))

    assert result["score"] == score
    assert type(result["score"]) is type(score)
    assert result["comment"] is not None


FIXED = {
    "trajectory_strict_match": (True, False),
    "trajectory_unordered_match": (True, True),
    "trajectory_subset": (True, True),
    "trajectory_superset": (True, True),
}


@pytest.mark.parametrize("name", FIXED)
async def test_fixed_functions(name):
    """Their keys are their names; they ignore arguments, but for strict's exact default."""
    function, twin = getattr(ev, name), getattr(ev, f"{name}_async")
    sides: dict[str, Any] = {"outputs": flat(("f", {"a": 1})), "inputs": {}}

    for ref, score in zip((flat(("f", {"a": 1})), flat(("f", {"a": 2}))), FIXED[name], strict=True):
        result = function(**sides, reference_outputs=ref)
        assert (result["key"], result["score"]) == (name, score)
        assert await twin(**sides, reference_outputs=ref) == result
    with pytest.raises(ValueError, match="reference_outputs is None"):
        function(outputs=[])


async def test_the_fixed_strict_function_can_ignore_arguments():
    """tool_call_args_exact_match=False leaves the arguments out, in both forms."""
    sides = {"outputs": flat(("f", {"a": 1})), "reference_outputs": flat(("f", {"a": 2}))}

    loose = ev.trajectory_strict_match(**sides, tool_call_args_exact_match=False)

    assert loose["score"] is True
    assert (
        await ev.trajectory_strict_match_async(**sides, tool_call_args_exact_match=False) == loose
    )


def _module_level(_out, _ref):
    return True


def test_descriptions_tell_configurations_apart():
    """Equal configurations describe themselves equally, others differently, all as JSON."""
    configurations = [
        {},
        {"trajectory_match_mode": "in_order"},
        {"tool_args_match_mode": "ignore"},
        {"tool_args_match_mode": {"tolerant": {"sets": ["a"]}}},
        {"tool_args_match_mode": {"regex": {"a": "x"}}},
        {"tool_args_match_mode": "regex"},
        {"tool_args_match_mode": ["a"]},
        {"tool_args_match_mode": ["a"], "missing_ok": False},
        {"tool_args_match_overrides": {"t": "ignore"}},
        {"tool_args_match_overrides": {"t": _module_level}},
        {"tool_args_match_overrides": {"t": lambda o, r: o == r}},
        {"tool_args_match_overrides": {"t": lambda o, r: o != r}},
        {"view": "writes", "effect_tools": ["b", "a"]},
        {"error_pattern": "failed"},
        {"strict_order": True},
        {"score_type": "f1"},
    ]

    texts = [json.dumps(make(**options).describe(), sort_keys=True) for options in configurations]

    assert len(set(texts)) == len(texts)
    assert make(effect_tools=["a", "b"]).describe() == make(effect_tools=("b", "a")).describe()
    assert make_async().evaluator.describe() == make().describe()


def test_evaluators_can_be_pickled():
    """An evaluator goes to another process with its rules."""
    evaluator = make(
        trajectory_match_mode="unordered",
        tool_args_match_mode="tolerant",
        tool_args_match_overrides={"t": ["a"], "u": {"a": "x"}, "v": _module_level},
    )

    again = pickle.loads(pickle.dumps(evaluator))

    assert again == evaluator
    assert again.__name__ == "trajectory_unordered_match"
    assert again(outputs=flat("v"), reference_outputs=flat("v"))["score"]


def test_the_public_names_exist():
    """Everything in __all__ can be imported."""
    assert all(hasattr(ev, name) for name in ev.__all__)


async def test_an_async_match_awaits_no_reference_after_a_perfect_one():
    """A function that must be awaited is asked about the pairs of one reference at a time."""
    awaited_args = []

    async def same(out: Any, ref: Any) -> bool:
        awaited_args.append(ref)
        return bool(out == ref)

    match = make_async(tool_args_match_overrides={"f": same})
    references = oteval.AnyOf([flat(("f", {"a": 1})), flat(("f", {"a": 2}))])

    feedback = await match(outputs=flat(("f", {"a": 1})), reference_outputs=references)

    assert (feedback["score"], feedback["metadata"]["reference"]) == (True, "any[0]")
    assert awaited_args == [{"a": 1}]


async def test_an_async_match_of_a_run_without_arguments_has_no_verdict_where_they_decide():
    """Missing arguments are a reason only if the run would pass with the expected ones."""

    async def same(out: Any, ref: Any) -> bool:
        return bool(out == ref)

    match = make_async(tool_args_match_overrides={"f": same})
    unseen = Message("assistant", tool_calls=(ToolCall("f", None),))
    other = Message("assistant", tool_calls=(ToolCall("g", {}),))

    for messages, score in (((unseen,), None), ((unseen, other), False)):
        feedback = await match(outputs=run(1, *messages), reference_outputs=flat(("f", {"a": 1})))
        assert feedback["score"] is score


@pytest.mark.parametrize("mode", MODES)
def test_the_walk_of_a_reference_to_its_verdict_is_short(mode: str):
    """Ten functions in four files see the reference of a direct call, or what was read of it."""
    match, reference = make(trajectory_match_mode=mode), flat(("f", {"a": 1}), "g")
    seen: set[tuple[str, str]] = set()

    def note(frame: types.FrameType, event: str, _argument: Any) -> None:
        has_it = any(
            value is reference or isinstance(value, (CallTable, EvaluationContext))
            for value in frame.f_locals.values()
        )
        if event == "call" and has_it and "/oteval/evaluators/" in frame.f_code.co_filename:
            seen.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        feedback = match(outputs=flat(("f", {"a": 1}), "g"), reference_outputs=reference)
    finally:
        sys.setprofile(before)

    assert feedback["score"] is True
    assert len(seen) <= 10
    assert len({file for file, _ in seen}) <= 4
