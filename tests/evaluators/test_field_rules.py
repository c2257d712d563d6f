"""Arguments of which some fields are compared by a tolerance or by a language model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, strategies as st

from oteval import ConfigError, create_llm_as_judge
from oteval.evaluators import (
    create_async_trajectory_match_evaluator as make_async,
    create_trajectory_match_evaluator as make,
)
from oteval.evaluators.evaluator import Resources

from ..model_server import serving, verdict
from .helpers import args_comment, args_match, flat

PROMPT = "{field} {criterion} {outputs} {reference_outputs}"
numbers = st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from(["1", "1.5", True, None])
values = st.recursive(
    numbers,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=5,
)
objects = st.dictionaries(st.sampled_from("ab"), values, max_size=2)


@pytest.mark.parametrize(
    ("out", "ref", "rule", "equal"),
    [
        ({"n": 1.01}, {"n": 1.0}, {"n": {"abs": 0.01}}, True),
        ({"n": 1.02}, {"n": 1.0}, {"n": {"abs": 0.01}}, False),
        ({"n": 0.99}, {"n": 1}, {"n": {"abs": 0.01}}, True),
        ({"n": 1010}, {"n": 1000}, {"n": {"rel": 0.01}}, True),
        ({"n": 1010}, {"n": 1000}, {"n": {"abs": 1, "rel": 0.02}}, True),
        ({"n": -990}, {"n": -1000}, {"n": {"rel": 0.01}}, True),
        ({"n": 1011}, {"n": 1000}, {"n": {"rel": 0.01}}, False),
        ({"n": True}, {"n": 1}, {"n": {"abs": 1}}, False),
        ({"n": "1.01"}, {"n": 1.0}, {"n": {"abs": 0.01}}, False),
        ({"n": "1.01"}, {"n": "1.01"}, {"n": {"abs": 0.01}}, True),
        ({"n": "1.01"}, {"n": 1.0}, {"tolerant": {"fields": {"n": {"abs": 0.01}}}}, True),
        ({"n": 1, "m": 2}, {"n": 1, "m": 3}, {"n": {"abs": 9}}, False),
        ({"n": 1, "m": 2}, {"n": 1, "m": 3}, {"n": {"abs": 9}, "m": "ignore"}, True),
        ({"n": 1}, {"n": 1, "m": 3}, {"m": "ignore"}, True),
        ({"n": 1, "m": "A b"}, {"n": 1, "m": "a  B"}, {"m": "tolerant"}, True),
        ({}, {"n": 1}, {"n": {"abs": 9}}, False),
        ({"n": 1}, {}, {"n": {"abs": 9}}, False),
        ({}, {}, {"n": {"abs": 9}}, True),
        ({"r": [{"n": 1.2}, {"n": 2}]}, {"r": [{"n": 1}, {"n": 2.2}]}, {"r.n": {"abs": 0.2}}, True),
        ({"r": [{"n": 1.3}]}, {"r": [{"n": 1}]}, {"r.n": {"abs": 0.2}}, False),
        ({"r": [1.1, 2]}, {"r": [1, 2]}, {"r": {"abs": 0.2}}, True),
        ({"r": [1.1]}, {"r": [1, 2]}, {"r": {"abs": 0.2}}, False),
        ({"a": {"n": 1.1, "x": 1}}, {"a": {"n": 1, "x": 1}}, {"a.n": {"abs": 0.2}}, True),
        ({"a": {"n": 1.1, "x": 1}}, {"a": {"n": 1, "x": 2}}, {"a.n": {"abs": 0.2}}, False),
    ],
)
def test_numbers_are_compared_by_a_tolerance(out: Any, ref: Any, rule: Any, equal: bool) -> None:
    """The tolerance is inclusive and decimal; all other fields must be equal."""
    assert args_match(out, ref, rule) is equal


def test_sets_and_fields_go_together() -> None:
    """With tolerant, lists are sets and text is folded while a number has a tolerance."""
    rule = {"tolerant": {"sets": ["tags"], "fields": {"n": {"abs": 0.1}}}}

    assert args_match({"tags": ["B", "a"], "n": "1.05"}, {"tags": ["a", "b"], "n": 1}, rule)
    assert not args_match({"tags": ["B"], "n": "1.05"}, {"tags": ["a", "b"], "n": 1}, rule)


def test_a_field_on_neither_side_may_be_refused() -> None:
    """A misspelt field cannot pass with missing_ok=False."""
    assert not args_match({}, {}, {"n": {"abs": 9}}, missing_ok=False)
    assert "on neither side" in args_comment({}, {}, {"n": {"abs": 9}}, missing_ok=False)


def test_the_comment_has_the_difference() -> None:
    """Both values, the difference and the tolerance are named, or the other field that differs."""
    rule = {"n": {"abs": 0.01}}

    assert "'n' is 1.05 in the output, 1 in the reference (off by 0.05, at most 0.01)" in (
        args_comment({"n": 1.05, "m": 1}, {"n": 1, "m": 1}, rule)
    )
    assert "'m' is 1 in the output, 2 in the reference" in (
        args_comment({"n": 1, "m": 1}, {"n": 1, "m": 2}, rule)
    )


def test_a_difference_beyond_all_floats_is_a_mismatch() -> None:
    """Integers may be of any size; the comment then has no difference."""
    comment = args_comment({"n": 10**400}, {"n": 1}, {"n": {"abs": 1}})

    assert "off by" not in comment
    assert "'n'" in comment


@given(objects, objects)
def test_no_tolerance_is_equality(out: Any, ref: Any) -> None:
    """A tolerance of 0 and the modes of one field agree with those of all arguments."""
    for mode, rule in (
        ("exact", {"a": {"abs": 0}}),
        ("exact", {"a": "exact", "b": "exact"}),
        ("tolerant", {"a": "tolerant", "b": "tolerant"}),
        ("tolerant", {"tolerant": {"fields": {"b": {"rel": 0}}}}),
    ):
        assert args_match(out, ref, rule) == args_match(out, ref, mode)


def test_calls_are_paired_so_that_most_match() -> None:
    """A tolerance is no equality: a greedy pairing would leave a call over."""
    out, ref = flat(("t", {"n": 2}), ("t", {"n": 1})), flat(("t", {"n": 2}), ("t", {"n": 3}))

    evaluate = make(trajectory_match_mode="unordered", tool_args_match_mode={"n": {"abs": 1}})

    assert evaluate(outputs=out, reference_outputs=ref)["metadata"]["alignment"] == [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("out", "ref"),
    [
        ("\uff21\uff22", "ab"),
        ("\ufb01ne", "FINE"),
        ("cafe\u0301", "CAF\u00c9"),
        ("\uff11\uff12", 12),
        ("Stra\u00dfe", "STRASSE"),
        ("a\u00a0b", "a b"),
    ],
)
def test_tolerant_folds_unicode(out: Any, ref: Any) -> None:
    """Full width, ligatures, composed accents and case do not count; exact keeps them apart."""
    assert args_match({"a": out}, {"a": ref}, "tolerant")
    assert not args_match({"a": out}, {"a": ref}, "exact")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"n": {"abz": 1}}, "['n']: unknown key 'abz', did you mean 'abs'?; known: abs, rel"),
        ({"n": {"abs": -1}}, "['n']['abs'] is -1; expected a number, 0 or more"),
        ({"n": {"rel": True}}, "['n']['rel'] is True"),
        ({"n": {"abs": float("nan")}}, "['n']['abs'] is nan"),
        ({"n": {}}, "['n']: no tolerance given"),
        ({"n": {"abs": 1}, "m": "judgd"}, "['m']: 'judgd' is not a comparison, did you mean"),
        ({"n": {"abs": 1}, "m": 5}, "['m']: 5 is not a comparison"),
        ({"": {"abs": 1}}, "'' is not a field"),
        ({"tolerant": {"filds": {}}}, "['tolerant']: unknown key 'filds', did you mean 'fields'?"),
        ({"tolerant": {"fields": {"n": {"re": 1}}}}, "['fields']['n']: unknown key 're'"),
        (
            {"tolerant": {"sets": ["items"], "fields": {"items.price": "ignore"}}},
            "['fields']['items.price']: 'items' is in sets, which are compared as a whole",
        ),
        (
            {"tolerant": {"sets": ["items"], "fields": {"items": {"abs": 1}}}},
            "['fields']['items']: 'items' is in sets",
        ),
        ({"n": "judged"}, "['n'] is judged, which needs a model: give judge: {model: ...}"),
    ],
)
def test_an_unknown_form_is_refused(rule: Any, message: str) -> None:
    """The error names the field and the nearest key, when the evaluator is made."""
    with pytest.raises(ConfigError) as error:
        make(tool_args_match_overrides={"t": rule})

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        ({"modle": "openai:m"}, "judge: unknown key 'modle', did you mean 'model'?"),
        ({}, "judge: give either model or jury"),
        ("openai:m", "judge is a str; expected {model: openai:NAME}"),
    ],
)
def test_a_wrong_judge_is_refused(judge: Any, message: str) -> None:
    """The judge of fields has the options of a judge, and no others."""
    with pytest.raises(ConfigError) as error:
        make(tool_args_match_overrides={"t": {"n": "judged"}}, judge=judge)

    assert message in str(error.value)


@pytest.mark.parametrize("word", ["tolerent", "Exact", "ignored", "judgd", "judge", "subset"])
def test_a_misspelt_comparison_is_not_taken_for_a_pattern(word: str) -> None:
    """A lone word beside no other comparison is refused; patterns may still be written."""
    with pytest.raises(ConfigError, match=f"{word!r} would be a pattern"):
        make(tool_args_match_overrides={"t": {"reason": word}})

    for form in ({"regex": {"reason": word}}, {"reason": "[a-z]+"}, {"reason": "late"}):
        make(tool_args_match_overrides={"t": form})


@pytest.mark.parametrize("options", [{"api_key": "secret"}, {"api_key_env": "FIELD_KEY"}])
def test_a_judge_of_options_has_its_server_and_key(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Python as in oteval.yaml; the key is neither shown nor part of the version."""
    monkeypatch.setenv("FIELD_KEY", "secret")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serving(lambda _, __: verdict(score=True)) as server:
        evaluate = make(
            tool_args_match_overrides={"t": {"reason": "judged"}},
            judge={"model": "openai:m", "base_url": server.url, **options},
        )
        result = evaluate(
            outputs=flat(("t", {"reason": "faulty"})),
            reference_outputs=flat(("t", {"reason": "broken"})),
        )
        evaluate.close()

    assert result["score"] is True
    assert {headers["authorization"] for headers in server.headers} == {"Bearer secret"}
    assert "secret" not in f"{evaluate!r} {evaluate.describe()}"


def test_a_key_in_the_configuration_or_a_missing_one_is_refused() -> None:
    """oteval.yaml names the variable with the key; in Python, a variable must be set."""
    evaluate = make(
        tool_args_match_overrides={"t": {"reason": "judged"}},
        judge={"model": "openai:m", "api_key": "secret"},
    )
    resources = Resources("e", True, str, {}.__getitem__, {})
    with pytest.raises(ConfigError, match="api_key is for Python"):
        evaluate.prepare(resources)
    unset = make(
        tool_args_match_overrides={"t": {"reason": "judged"}},
        judge={"model": "openai:m", "api_key_env": "NO_SUCH_KEY"},
    )
    with pytest.raises(ConfigError, match="NO_SUCH_KEY is not set"):
        unset(outputs=flat(("t", {"reason": "a"})), reference_outputs=flat(("t", {"reason": "b"})))


def test_a_judge_needs_a_judged_field() -> None:
    """A judge that nothing uses is a mistake in the overrides."""
    with pytest.raises(ConfigError, match="no field is judged"):
        make(judge=create_llm_as_judge(prompt=PROMPT, judge=lambda *_: {}))


class Script:
    """A judge that agrees where the output has a word, and counts its questions."""

    def __init__(self, word: str = "faulty") -> None:
        self.word, self.questions = word, 0

    def __call__(self, messages: Any, schema: Any) -> dict[str, Any]:
        """Return the answer."""
        self.questions += 1
        return {"reasoning": "Both are.", "score": self.word in str(messages)}


def judged(judge: Any, rule: Any = "judged", **options: Any) -> Any:
    """Return an evaluator that has a judge compare the field ``reason`` of the tool ``t``."""
    return make(
        tool_args_match_overrides={"t": {"reason": rule}},
        judge=create_llm_as_judge(prompt=PROMPT, judge=judge),
        **options,
    )


def test_a_model_compares_a_field() -> None:
    """Its answer decides and is in the metadata; equal values need none."""
    judge = Script()
    evaluate = judged(judge)
    reference = flat(("t", {"reason": "broken", "id": 1}))

    same = evaluate(outputs=reference, reference_outputs=reference)
    yes = evaluate(outputs=flat(("t", {"reason": "faulty", "id": 1})), reference_outputs=reference)
    no = evaluate(outputs=flat(("t", {"reason": "blue", "id": 1})), reference_outputs=reference)

    assert (same["score"], same["metadata"].get("judged")) == (True, None)
    assert (yes["score"], yes["comment"]) == (True, None)
    assert yes["metadata"]["judged"][0]["agrees"] is True
    assert no["score"] is False
    assert "(judged to differ: Both are.)" in no["comment"]
    assert judge.questions == 2  # each question of an evaluation is asked once


def test_a_model_is_asked_only_if_nothing_else_differs() -> None:
    """Calls that differ in other arguments cost nothing."""
    judge = Script()

    result = judged(judge)(
        outputs=flat(("t", {"reason": "faulty", "id": 1})),
        reference_outputs=flat(("t", {"reason": "broken", "id": 2})),
    )

    assert (result["score"], judge.questions) == (False, 0)


@pytest.mark.parametrize(
    ("out", "ref", "text"),
    [
        (None, "unset", "null"),
        ("unset", None, "null"),
        ({"gaps": [{"code": "content_not_captured"}]}, "holes", "content_not_captured"),
        ([{"role": "user", "content": "hi"}], "hello", "content"),
    ],
)
def test_a_model_compares_any_value(out: Any, ref: Any, text: str) -> None:
    """A value that is not text is shown as JSON, whatever its fields are called."""
    judge = Script(text)

    result = judged(judge)(
        outputs=flat(("t", {"reason": out})), reference_outputs=flat(("t", {"reason": ref}))
    )

    assert (result["score"], judge.questions) == (True, 1)


def test_a_criterion_is_shown_to_the_model() -> None:
    """The criterion of a field takes the place of the usual one."""
    evaluate = judged(Script("same colour"), {"judged": "They name the same colour."})

    result = evaluate(
        outputs=flat(("t", {"reason": "red"})), reference_outputs=flat(("t", {"reason": "crimson"}))
    )

    assert result["score"] is True


@pytest.mark.parametrize("mode", ["strict", "unordered", "subset", "superset", "in_order"])
def test_a_failed_question_is_never_a_verdict(mode: str) -> None:
    """If the judge fails there is neither a pass nor a fail, in every mode."""

    def broken(messages: Any, schema: Any) -> dict[str, Any]:
        raise RuntimeError("no connection")

    result = judged(broken, trajectory_match_mode=mode)(
        outputs=flat(("t", {"reason": "faulty"})),
        reference_outputs=flat(("t", {"reason": "broken"})),
    )

    assert result["score"] is None
    assert result["metadata"]["status"] == "error"
    assert "no connection" in result["comment"]


def test_an_asynchronous_evaluator_asks_in_a_thread() -> None:
    """The async form gives the same result."""
    evaluate = make_async(
        tool_args_match_overrides={"t": {"reason": "judged"}},
        judge=create_llm_as_judge(prompt=PROMPT, judge=Script()),
    )

    async def run() -> Any:
        return await evaluate(
            outputs=flat(("t", {"reason": "faulty"})),
            reference_outputs=flat(("t", {"reason": "broken"})),
        )

    assert asyncio.run(run())["score"] is True


def test_a_spent_budget_is_no_verdict_and_keeps_the_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers that were paid for before the budget was spent are in the metadata."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    names = [f"reason{number}" for number in range(7)]
    limits = {"max_cost": 0.55, "prices": {"m": {"input": 0, "output": 1000}}}
    with serving(lambda _, __: verdict(score=True, tokens=(0, 100))) as server:
        evaluate = make(
            tool_args_match_overrides={"t": dict.fromkeys(names, "judged")},
            judge={"model": "openai:m", "base_url": server.url, **limits},
        )
        result = evaluate(
            outputs=flat(("t", dict.fromkeys(names, "faulty"))),
            reference_outputs=flat(("t", {name: f"broken {name}" for name in names})),
        )
        evaluate.close()

    metadata = result["metadata"]
    assert (result["score"], metadata["status"]) == (None, "not_evaluated")
    assert "max_cost" in result["comment"]
    assert metadata["error"] == result["comment"]
    assert 0.1 <= metadata["cost_usd"] <= 0.55
