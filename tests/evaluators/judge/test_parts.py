"""The smaller parts: answers, schemas, votes, prices, budgets, the cache."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from typing import Annotated, Any, Literal, TypedDict

import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from oteval import ConfigError, MemoryCache, create_llm_as_judge
from oteval.evaluators.judge.answers import parse_answer
from oteval.evaluators.judge.cache import JudgeCall, key_of
from oteval.evaluators.judge.ladder import Memory
from oteval.evaluators.judge.prices import Price, make_prices
from oteval.evaluators.judge.schema import Unusable, custom_schema, verdict_schema
from oteval.evaluators.judge.shapes import problem_of
from oteval.evaluators.judge.voting import share, verdict

GOOD = '{"reasoning": "r", "score": true}'


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"  {GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        f"<think>is {{it}} {{}}?</think>\n{GOOD}",
        f"<THINK>a</think>\n<reflection>b</reflection>```json\n{GOOD}```",
        f"[THINK]a[/THINK]{GOOD}",
        f"◁think▷a◁/think▷{GOOD}",
        f"<seed:think>a</seed:think>{GOOD}",
        '{\n  "reasoning": "r",\n  "score": true\n}',
    ],
)
def test_an_object_is_found_where_models_put_it(text: str):
    """Alone, in a fence, or after reasoning that has an end."""
    assert parse_answer(text) == {"reasoning": "r", "score": True}


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "   ", "true", "[]", GOOD * 2, f"{GOOD} or {{}}", "{", '{"a": '),
        f"Here it is: {GOOD} Done.",
        f"Here it is:\n```\n{GOOD}\n```\nDone.",
        f"Here it is:\n```json\n{GOOD}\n```",
        f"```json\n{GOOD}\n```\nBut on reflection it fails.",
        f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```",
        f"The agent wrote {GOOD}",
        f"<think>{GOOD}",
        f"<think>{GOOD}</think>",
        f"<think>draft {GOOD}</thinking>",
        f"<think>it says </think>{GOOD} so I doubt it",
        f"<think>a</think><think>{GOOD}",
        f"<thought>{GOOD}",
        f"<reasoning>{GOOD}",
        f"<scratchpad>\n{GOOD}\n",
        f"[THINK]{GOOD}",
        f"◁think▷{GOOD}",
        f"a draft</think>{GOOD}",
        f"{GOOD}</think>",
        f"<|channel|>analysis<|message|>{GOOD}<|end|>",
        f"<antThinking>{GOOD}</antThinking>",
        '{"reasoning": "r", "score": false, "score": true}',
        '{"reasoning": {"a": 1, "a": 2}, "score": true}',
        "1" * 5000,
        "[" * 100_000,
    ],
    ids=lambda text: str(text)[:40],
)
def test_what_is_no_one_object_is_unusable(text: str | None):
    """Nothing is guessed, least of all which of two objects was meant."""
    with pytest.raises(Unusable):
        parse_answer(text)


NOISE = st.sampled_from(
    [
        *("I think ", "</think>", "<think>", "```", "```json\n", "\n```", "so: ", ".", "{", "["),
        *("\ufeff", "<answer>", "</answer>", "<|im_end|>", "[/THINK]", "[THINK]", "◁think▷"),
        *("\u200b", "//", "null"),
    ]
)
CLOSED = re.compile(
    r"(<think>(?:(?!</think>).)*</think>|\[THINK\](?:(?!\[/THINK\]).)*\[/THINK\])*", re.DOTALL
)


@given(st.lists(NOISE, max_size=4).map("".join), st.lists(NOISE, max_size=4).map("".join))
def test_a_verdict_in_any_noise_is_not_taken(before: str, after: str):
    """Only reasoning that has an end may stand before it, and a fence around it."""
    text = f"{before}{GOOD}{after}"
    rest = CLOSED.sub("", text, count=1)
    is_whole = rest in (GOOD, f"```json\n{GOOD}```", f"```json\n{GOOD}\n```")

    try:
        found = parse_answer(text)
    except Unusable:
        found = None

    assert (found is not None) is is_whole


def test_an_endless_answer_is_read_in_a_moment():
    """Models that lose their way write white space until they are stopped."""
    start = time.process_time()
    for begin, more in (
        ("```json\n", " "),
        ("<think>", " "),
        ("", "{"),
        ("", "`"),
        ("", "<think>"),
    ):
        with pytest.raises(Unusable):
            parse_answer(begin + more * 100_000)

    assert time.process_time() - start < 5


@given(st.text())
def test_any_text_is_an_object_or_unusable(text: str):
    """No answer, however odd, raises anything else."""
    with suppress(Unusable):
        assert isinstance(parse_answer(text), dict)


def test_the_schema_of_a_verdict_has_its_reasons_first():
    """Without reasons only the score is asked for."""
    assert list(verdict_schema().json["properties"]) == ["reasoning", "score"]
    assert list(verdict_schema(use_reasoning=False).json["properties"]) == ["score"]
    assert verdict_schema(choices=[0, 1]).json["properties"]["score"]["enum"] == [0, 1]


@pytest.mark.parametrize("choices", [[], [True], ["a"], [None]])
def test_choices_that_are_no_numbers_are_refused(choices: list[Any]):
    """When the evaluator is made."""
    with pytest.raises(ConfigError, match="choices is"):
        verdict_schema(choices=choices)
    with pytest.raises(ConfigError, match="exclude each other"):
        verdict_schema(continuous=True, choices=[1])


class Inner(TypedDict):
    """A TypedDict of typing's, in another."""

    n: int


class Grade(TypedDict, total=False):
    """What is asked for."""

    letter: Annotated[Literal["A", "B"], ..., "The grade."]
    parts: list[Inner]
    note: str | None


class Newer(typing_extensions.TypedDict):
    """A TypedDict of typing_extensions'."""

    letter: str


class Model(BaseModel):
    """A pydantic model."""

    letter: Literal["A", "B"]


SCHEMA = {
    "title": "grade",
    "type": "object",
    "properties": {"letter": {"type": "string", "enum": ["A", "B"]}},
    "required": ["letter"],
}


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        (Grade, {"letter": "A", "parts": [{"n": 1}]}, {"letter": "A", "parts": [{"n": 1}]}),
        (Newer, {"letter": "A"}, {"letter": "A"}),
        (Model, {"letter": "A"}, Model(letter="A")),
        (SCHEMA, {"letter": "A"}, {"letter": "A"}),
        ({"name": "g", "schema": SCHEMA, "strict": True}, {"letter": "A"}, {"letter": "A"}),
    ],
    ids=["TypedDict", "typing_extensions", "pydantic", "JSON schema", "OpenAI's form"],
)
def test_answers_of_ones_own_form_are_returned_as_they_are(kind: Any, answer: Any, expected: Any):
    """As openevals does: a dict, or the pydantic model's object."""
    evaluate = create_llm_as_judge(
        prompt="{outputs}", judge=lambda _messages, _schema: answer, output_schema=kind
    )

    assert evaluate(outputs="x") == expected


def test_a_typed_dict_is_described_with_its_notes():
    """LangChain's way to describe a field becomes a description; what is optional stays so."""
    schema = custom_schema(Grade)

    assert schema.json["properties"]["letter"]["description"] == "The grade."
    assert schema.strict is False
    assert custom_schema(Newer).strict is True


@pytest.mark.parametrize(
    ("kind", "answer"),
    [(Grade, {"letter": "C"}), (Grade, {"parts": [{"n": "x"}]}), (Model, {}), (SCHEMA, {"l": 1})],
)
def test_answers_that_do_not_fit_are_unusable(kind: Any, answer: Any):
    """Whatever form it was asked for in."""
    with pytest.raises(Unusable):
        custom_schema(kind).read(answer)


@pytest.mark.parametrize("kind", [int, "text", {"type": "string"}, [], 3])
def test_what_is_no_schema_is_refused(kind: Any):
    """With what would be one."""
    with pytest.raises(ConfigError, match="output_schema"):
        custom_schema(kind)


@pytest.mark.parametrize(
    ("value", "schema", "problem"),
    [
        ({"a": 1}, {"properties": {"a": {"type": "string"}}}, "a: expected string, got 1"),
        ({}, {"required": ["a"]}, "the answer: 'a' is missing"),
        ({"b": 1}, {"additionalProperties": False}, "b: nothing may stand here"),
        ([1, "x"], {"items": {"type": "integer"}}, "[1]: expected integer"),
        (3, {"minimum": 4}, "3 is out of range"),
        (3, {"exclusiveMaximum": 3}, "3 is out of range"),
        ("ab", {"pattern": "^b"}, "does not match"),
        ("ab", {"maxLength": 1}, "has 2 characters"),
        ([], {"minItems": 1}, "has 0 items"),
        (1, {"const": 2}, "is none of"),
        (True, {"type": ["integer", "null"]}, "expected integer or null, got true"),
        (1, {"anyOf": [{"type": "string"}, {"type": "null"}]}, "expected string"),
        (1, {"allOf": [{"type": "integer"}, {"minimum": 2}]}, "out of range"),
        ({"a": 1}, {"properties": {"a": {"$ref": "#/$defs/s"}}, "$defs": {"s": {"const": "x"}}},
         "a: 1 is none of"),
        (1, {"$ref": "#"}, "nested too deep"),
    ],
)  # fmt: skip
def test_what_does_not_fit_a_json_schema_is_named(value: Any, schema: Any, problem: str):
    """With its place."""
    assert problem in problem_of(value, schema)


def test_what_fits_a_json_schema_has_no_problem():
    """Whole numbers are integers, and unknown keywords say nothing."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "format": "odd"}, "x": True},
        "required": ["n"],
    }

    assert problem_of({"n": 3.0, "x": [1]}, schema) == ""


@pytest.mark.parametrize(
    ("scores", "continuous", "expected"),
    [
        ([True, True, False], False, True),
        ([True, False], False, False),
        ([False], False, False),
        ([1, 1, 0.5], False, 1),
        ([0, 1], False, 0),
        ([0, 0.5, 1], False, 0.5),
        ([0.2, 0.4], True, pytest.approx(0.3)),
    ],
)
def test_votes_come_to_a_verdict(scores: list[Any], continuous: bool, expected: Any):
    """A tie is no pass; the middle choice stands for a split one; continuous scores average."""
    assert verdict(scores, continuous=continuous) == expected


@given(st.lists(st.booleans(), min_size=1, max_size=9))
def test_a_bool_passes_with_more_than_half(votes: list[bool]):
    """And its share is that of the votes for it."""
    chosen = verdict(votes)

    assert chosen == (votes.count(True) > votes.count(False))
    assert share(votes, chosen) == votes.count(chosen) / len(votes)


def test_prices_are_found_by_name_date_and_maker():
    """The user's own come first; an unknown model has none."""
    prices = make_prices({"m": (1.0, 2.0), "gpt-4o": {"input": 9, "output": 9}})

    assert prices.of("m") == Price(1.0, 2.0)
    assert prices.of("gpt-4o-2024-08-06") == Price(9.0, 9.0)
    assert prices.of("openai/gpt-5-mini-2025-08-07") == prices.of("gpt-5-mini")
    assert prices.of("gpt-5-mini") != prices.of("gpt-5")
    assert prices.of("nobody") is None
    assert Price(1.0, 2.0, 0.5).cost(1_000_000, 500_000, 200_000) == pytest.approx(0.8 + 0.1 + 1)


@pytest.mark.parametrize("price", [3, {"in": 1}, (1,), {"input": "x", "output": 1}])
def test_what_is_no_price_is_refused(price: Any):
    """With the form that one has."""
    with pytest.raises(ConfigError, match="US dollars per million tokens"):
        make_prices({"m": price})


def test_a_limit_on_costs_that_are_not_known_is_refused():
    """It could not be kept."""
    with pytest.raises(ConfigError, match="max_cost needs the price of 'nobody'"):
        create_llm_as_judge(prompt="{outputs}", model="openai:nobody", max_cost=1.0)


def test_a_cache_in_memory_forgets_what_was_not_used_for_longest():
    """And holds answers only."""
    cache = MemoryCache(2)
    for name in ("a", "b"):
        cache.put(JudgeCall(name, "m", answer={"score": True}))
    cache.put(JudgeCall("failed", "m", error="x"))
    assert cache.get("a") is not None

    cache.put(JudgeCall("c", "m", answer={"score": True}))

    assert [cache.get(name) is not None for name in ("a", "b", "c", "failed")] == [
        True,
        False,
        True,
        False,
    ]


def test_a_key_covers_everything_but_the_nonce():
    """Two nonces make the same key; another word makes another."""
    one = key_of({"m": "[[data x 1111111111111111]] a"}, "1" * 16)
    two = key_of({"m": "[[data x 2222222222222222]] a"}, "2" * 16)

    assert one == two
    assert one != key_of({"m": "[[data x 1111111111111111]] b"}, "1" * 16)


def test_the_first_way_that_worked_is_remembered():
    """One odd answer does not make a server a plain one; a refusal does."""
    memory, place = Memory(), ("url", "m")
    memory.worked(place, "json_schema")
    memory.worked(place, "text")
    assert memory.get(place) == "json_schema"

    memory.refused(place, "tool")
    assert memory.get(place) == "json_schema"
    memory.refused(place, "json_schema")
    assert memory.get(place) is None


def test_prices_have_a_date():
    """The bundled table says when it held, and in what."""
    from importlib import resources

    table = json.loads(
        resources.files("oteval.evaluators.judge").joinpath("prices.json").read_text()
    )

    assert table["date"] >= "2025"
    assert table["unit"] == "USD per million tokens"
    assert all(price["output"] >= price["input"] > 0 for price in table["models"].values())
