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
from oteval.evaluators.judge.answer_schema import InvalidAnswer, custom_schema, verdict_schema
from oteval.evaluators.judge.answer_text import parse_answer
from oteval.evaluators.judge.cache import JudgeCall, make_cache_key
from oteval.evaluators.judge.costs import Price, make_prices
from oteval.evaluators.judge.evaluator import combine_votes, vote_share
from oteval.evaluators.judge.output_modes import OutputModeMemory

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
    with pytest.raises(InvalidAnswer):
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
    except InvalidAnswer:
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
        with pytest.raises(InvalidAnswer):
            parse_answer(begin + more * 100_000)

    assert time.process_time() - start < 5


@given(st.text())
def test_any_text_is_an_object_or_unusable(text: str):
    """No answer, however odd, raises anything else."""
    with suppress(InvalidAnswer):
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
    with pytest.raises(InvalidAnswer):
        custom_schema(kind).read(answer)


@pytest.mark.parametrize("kind", [int, "text", {"type": "string"}, [], 3])
def test_what_is_no_schema_is_refused(kind: Any):
    """With what would be one."""
    with pytest.raises(ConfigError, match="output_schema"):
        custom_schema(kind)


def problem_of(value: Any, schema: Any) -> str:
    """Return why a value is unusable as the field ``v`` of an answer, or ""."""
    whole = {"properties": {"v": schema}, "$defs": schema.get("$defs", {})}
    try:
        custom_schema(whole).read({"v": value})
    except InvalidAnswer as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize(
    ("value", "schema", "problem"),
    [
        ({"a": 1}, {"properties": {"a": {"type": "string"}}}, "v.a: 1 is not of type 'string'"),
        ({}, {"required": ["a"]}, "v: 'a' is a required property"),
        ({"b": 1}, {"additionalProperties": False}, "v: Additional properties are not allowed"),
        ([1, "x"], {"items": {"type": "integer"}}, "v[1]: 'x' is not of type 'integer'"),
        ((1, "x"), {"items": {"type": "integer"}}, "v[1]: 'x' is not of type 'integer'"),
        (3, {"minimum": 4}, "3 is less than the minimum"),
        (3, {"exclusiveMaximum": 3}, "3 is greater than or equal to the maximum"),
        ("ab", {"pattern": "^b"}, "does not match"),
        ("aa", {"pattern": r"(a)\1"}, "does not match"),
        ("ab", {"maxLength": 1}, "is too long"),
        ([], {"minItems": 1}, "should be non-empty"),
        (1, {"const": 2}, "2 was expected"),
        (True, {"type": ["integer", "null"]}, "True is not of type 'integer', 'null'"),
        (1, {"anyOf": [{"type": "string"}, {"type": "null"}]}, "not valid under any"),
        (1, {"allOf": [{"type": "integer"}, {"minimum": 2}]}, "less than the minimum"),
        ({"a": 1}, {"properties": {"a": {"$ref": "#/$defs/s"}}, "$defs": {"s": {"const": "x"}}},
         "v.a: 'x' was expected"),
        (1, {"$ref": "#/properties/v"}, "nested too deep"),
        (1, {"$ref": "#/nowhere"}, "refers to '/nowhere', which does not exist"),
        ("word " * 1000, {"type": "integer"}, "is not of type 'integer'"),
    ],
)  # fmt: skip
def test_an_answer_that_does_not_fit_a_json_schema_is_explained(
    value: Any, schema: Any, problem: str
):
    """With its place, in a short line."""
    found = problem_of(value, schema)

    assert problem in found
    assert found.startswith("v") or "the answer" in found or "the schema" in found
    assert len(found) < 200


def test_an_answer_that_fits_a_json_schema_is_returned():
    """Whole floats are integers, and unknown keywords and formats are ignored."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "format": "odd"}, "x": True},
        "required": ["n"],
        "unheard-of": 1,
    }

    assert custom_schema(schema).read({"n": 3.0, "x": [1]}) == {"n": 3.0, "x": [1]}


@pytest.mark.parametrize("wrong", [{"type": "nonsense"}, {"required": "a"}, {"minimum": "1"}])
def test_an_invalid_json_schema_is_refused(wrong: dict[str, Any]):
    """When the evaluator is created, with the place of the error."""
    with pytest.raises(ConfigError, match=r"output_schema: invalid JSON schema: properties\.a"):
        custom_schema({"properties": {"a": wrong}})


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
    assert combine_votes(scores, continuous=continuous) == expected


@given(st.lists(st.booleans(), min_size=1, max_size=9))
def test_a_bool_passes_with_more_than_half(votes: list[bool]):
    """And its share is that of the votes for it."""
    winner = combine_votes(votes)

    assert winner == (votes.count(True) > votes.count(False))
    assert vote_share(votes, winner) == votes.count(winner) / len(votes)


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
    one = make_cache_key({"m": "[[data x 1111111111111111]] a"}, "1" * 16)
    two = make_cache_key({"m": "[[data x 2222222222222222]] a"}, "2" * 16)

    assert one == two
    assert one != make_cache_key({"m": "[[data x 1111111111111111]] b"}, "1" * 16)


def test_the_first_way_that_worked_is_remembered():
    """One odd answer does not make a server a plain one; a refusal does."""
    memory, endpoint = OutputModeMemory(), ("url", "m")
    memory.record_success(endpoint, "json_schema")
    memory.record_success(endpoint, "text")
    assert memory.get(endpoint) == "json_schema"

    memory.record_refusal(endpoint, "tool")
    assert memory.get(endpoint) == "json_schema"
    memory.record_refusal(endpoint, "json_schema")
    assert memory.get(endpoint) is None


def test_prices_have_a_date():
    """The bundled table says when it held, and in what."""
    from importlib import resources

    table = json.loads(
        resources.files("oteval.evaluators.judge").joinpath("prices.json").read_text()
    )

    assert table["date"] >= "2025"
    assert table["unit"] == "USD per million tokens"
    assert all(price["output"] >= price["input"] > 0 for price in table["models"].values())
