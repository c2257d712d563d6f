"""The form of a judge's answer: the JSON schema that the model sees, and the check of its answer.

A **verdict** has ``reasoning`` before ``score``, so that the score follows from the reasoning.
Types are strict: the text "true" is not a bool, and true is not a number. An answer of the wrong
form is an `InvalidAnswer`, and the model may be asked again in another way. A score of the right
type that the scale does not contain is a `ScoreOutOfRange`, which is final.

In a text, only a finished answer counts: one JSON object that is the whole text, or the whole of
one code fence, optionally after reasoning in a closed ``<think>`` block. JSON inside reasoning or
prose may be a draft or a quotation from the run, and is never used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import typing_extensions
from pydantic import (
    BaseModel,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    TypeAdapter,
    ValidationError,
    create_model,
)

from ...base.errors import ConfigError, JudgeError
from ...base.patterns import PatternError, compile_pattern

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

__all__ = [
    "AnswerSchema",
    "InvalidAnswer",
    "ScoreOutOfRange",
    "custom_schema",
    "parse_answer",
    "parse_json",
    "verdict_schema",
]

_LONGEST_LINE = 120


class InvalidAnswer(Exception):
    """An answer does not have the requested form."""


class ScoreOutOfRange(JudgeError):
    """A score is outside the scale."""


@dataclass(frozen=True)
class AnswerSchema:
    """The form of an answer.

    Attributes:
        name: A name for tools and response formats.
        json: The JSON schema.
        strict: Whether the schema meets the requirements of strict structured output.
        read: Checks a parsed answer and returns its value; raises `InvalidAnswer` or
            `ScoreOutOfRange`.
        raw: Whether the evaluator returns the value itself instead of a result with a score.
    """

    name: str
    json: Mapping[str, Any]
    strict: bool
    read: Callable[[Any], Any]
    raw: bool = False


def verdict_schema(
    *, continuous: bool = False, choices: Sequence[float] | None = None, use_reasoning: bool = True
) -> AnswerSchema:
    """The schema of a verdict.

    Args:
        continuous: Whether the score is a number from 0 to 1 instead of a bool.
        choices: The numbers that the score must be one of.
        use_reasoning: Whether the answer starts with its reasoning.

    Raises:
        ConfigError: `choices` contains something other than numbers, or is combined with
            `continuous`.
    """
    scale = _checked_choices(choices)
    if scale and continuous:
        raise ConfigError("continuous and choices exclude each other; give one of them")
    properties: dict[str, Any] = {}
    if use_reasoning:
        properties["reasoning"] = {
            "type": "string",
            "description": "The grounds for the score, step by step, ending in what it must be.",
        }
    properties["score"] = _score_schema(continuous, scale)
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    read = partial(_read_verdict, use_reasoning, scale, continuous)
    return AnswerSchema("verdict", schema, strict=True, read=read)


def _read_verdict(
    use_reasoning: bool, scale: list[float] | None, continuous: bool, value: Any
) -> dict[str, Any]:
    """A checked verdict.

    Raises:
        InvalidAnswer: It has another form.
        ScoreOutOfRange: Its score is outside the scale.
    """
    model = _verdict_model(use_reasoning, is_number=scale is not None or continuous)
    try:
        verdict: dict[str, Any] = model.model_validate(value).model_dump()
    except ValidationError as error:
        raise InvalidAnswer(_first_problem(error)) from None
    _check_scale(verdict["score"], scale, continuous)
    return verdict


@cache
def _verdict_model(use_reasoning: bool, *, is_number: bool) -> type[BaseModel]:
    fields: dict[str, Any] = {"reasoning": (str, ...)} if use_reasoning else {}
    score_type: Any = StrictInt | StrictFloat if is_number else StrictBool
    return create_model("Verdict", **fields, score=(score_type, ...))


def _checked_choices(choices: Sequence[float] | None) -> list[float] | None:
    if choices is None:
        return None
    numbers = list(choices)
    if not numbers or any(isinstance(c, bool) or not isinstance(c, (int, float)) for c in numbers):
        raise ConfigError(f"choices is {choices!r}; expected a list of numbers")
    return numbers


def _score_schema(continuous: bool, scale: list[float] | None) -> dict[str, Any]:
    if scale is not None:
        return {
            "type": "number",
            "enum": scale,
            "description": "The one of these numbers that says best how far the criteria are met.",
        }
    if continuous:
        return {
            "type": "number",
            "description": "How far the criteria are met, from 0.0 (not at all) to 1.0 (fully).",
        }
    return {"type": "boolean", "description": "true if the criteria are met, false if not."}


def _check_scale(score: Any, scale: list[float] | None, continuous: bool) -> None:
    if scale is not None and score not in scale:
        choices = ", ".join(f"{choice:g}" for choice in scale)
        raise ScoreOutOfRange(f"the score {score!r} is not one of the choices {choices}")
    if continuous and not 0 <= score <= 1:
        raise ScoreOutOfRange(f"the score {score!r} is not between 0 and 1")


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    path = ".".join(map(str, first["loc"][:1])) or "the answer"
    return f"{path}: {first['msg'][:1].lower()}{first['msg'][1:]}"


def custom_schema(output_schema: Any) -> AnswerSchema:
    """The schema that a user gives as a TypedDict, pydantic model or JSON schema.

    Args:
        output_schema: One of these. A JSON schema may be wrapped as in OpenAI's structured output:
            ``{"name": ..., "schema": ..., "strict": ...}``.

    Raises:
        ConfigError: It is something else, or an invalid JSON schema.
    """
    if isinstance(output_schema, Mapping):
        return _from_json_schema(output_schema)
    if isinstance(output_schema, type) and issubclass(output_schema, BaseModel):
        return _from_type(output_schema, output_schema.__name__)
    if _is_typed_dict(output_schema):
        return _from_type(output_schema, output_schema.__name__)
    raise ConfigError(
        f"output_schema is {output_schema!r}; expected a TypedDict, a pydantic model or a "
        "JSON schema"
    )


def _from_json_schema(output_schema: Mapping[str, Any]) -> AnswerSchema:
    inner = output_schema.get("schema")
    schema = output_schema
    if isinstance(inner, Mapping) and "properties" not in output_schema:
        schema = inner
    if not isinstance(schema.get("properties"), Mapping):
        raise ConfigError("output_schema: a JSON schema of an object with 'properties' is needed")
    name = str(output_schema.get("name") or schema.get("title") or "answer")
    closed = _closed(schema)
    strict = bool(output_schema.get("strict", True)) and _is_strict(closed)
    return AnswerSchema(_tool_name(name), closed, strict=strict, read=_JsonReader(schema), raw=True)


class _JsonReader:
    """Checks answers by a JSON schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema, self._validator = schema, _make_validator(schema)

    def __call__(self, value: Any) -> Any:
        if problem := _find_problem(self._validator, value):
            raise InvalidAnswer(problem)
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return _JsonReader, (self._schema,)  # a validator cannot be pickled


def _make_validator(schema: Mapping[str, Any]) -> Validator:
    """A validator that matches patterns in linear time and accepts tuples as arrays.

    Raises:
        ConfigError: The schema is invalid.
    """
    # jsonschema takes a tenth of a second to import, and few judges need it.
    from jsonschema.exceptions import SchemaError, ValidationError
    from jsonschema.validators import Draft202012Validator, extend, validator_for
    from referencing import Registry

    def pattern(_validator: Any, regex: str, value: Any, _schema: Any) -> Any:
        if isinstance(value, str) and not _matches(regex, value):
            yield ValidationError(f"{value!r} does not match {regex!r}")

    draft = validator_for(schema, default=Draft202012Validator)
    try:
        draft.check_schema(dict(schema))
    except SchemaError as error:
        path = error.json_path.removeprefix("$").removeprefix(".") or "the schema"
        problem = _one_line(error.message)
        raise ConfigError(f"output_schema: invalid JSON schema: {path}: {problem}") from None
    types = draft.TYPE_CHECKER.redefine("array", lambda _, value: isinstance(value, (list, tuple)))
    # The empty registry keeps jsonschema from fetching references over the network.
    make: Any = extend  # it has no type hints
    validator: Validator = make(draft, {"pattern": pattern}, type_checker=types)(
        schema, registry=Registry()
    )
    return validator


def _matches(regex: str, text: str) -> bool:
    """Whether a regular expression matches; False for an expression that RE2 does not support."""
    try:
        return compile_pattern(regex).search(text) is not None
    except PatternError:
        return False


def _find_problem(validator: Validator, value: Any) -> str:
    """Why a value does not fit the validator's schema, or ""."""
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        error = best_match(validator.iter_errors(value))
    except Unresolvable as unresolvable:
        return f"the schema refers to {unresolvable.ref!r}, which does not exist"
    except RecursionError:
        return "the answer: nested too deep"
    if error is None:
        return ""
    path = error.json_path.removeprefix("$").removeprefix(".") or "the answer"
    return f"{path}: {_one_line(error.message)}"


def _one_line(message: str) -> str:
    """A message of jsonschema without the beginning of a long value that it quotes."""
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST_LINE else f"...{line[-_LONGEST_LINE:]}"


def _from_type(kind: Any, name: str) -> AnswerSchema:
    read = _TypeReader(kind)
    schema = _closed(read.adapter.json_schema())
    return AnswerSchema(_tool_name(name), schema, strict=_is_strict(schema), read=read, raw=True)


class _TypeReader:
    """Checks answers by a TypedDict or a pydantic model."""

    def __init__(self, kind: Any) -> None:
        compatible = _pydantic_compatible(kind) if _is_typed_dict(kind) else kind
        self._kind, self.adapter = kind, TypeAdapter[Any](compatible)

    def __call__(self, value: Any) -> Any:
        try:
            return self.adapter.validate_python(value)
        except ValidationError as error:
            raise InvalidAnswer(_first_problem(error)) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return _TypeReader, (self._kind,)  # an adapter cannot be pickled


def _tool_name(name: str) -> str:
    """Replace the characters that OpenAI does not allow in names of schemas and tools."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:64]


def _closed(schema: Any) -> Any:
    """A schema whose objects allow only the properties that they list."""
    if isinstance(schema, Mapping):
        closed = {key: _closed(value) for key, value in schema.items()}
        if isinstance(closed.get("properties"), dict) and "type" in closed:
            closed.setdefault("additionalProperties", False)
        return closed
    if isinstance(schema, (list, tuple)):
        return [_closed(item) for item in schema]
    return schema


def _is_strict(schema: Any) -> bool:
    """Whether every object requires all its properties and allows no others."""
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


def _is_typed_dict(value: Any) -> bool:
    return is_typeddict(value) or typing_extensions.is_typeddict(value)


def _pydantic_compatible(kind: Any) -> Any:
    """Replace TypedDicts of `typing`, at any depth, by TypedDicts of `typing_extensions`.

    Before Python 3.12 pydantic accepts only the latter. A string at the end of ``Annotated[...]``,
    LangChain's way of describing a field, becomes the field's description.
    """
    if _is_typed_dict(kind):
        hints = get_type_hints(kind, include_extras=True)
        required: frozenset[str] = getattr(kind, "__required_keys__", frozenset(hints))
        fields = {
            name: _pydantic_compatible(_without_qualifiers(hint))
            if name in required
            else typing_extensions.NotRequired[_pydantic_compatible(_without_qualifiers(hint))]
            for name, hint in hints.items()
        }
        make: Any = typing_extensions.TypedDict
        converted = make(kind.__name__, fields)
        converted.__doc__ = kind.__doc__
        return converted
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner, *notes = arguments
        metadata = [Field(description=notes[-1])] if isinstance(notes[-1], str) else notes
        return Annotated[(_pydantic_compatible(inner), *metadata)]
    if not arguments or origin is None:
        return kind
    converted_arguments = tuple(_pydantic_compatible(argument) for argument in arguments)
    if converted_arguments == arguments:
        return kind
    if origin is Union or getattr(origin, "__name__", "") == "UnionType":
        return Union[converted_arguments]  # noqa: UP007  built at run time
    return origin[converted_arguments]


def _without_qualifiers(hint: Any) -> Any:
    """A type hint without Required, NotRequired and ReadOnly."""
    while getattr(get_origin(hint), "_name", "") in ("Required", "NotRequired", "ReadOnly"):
        (hint,) = get_args(hint)
    return hint


# The tags that reasoning models put around their reasoning. Kimi writes triangles.
_TAGS = (
    r"(?:[\w-]{1,20}:)?(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflect(?:ion)?|analysis|"
    r"scratchpad|inner_monologue|chain_of_thought|cot)"
)
_OPENING_TAG = re.compile(rf"\s*(?:<(?P<angle>{_TAGS})>|\[(?P<square>{_TAGS})\]|◁think▷)", re.I)
_CLOSING_TAG = re.compile(rf"</{_TAGS}>|\[/{_TAGS}\]|◁/think▷", re.I)
_FENCES = frozenset({"```", "```json"})


def parse_answer(text: str | None) -> Any:
    """The JSON object that is a model's whole answer.

    Args:
        text: The model's text; None means empty.

    Raises:
        InvalidAnswer: The text is anything else.
    """
    answer = (text or "").strip()
    if not answer:
        raise InvalidAnswer("the answer is empty")
    if not answer.startswith("{"):
        answer = _without_fence(_without_reasoning(answer))
    return parse_json(answer)


def parse_json(text: str) -> Any:
    """The object that a JSON text encodes.

    Raises:
        InvalidAnswer: The text is not one JSON object, or an object repeats a key.
    """
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError):
        raise InvalidAnswer(f"the answer is not a JSON object: {_shortened(text)}") from None
    if not isinstance(value, dict):
        raise InvalidAnswer(f"the answer is JSON but not an object: {_shortened(text)}")
    return value


def _without_fence(text: str) -> str:
    """The content of a code fence that is the whole text; other text unchanged."""
    first, _, body = text.partition("\n")
    is_fenced = first.strip().lower() in _FENCES and body.endswith("```")
    return body.removesuffix("```").strip() if is_fenced else text


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique: dict[str, Any] = {}
    for key, value in pairs:
        if key in unique:
            raise InvalidAnswer(f"the answer repeats the key {key!r}")
        unique[key] = value
    return unique


def _without_reasoning(text: str) -> str:
    """The text after the closed reasoning blocks at its beginning."""
    while (opening := _OPENING_TAG.match(text)) is not None:
        if opening["angle"]:
            end = f"</{re.escape(opening['angle'])}>"
        elif opening["square"]:
            end = rf"\[/{re.escape(opening['square'])}\]"
        else:
            end = "◁/think▷"
        closing = re.compile(end, re.I).search(text, opening.end())
        if closing is None:
            raise InvalidAnswer(f"the answer's reasoning is not closed: {_shortened(text)}")
        text = text[closing.end() :].strip()
    if _CLOSING_TAG.search(text) and not text.startswith("{"):
        raise InvalidAnswer(
            "the answer closes reasoning that it never opened, so the two cannot be told apart; "
            "configure the server to return reasoning separately"
        )
    if not text:
        raise InvalidAnswer("the answer is only reasoning")
    return text


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 80 else f"{line[:77]}...")
