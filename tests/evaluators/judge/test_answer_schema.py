"""Schemas of verdicts and of custom answers, and the check of answers against them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

import pytest
import typing_extensions
from pydantic import BaseModel

from oteval import ConfigError, create_llm_as_judge
from oteval.evaluators.judge.answer_schema import InvalidAnswer, custom_schema, verdict_schema


def test_a_verdict_has_its_reasoning_first():
    """Without reasoning, the schema has only the score."""
    assert list(verdict_schema().json["properties"]) == ["reasoning", "score"]
    assert list(verdict_schema(use_reasoning=False).json["properties"]) == ["score"]
    assert verdict_schema(choices=[0, 1]).json["properties"]["score"]["enum"] == [0, 1]


@pytest.mark.parametrize("choices", [[], [True], ["a"], [None]])
def test_choices_must_be_numbers(choices: list[Any]):
    """Checked when the evaluator is created."""
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
def test_custom_answers_are_returned_unchanged(kind: Any, answer: Any, expected: Any):
    """As in openevals: a dict, or an object of the pydantic model."""
    evaluate = create_llm_as_judge(
        prompt="{outputs}", judge=lambda _messages, _schema: answer, output_schema=kind
    )

    assert evaluate(outputs="x") == expected


def test_annotations_of_a_typed_dict_become_descriptions():
    """LangChain's way of describing a field works; optional fields stay optional."""
    schema = custom_schema(Grade)

    assert schema.json["properties"]["letter"]["description"] == "The grade."
    assert schema.strict is False
    assert custom_schema(Newer).strict is True


@pytest.mark.parametrize(
    ("kind", "answer"),
    [(Grade, {"letter": "C"}), (Grade, {"parts": [{"n": "x"}]}), (Model, {}), (SCHEMA, {"l": 1})],
)
def test_answers_that_do_not_fit_are_invalid(kind: Any, answer: Any):
    """For every kind of schema."""
    with pytest.raises(InvalidAnswer):
        custom_schema(kind).read(answer)


@pytest.mark.parametrize("kind", [int, "text", {"type": "string"}, [], 3])
def test_other_objects_are_refused_as_schemas(kind: Any):
    """The message names the accepted kinds."""
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
