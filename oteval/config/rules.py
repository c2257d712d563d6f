"""What an evaluator may be in oteval.yaml: one model for each ``type``.

To add a type, write its model here and its judge in `oteval.pipeline.judges`.
"""

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

from ..selection import Condition, Selection, parse_condition

__all__ = [
    "RULES",
    "BaseRule",
    "DatasetReference",
    "MatchRule",
    "PythonRule",
    "ReferenceSource",
    "Rule",
    "StoredReference",
    "Strict",
    "Where",
    "seconds",
]

ArgsMode = Literal["exact", "ignore", "subset", "superset", "tolerant"]
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
    attributes: dict[str, str | int | float | bool | list[str]] = Field(
        default_factory=dict, description="Attributes of the root span or its resource."
    )
    conditions: list[str] = Field(
        default_factory=list, description="Comparisons such as 'errors>0' or 'tool=refund'."
    )
    not_: Where | None = Field(None, alias="not", description="What must not hold.")

    @field_validator("conditions")
    @classmethod
    def _check_conditions(cls, value: list[str]) -> list[str]:
        for text in value:
            parse_condition(text)
        return value

    def selection(self) -> Selection:
        """Return the selection it spells out."""
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
    """References by case: a JSON-lines file, each line with the key's value and messages."""

    dataset: str = Field(description="A JSON-lines file: {KEY: value, messages: [...]} a line.")
    key: str = Field("test.case.id", description="The attribute that names a run's case.")


def _reference_kind(value: Any) -> str:
    if isinstance(value, (DatasetReference, StoredReference)):
        return type(value).__name__
    if isinstance(value, dict):
        return "DatasetReference" if {"dataset", "key"} & set(value) else "StoredReference"
    return "str"


# Told apart by its shape, so that an error is about what was meant.
ReferenceSource = Annotated[
    Annotated[str, Tag("str")]
    | Annotated[StoredReference, Tag("StoredReference")]
    | Annotated[DatasetReference, Tag("DatasetReference")],
    Discriminator(_reference_kind),
]


class BaseRule(Strict):
    """What all types of evaluators have."""

    name: str = Field(min_length=1, description="Unique; the score's name.")
    where: Where = Field(Where(), description="Which trajectories it looks at.")
    sample: float = Field(1.0, ge=0.0, le=1.0, description="The share of traces that is scored.")
    scope: Literal["turn", "conversation"] = Field(
        "turn", description="Whether it sees the run's own messages or the whole conversation."
    )


class MatchRule(BaseRule):
    """Holds a trajectory against a reference."""

    type: Literal["trajectory_match"]
    mode: Literal["strict", "unordered", "superset", "subset", "in_order"] = Field(
        "strict", description="How the calls are compared."
    )
    tool_args: ArgsMode = Field("exact", description="How arguments are compared.")
    overrides: dict[str, Any] = Field(
        default_factory=dict,
        description="Per tool: a mode, a list of the fields to compare, or a regex mapping.",
    )
    view: Literal["all", "writes", "effects"] = Field(
        "all", description="Which calls count: all, those that change something, those that did."
    )
    effect_tools: list[str] = Field(
        default_factory=list, description="The tools that change something."
    )
    error_pattern: str | None = Field(
        None, description="A regular expression: results that match it are errors."
    )
    score_type: Literal["bool", "f1", "recall", "precision"] = Field(
        "bool", description="What the score is."
    )
    strict_order: bool = Field(False, description="Compare the order inside a message too.")
    missing_ok: bool = Field(False, description="A compared field missing on both sides is equal.")
    threshold: float = Field(
        1.0, ge=0.0, le=1.0, description="From which score on it passes, unless score_type is bool."
    )
    reference: ReferenceSource = Field(
        description="A JSON file of messages, {trajectory: ID}, {name: NAME}, or {dataset, key}."
    )


class PythonRule(BaseRule):
    """Calls a function of the user's."""

    type: Literal["python"]
    call: str = Field(
        pattern=r"^[\w.]+:[\w.]+$",
        description="package.module:function, importable from the folder of this file.",
    )
    timeout: str | float | None = Field(None, description="Seconds, or a text such as '5s'.")
    reference: ReferenceSource | None = Field(
        None, description="What the function gets as reference_outputs."
    )

    @field_validator("timeout")
    @classmethod
    def _check_timeout(cls, value: str | float | None) -> float | None:
        return None if value is None else seconds(value)


# By the ``type`` they have in the file.
RULES: dict[str, type[BaseRule]] = {"trajectory_match": MatchRule, "python": PythonRule}
Rule = Annotated[MatchRule | PythonRule, Field(discriminator="type")]


def seconds(value: str | float) -> float:
    """Return a duration in seconds: a number, or a text such as ``500ms``, ``5s``, ``2m``, ``1h``.

    Raises:
        ValueError: The text is no duration.
    """
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    text = str(value).strip()
    for unit, factor in units.items():
        if text.endswith(unit) and text[: -len(unit)].replace(".", "", 1).isdigit():
            return float(text[: -len(unit)]) * factor
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{value!r} is no duration; write for instance 5s or 2m") from None
