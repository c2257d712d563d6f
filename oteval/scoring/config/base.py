"""Parts of oteval.yaml that several settings share: filters, and the sources of references."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from ...model import Condition, Selection, parse_asked, parse_condition

__all__ = [
    "AnyReference",
    "DatasetReference",
    "ExampleReference",
    "ReferenceSource",
    "SeveralReferences",
    "StoredReference",
    "Strict",
    "Where",
    "is_in_store",
]

Texts = str | list[str]


class Strict(BaseModel):
    """A part of the file: a key that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _texts(value: Texts | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


class Where(Strict):
    """Which trajectories an evaluator looks at; all that is given must hold."""

    agent: Texts | None = Field(None, description="Agent name, or a list of them.")
    service: Texts | None = Field(None, description="service.name of the resource, or a list.")
    model: Texts | None = Field(None, description="Model that answered, or a list.")
    conversation: Texts | None = Field(None, description="Conversation id, or a list.")
    asked: Texts | None = Field(
        None,
        description="The question, or a list: its whole text, or '~' and a regular expression.",
    )
    attributes: dict[str, str | int | float | bool | list[str]] = Field(
        default_factory=dict, description="Attributes of the root span or its resource."
    )
    conditions: list[str] = Field(
        default_factory=list, description="Comparisons such as 'errors>0' or 'tool=refund'."
    )
    not_: Where | None = Field(None, alias="not", description="A filter for runs to leave out.")

    @field_validator("conditions")
    @classmethod
    def _check_conditions(cls, value: list[str]) -> list[str]:
        for text in value:
            parse_condition(text)
        return value

    @field_validator("asked")
    @classmethod
    def _check_asked(cls, value: Texts | None) -> Texts | None:
        for text in _texts(value):
            parse_asked(text)
        return value

    def selection(self) -> Selection:
        """The selection it spells out."""
        conditions: tuple[Condition, ...] = tuple(parse_condition(text) for text in self.conditions)
        return Selection(
            agents=_texts(self.agent),
            services=_texts(self.service),
            models=_texts(self.model),
            conversations=_texts(self.conversation),
            attributes={
                key: tuple(value) if isinstance(value, list) else (str(value),)
                for key, value in self.attributes.items()
            },
            conditions=conditions,
            asked=tuple(parse_asked(text) for text in _texts(self.asked)),
            excluded=self.not_.selection() if self.not_ else None,
        )


class StoredReference(Strict):
    """A reference kept in the store: a trajectory, or a name given by `oteval reference add`."""

    trajectory: str | None = Field(None, description="A trajectory's id.")
    name: str | None = Field(None, description="A name given by `oteval reference add`.")

    @model_validator(mode="after")
    def _one(self) -> StoredReference:
        if (self.trajectory is None) == (self.name is None):
            raise ValueError("give either trajectory or name")
        return self


class DatasetReference(Strict):
    """References by case: a JSON-lines file, each line with the key's value and messages.

    An attribute names a run's case; with the key ``question``, the first user message does.
    """

    dataset: str = Field(description="A JSON-lines file: {KEY: value, messages: [...]} a line.")
    key: str = Field(
        "test.case.id",
        description="The attribute that names a run's case, or question: the first user message.",
    )


class ExampleReference(Strict):
    """The reference of the example that a run belongs to, in an experiment."""

    example: Literal[True] = Field(description="In experiments: the example's own reference.")


def _reference_kind(value: Any) -> str:
    if isinstance(value, (AnyReference, DatasetReference, ExampleReference, StoredReference)):
        return type(value).__name__
    if isinstance(value, dict):
        if "any" in value:
            return "AnyReference"
        if "example" in value:
            return "ExampleReference"
        return "DatasetReference" if {"dataset", "key"} & set(value) else "StoredReference"
    return "str"


# The shape selects the alternative, so that an error is about the intended one.
_File = Annotated[str, Tag("str")]
_Stored = Annotated[StoredReference, Tag("StoredReference")]
_Dataset = Annotated[DatasetReference, Tag("DatasetReference")]
_Example = Annotated[ExampleReference, Tag("ExampleReference")]

ReferenceSource = Annotated[
    _File | _Stored | _Dataset | _Example,
    Discriminator(
        _reference_kind,
        custom_error_type="one_reference",
        custom_error_message="evaluators of this type take one reference, not {any: [...]}",
    ),
]


class AnyReference(Strict):
    """Several accepted references; the best match counts."""

    any: list[
        Annotated[
            _File | _Stored | _Dataset,
            Discriminator(
                _reference_kind,
                custom_error_type="accepted_reference",
                custom_error_message="write a file, {trajectory: ID}, {name: NAME} or "
                "{dataset, key}",
            ),
        ]
    ] = Field(min_length=1, description="The accepted references.")


SeveralReferences = Annotated[
    _File | _Stored | _Dataset | _Example | Annotated[AnyReference, Tag("AnyReference")],
    Discriminator(_reference_kind),
]
"""One reference, or several; the best match counts."""


def is_in_store(source: ReferenceSource | AnyReference | None) -> bool:
    """Whether a reference, or one of several, is read from the store."""
    if isinstance(source, AnyReference):
        return any(map(is_in_store, source.any))
    return isinstance(source, StoredReference)
