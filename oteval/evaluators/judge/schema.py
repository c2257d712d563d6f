"""What a judge has to answer: the JSON schema it is shown, and the check of what it says.

A **verdict** has ``reasoning`` before ``score``, so that the score follows from it. Types are
held strictly: the text "true" is no bool and true is no number. A score of the right type that was
not on offer is `OffScale`, an error at once; an answer of another shape is `Unusable`, and may be
asked for in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, StrictBool, StrictFloat, StrictInt, TypeAdapter, ValidationError
from pydantic import create_model as create

from ...errors import ConfigError, JudgeError
from .shapes import problem_of
from .typeddicts import is_typed_dict, modern

__all__ = ["OffScale", "Schema", "Unusable", "custom_schema", "verdict_schema"]


class Unusable(Exception):
    """An answer is not of the shape that was asked for."""


class OffScale(JudgeError):
    """A score is none of those that were on offer."""


@dataclass(frozen=True)
class Schema:
    """The answer that is asked for.

    Attributes:
        name: The schema's name, as tools and response formats have one.
        json: The JSON schema.
        strict: Whether it fulfils what strict structured output demands of schemas.
        read: Returns the checked value of a parsed answer; raises `Unusable` or `OffScale`.
        raw: Whether the evaluator returns the value itself, not a score.
    """

    name: str
    json: Mapping[str, Any]
    strict: bool
    read: Callable[[Any], Any]
    raw: bool = False


def verdict_schema(
    *, continuous: bool = False, choices: Sequence[float] | None = None, use_reasoning: bool = True
) -> Schema:
    """Return the schema of a verdict.

    Args:
        continuous: Whether the score is a number from 0 to 1 rather than a bool.
        choices: The numbers the score must be one of.
        use_reasoning: Whether the answer begins with its reasons.

    Raises:
        ConfigError: The choices are no numbers, or both kinds of score are asked for.
    """
    allowed = _choices(choices)
    if allowed and continuous:
        raise ConfigError("continuous and choices exclude each other; give one of them")
    number = allowed is not None or continuous
    kind: Any = StrictInt | StrictFloat if number else StrictBool
    fields: dict[str, Any] = {"reasoning": (str, ...)} if use_reasoning else {}
    model = create("Verdict", **fields, score=(kind, ...))
    properties: dict[str, Any] = {}
    if use_reasoning:
        properties["reasoning"] = {
            "type": "string",
            "description": "The grounds for the score, step by step, ending in what it must be.",
        }
    properties["score"] = _score_schema(continuous, allowed)
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }

    def read(value: Any) -> dict[str, Any]:
        found = _validated(model, value).model_dump()
        _refuse_off_scale(found["score"], allowed, continuous)
        return found

    return Schema("verdict", schema, True, read)


def _choices(choices: Sequence[float] | None) -> list[float] | None:
    if choices is None:
        return None
    found = list(choices)
    if not found or any(isinstance(c, bool) or not isinstance(c, (int, float)) for c in found):
        raise ConfigError(f"choices is {choices!r}; expected a list of numbers")
    return found


def _score_schema(continuous: bool, allowed: list[float] | None) -> dict[str, Any]:
    if allowed is not None:
        return {
            "type": "number",
            "enum": allowed,
            "description": "The one of these numbers that says best how far the criteria are met.",
        }
    if continuous:
        return {
            "type": "number",
            "description": "How far the criteria are met, from 0.0 (not at all) to 1.0 (fully).",
        }
    return {"type": "boolean", "description": "true if the criteria are met, false if not."}


def _refuse_off_scale(score: Any, allowed: list[float] | None, continuous: bool) -> None:
    if allowed is not None and score not in allowed:
        offered = ", ".join(f"{choice:g}" for choice in allowed)
        raise OffScale(f"the score {score!r} is none of the choices {offered}")
    if continuous and not 0 <= score <= 1:
        raise OffScale(f"the score {score!r} is not from 0 to 1")


def _validated(model: type[BaseModel], value: Any) -> BaseModel:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise Unusable(_first(error)) from None


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"][:1])) or "the answer"
    return f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}"


def custom_schema(output_schema: Any) -> Schema:
    """Return the schema that a user's TypedDict, pydantic model or JSON schema stands for.

    Args:
        output_schema: One of them; a JSON schema may be wrapped as in OpenAI's structured output,
            ``{"name": ..., "schema": ..., "strict": ...}``.

    Raises:
        ConfigError: It is none of them.
    """
    if isinstance(output_schema, Mapping):
        return _of_json(output_schema)
    if isinstance(output_schema, type) and issubclass(output_schema, BaseModel):
        return _of_type(output_schema, output_schema.__name__)
    if is_typed_dict(output_schema):
        return _of_type(modern(output_schema), output_schema.__name__)
    raise ConfigError(
        f"output_schema is {output_schema!r}; expected a TypedDict, a pydantic model or a "
        "JSON schema"
    )


def _of_json(given: Mapping[str, Any]) -> Schema:
    inner = given.get("schema")
    wrapped = isinstance(inner, Mapping) and "properties" not in given
    schema = inner if wrapped and isinstance(inner, Mapping) else given
    if not isinstance(schema.get("properties"), Mapping):
        raise ConfigError("output_schema: a JSON schema of an object with 'properties' is needed")
    name = str(given.get("name") or schema.get("title") or "answer")
    closed = _closed(schema)
    strict = bool(given.get("strict", True)) and _is_strict(closed)

    def read(value: Any) -> Any:
        problem = problem_of(value, schema)
        if problem:
            raise Unusable(problem)
        return value

    return Schema(_safe(name), closed, strict, read, raw=True)


def _of_type(kind: Any, name: str) -> Schema:
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    schema = _closed(adapter.json_schema())

    def read(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            raise Unusable(_first(error)) from None

    return Schema(_safe(name), schema, _is_strict(schema), read, raw=True)


def _safe(name: str) -> str:
    """Return a name that OpenAI takes for a schema or tool."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:64]


def _closed(schema: Any) -> Any:
    """Return a schema whose objects allow no properties but those they list."""
    if isinstance(schema, Mapping):
        found = {key: _closed(value) for key, value in schema.items()}
        if isinstance(found.get("properties"), dict) and "type" in found:
            found.setdefault("additionalProperties", False)
        return found
    if isinstance(schema, (list, tuple)):
        return [_closed(item) for item in schema]
    return schema


def _is_strict(schema: Any) -> bool:
    """Return whether every object requires all of its properties and allows no others."""
    if isinstance(schema, Mapping):
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and "type" in schema:
            required = schema.get("required") or []
            if set(required) != set(properties) or schema.get("additionalProperties") is not False:
                return False
        return all(_is_strict(value) for value in schema.values())
    if isinstance(schema, (list, tuple)):
        return all(_is_strict(item) for item in schema)
    return True
