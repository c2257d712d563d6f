"""What an evaluator may be in oteval.yaml: one model for each ``type``.

To add a type, write its model here and its judge in `oteval.pipeline.judges`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from .base import (
    BaseRule,
    DatasetReference,
    ExampleReference,
    ReferenceSource,
    StoredReference,
    Strict,
    Where,
    seconds,
)
from .checks import CHECKS, AnyCheck
from .judges import JudgeRule, JuryMember

__all__ = [
    "RULES",
    "BaseRule",
    "DatasetReference",
    "ExampleReference",
    "JudgeRule",
    "JuryMember",
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


class MatchRule(BaseRule):
    """Holds a trajectory against a reference."""

    type: Literal["trajectory_match"]
    mode: Literal["strict", "unordered", "superset", "subset", "in_order"] = Field(
        "strict", description="How the calls are compared."
    )
    tool_args: ArgsMode | dict[str, Any] = Field(
        "exact", description="How arguments are compared: a mode, or {tolerant: {sets: [field]}}."
    )
    overrides: dict[str, Any] = Field(
        default_factory=dict,
        description="Per tool: a mode, a list of the fields to compare, or a mapping.",
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
    missing_ok: bool = Field(True, description="A compared field missing on both sides is equal.")
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
RULES: dict[str, type[BaseRule]] = {
    "trajectory_match": MatchRule,
    "python": PythonRule,
    "judge": JudgeRule,
    **CHECKS,
}
Rule = Annotated[MatchRule | PythonRule | JudgeRule | AnyCheck, Field(discriminator="type")]
