"""An entry of ``evaluators`` in oteval.yaml: common settings, and the options of its type.

The keys of a type are the options of its class (`oteval.evaluators.options`), so this module
contains nothing about a type.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import MISSING
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, create_model, model_validator
from pydantic_core import CoreSchema, core_schema

from ...base.errors import ConfigError
from ...evaluators import Evaluator, Option, evaluator_class, evaluator_types, load_all, options_of
from .base import AnyReference, ReferenceSource, SeveralReferences, Strict, Where

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue

__all__ = ["EvaluatorEntry", "EvaluatorSettings", "settings_class", "settings_of_entry"]


class EvaluatorSettings(Strict):
    """The settings that all evaluators have, besides the options of their type."""

    evaluator_class: ClassVar[type[Evaluator]]

    name: str = Field(min_length=1, description="Unique; the score's name.")
    type: str
    where: Where = Field(Where(), description="Which trajectories it looks at.")
    sample: float = Field(1.0, ge=0.0, le=1.0, description="The share of traces that is scored.")
    scope: Literal["turn", "conversation"] = Field(
        "turn", description="Whether it sees the run's own messages or the whole conversation."
    )

    _evaluator: Evaluator = PrivateAttr()

    @model_validator(mode="after")
    def _create_evaluator(self) -> Self:
        """Create the evaluator, without the options in files."""
        values = {
            option.name: getattr(self, _field(option.name))
            for option in _written(self.evaluator_class)
            if not option.is_file and _field(option.name) in self.model_fields_set
        }
        try:
            self._evaluator = self.evaluator_class(**values)
            self._evaluator.check_reference(has_reference=self.reference is not None)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def reference(self) -> ReferenceSource | AnyReference | None:
        """The source of its references."""
        source: ReferenceSource | AnyReference | None = getattr(self, "reference_source", None)
        return source

    @property
    def evaluator(self) -> Evaluator:
        """The evaluator, to be prepared before use."""
        return self._evaluator

    @property
    def files(self) -> Mapping[str, str]:
        """The paths of JSON files with options, by the option's name."""
        paths = {
            option.name: getattr(self, _field(option.name))
            for option in _written(self.evaluator_class)
            if option.is_file
        }
        return {name: path for name, path in paths.items() if path is not None}


def _written(kind: type[Evaluator]) -> list[Option]:
    """The options that may be written in the file."""
    return [option for option in options_of(kind) if option.key is not None]


def _field(option: str) -> str:
    # An option may have the name of one of the model's methods, such as `copy`.
    return f"option_{option}"


@cache
def settings_class(kind: type[Evaluator]) -> type[EvaluatorSettings]:
    """The settings of an evaluator's class: the common settings and its options."""
    options: dict[str, Any] = {"type": (Literal[kind.type], ...)}
    if kind.reference is not None:
        required = kind.reference.is_required
        source: Any = SeveralReferences if kind.reference.accepts_several else ReferenceSource
        options["reference_source"] = (
            source if required else source | None,
            Field(
                ... if required else None,
                alias="reference",
                description=kind.reference.description,
            ),
        )
    for option in _written(kind):
        form = str | None if option.is_file else option.form
        described = " ".join(option.description.replace("``", "").replace("`", "").split())
        default = None if option.is_file else option.default
        declared = Field(
            ... if default is MISSING else default, alias=option.key, description=described
        )
        options[_field(option.name)] = (form, declared)
    settings = create_model(
        kind.__qualname__, __base__=EvaluatorSettings, __doc__=_summary(kind), **options
    )
    settings.evaluator_class = kind
    return settings


def _summary(kind: type[Evaluator]) -> str:
    return (kind.__doc__ or "").strip().partition("\n\n")[0]


def settings_of_entry(entry: Any) -> type[EvaluatorSettings]:
    """The settings of the type that an entry names.

    Raises:
        ValueError: The type is unknown, or its class cannot be loaded.
    """
    if not isinstance(entry, Mapping):
        raise ValueError("write the evaluator as a mapping: {name: ..., type: ...}")
    kind = entry.get("type")
    try:
        return settings_class(evaluator_class(kind if isinstance(kind, str) else ""))
    except KeyError:
        types = evaluator_types()
        near = difflib.get_close_matches(str(kind), types, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"'type' must be one of {', '.join(types)}{hint}") from None
    except ConfigError as error:
        raise ValueError(str(error)) from None


class _AnyType:
    """Validates an entry by the class of its type, and imports no other."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(_validate_entry)

    def __get_pydantic_json_schema__(
        self,
        schema: CoreSchema,
        handler: GetJsonSchemaHandler,
    ) -> JsonSchemaValue:
        classes, _ = load_all()
        forms = [settings_class(kind).__pydantic_core_schema__ for kind in classes.values()]
        return {"oneOf": [handler(form) for form in forms]}


def _validate_entry(value: Any) -> EvaluatorSettings:
    if isinstance(value, EvaluatorSettings):
        return value
    return settings_of_entry(value).model_validate(value)


EvaluatorEntry = Annotated[EvaluatorSettings, _AnyType()]
