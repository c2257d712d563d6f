"""The options of an evaluator, read from the fields of its class.

Each option is declared once, as a field of a keyword-only dataclass: the annotation limits its
values, a default makes it optional, and the ``Attributes:`` section of the class's docstring
describes it. The check of constructor arguments, the keys of oteval.yaml, the JSON schema and the
tables of the documentation follow from this declaration.

Pydantic validates, and is imported when a first option is checked: importing an evaluator stays
cheap.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_origin, get_type_hints

from ..base.errors import ConfigError
from ..base.patterns import PatternError, compile_pattern

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema

    from .evaluator import Evaluator

__all__ = [
    "PYTHON_ONLY",
    "FunctionName",
    "InConfig",
    "NonNegativeFloat",
    "NonNegativeInt",
    "Option",
    "PositiveInt",
    "Regex",
    "Seconds",
    "Share",
    "check_options",
    "check_regex",
    "describe_options",
    "options_of",
]


class InConfig(NamedTuple):
    """How an option is written in oteval.yaml, if that differs from Python.

    Attributes:
        key: Its key; None for an option that only Python has, "" for the option's own name.
        form: Its type there; None for the same.
        is_file: Whether the value is the path of a JSON file that contains the option.
    """

    key: str | None = ""
    form: Any = None
    is_file: bool = False


PYTHON_ONLY = InConfig(key=None)


class _Constraints:
    """Adds constraints to a type, by their names in pydantic's core schema."""

    def __init__(self, **constraints: Any) -> None:
        self._constraints = constraints

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return {**handler(source), **self._constraints}


class _DurationText:
    """Accepts a text such as ``30s`` as well as a number of seconds."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic_core import core_schema

        from ..base.text import seconds

        forms = core_schema.union_schema([core_schema.str_schema(), core_schema.float_schema()])
        return core_schema.no_info_before_validator_function(
            seconds, handler(source), json_schema_input_schema=forms
        )


class _RegexText:
    """Accepts regular expressions that RE2 can run."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(_compilable, handler(source))


def _compilable(text: str) -> str:
    try:
        compile_pattern(text)
    except PatternError as error:
        raise ValueError(f"not a valid pattern: {error}") from None
    return text


def check_regex(text: str, option: str) -> None:
    """Refuse an invalid regular expression.

    Raises:
        ConfigError: It is invalid; the text names the option.
    """
    try:
        _compilable(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {text!r}: {error}") from None


NonNegativeInt = Annotated[int, _Constraints(ge=0)]
PositiveInt = Annotated[int, _Constraints(ge=1)]
NonNegativeFloat = Annotated[float, _Constraints(ge=0, allow_inf_nan=False)]
Share = Annotated[float, _Constraints(ge=0, le=1)]
"""A number from 0 to 1."""
Seconds = Annotated[float, _Constraints(ge=0, allow_inf_nan=False), _DurationText()]
"""A duration: a number of seconds, or a text such as ``500ms``, ``30s``, ``2m`` or ``1h``."""
FunctionName = Annotated[str, _Constraints(pattern=r"^[\w.]+:[\w.]+$")]
"""A function's name: ``package.module:function``."""
Regex = Annotated[str, _RegexText()]
"""A regular expression; in Python also a compiled one."""


class Option(NamedTuple):
    """An option of an evaluator.

    Attributes:
        name: Its name in Python.
        key: Its key in oteval.yaml, or None.
        annotation: Its type, with constraints.
        form: Its type in oteval.yaml, with constraints.
        default: Its default; `dataclasses.MISSING` for a required option.
        description: Its meaning.
        is_file: Whether oteval.yaml names a JSON file that contains the value.
    """

    name: str
    key: str | None
    annotation: Any
    form: Any
    default: Any
    description: str
    is_file: bool


@cache
def options_of(evaluator: type[Evaluator]) -> tuple[Option, ...]:
    """The options of a class, in the order of its fields."""
    hints = get_type_hints(evaluator, include_extras=True)
    described = descriptions_of(evaluator)
    options = []
    for field in fields(evaluator):
        if not field.init:
            continue
        annotation = hints[field.name]
        extras = annotation.__metadata__ if get_origin(annotation) is Annotated else ()
        in_config = next((extra for extra in extras if isinstance(extra, InConfig)), InConfig())
        key = field.name if in_config.key == "" else in_config.key
        form = annotation if in_config.form is None else in_config.form
        default = field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        description = described.get(field.name, "")
        options.append(
            Option(field.name, key, annotation, form, default, description, in_config.is_file)
        )
    return tuple(options)


_ATTRIBUTE = re.compile(r"(\w+)(?: \([^)]*\))?: (.*)")


def descriptions_of(owner: type[Evaluator]) -> dict[str, str]:
    """The descriptions of attributes in the docstrings of a class and its bases."""
    descriptions: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        name = ""
        _, _, section = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")
        for line in section.split("\n"):
            start = _ATTRIBUTE.fullmatch(line.strip()) if line.startswith("    ") else None
            if start is not None and not line.startswith("     "):
                name = start[1]
                descriptions[name] = start[2]
            elif line.startswith("     ") and name:
                descriptions[name] += f" {line.strip()}"
            else:
                break
    return descriptions


def check_options(evaluator: Evaluator) -> None:
    """Check the options that an evaluator was created with, and make them immutable.

    Lists and sets become tuples, and compiled patterns their text.

    Raises:
        ConfigError: A value is wrong; the text names the option.
    """
    for option in options_of(type(evaluator)):
        value = getattr(evaluator, option.name)
        if value is not option.default:
            checked = _checked(type(evaluator), option, _immutable(value))
            object.__setattr__(evaluator, option.name, checked)


def _checked(owner: type[Evaluator], option: Option, value: Any) -> Any:
    from pydantic import ValidationError

    try:
        return _validator(owner, option.name).validate_python(value, strict=True)
    except ValidationError as error:
        raise ConfigError(_explained(option.name, value, error.errors()[0])) from None


def _explained(name: str, value: Any, error: Any) -> str:
    """The option, its value and the fault, in one line."""
    for step in error["loc"]:
        # Other steps are the alternatives of a union that pydantic tried.
        if (isinstance(value, Mapping) and step in value) or (
            isinstance(value, (list, tuple)) and isinstance(step, int)
        ):
            name, value = f"{name}[{step!r}]", value[step]
    text = repr(value)
    value_text = text if len(text) <= 60 else f"{text[:59]}…"
    if error["type"] == "literal_error":
        expected = error["ctx"]["expected"].replace(" or ", ", ").replace("'", "")
        return f"{name}: unknown value {value_text}; known: {expected}"
    message = error["msg"].removeprefix("Value error, ")
    return f"{name} is {value_text}; {message[:1].lower()}{message[1:]}"


@cache
def _validator(owner: type[Evaluator], name: str) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    annotation = next(option.annotation for option in options_of(owner) if option.name == name)
    return TypeAdapter(annotation)


def _immutable(value: Any) -> Any:
    """A value that cannot change, of the same meaning."""
    if isinstance(value, (set, frozenset)) and all(isinstance(item, str) for item in value):
        return tuple(sorted(value))
    if isinstance(value, (list, tuple)):
        return tuple(map(_immutable, value))
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        # Only the text is kept, so the flags become part of it.
        letters = "".join(letter for letter, flag in _FLAGS.items() if value.flags & flag)
        return f"(?{letters}){value.pattern}" if letters else value.pattern
    return value


_FLAGS = {"a": re.ASCII, "i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}


def describe_options(evaluator: Evaluator) -> Mapping[str, Any]:
    """The values of an evaluator's options by name, without its key."""
    return {
        option.name: getattr(evaluator, option.name)
        for option in options_of(type(evaluator))
        if option.name != "feedback_key"
    }
