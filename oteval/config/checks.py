"""The evaluators of oteval.yaml that need no model: graph matches, and one model for each check."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from .base import BaseRule, ReferenceSource, Strict, Texts, seconds

__all__ = [
    "CHECKS",
    "AnyCheck",
    "BudgetRule",
    "CheckRule",
    "CostRule",
    "FinalAnswerRule",
    "ForbiddenToolsRule",
    "GraphMatchRule",
    "LatencyRule",
    "LoopsRule",
    "RequiredTextRule",
    "TokenPrice",
    "ToolErrorsRule",
    "ToolOrderRule",
    "ToolSchemaRule",
]

Duration = str | float


class GraphMatchRule(BaseRule):
    """Holds the nodes that ran against a reference's."""

    type: Literal["graph_match"]
    mode: Literal["strict", "unordered", "superset", "subset", "in_order"] = Field(
        "strict", description="How the nodes of each turn are compared."
    )
    score_type: Literal["bool", "f1", "recall", "precision"] = Field(
        "bool", description="What the score is."
    )
    threshold: float = Field(
        1.0, ge=0.0, le=1.0, description="From which score on it passes, unless score_type is bool."
    )
    reference: ReferenceSource = Field(
        description="A JSON file with steps, {trajectory: ID}, {name: NAME}, or {dataset, key}."
    )


class CheckRule(BaseRule):
    """A check that has no reference."""

    reference: ClassVar[None] = None


class ToolErrorsRule(CheckRule):
    """Fails where too many tool calls failed."""

    type: Literal["tool_errors"]
    max_errors: int = Field(0, ge=0, description="How many calls may fail.")
    tools: list[str] | None = Field(None, description="The tools that count; * and ? match.")
    error_pattern: str | None = Field(
        None, description="A regular expression: results that match it are errors."
    )
    missing_ok: bool = Field(False, description="A call without a result did not fail.")


class LoopsRule(CheckRule):
    """Fails where the same calls are made over and over."""

    type: Literal["loops"]
    max_repeats: int = Field(
        2, ge=1, description="How often the same calls may be made one after the other."
    )
    max_equal: int | None = Field(None, ge=1, description="How often equal calls may be made.")
    max_cycle: int = Field(5, ge=1, description="How many calls at most make up a cycle.")
    ignore_tools: list[str] = Field(
        default_factory=list, description="Tools that do not count; * and ? match."
    )


class TokenPrice(Strict):
    """What a model's tokens cost, in US dollars per million."""

    input: float = Field(ge=0.0, description="Tokens read.")
    output: float = Field(ge=0.0, description="Tokens written.")
    cached_input: float | None = Field(None, ge=0.0, description="Tokens read from a cache.")


class CostRule(CheckRule):
    """Fails where a run cost more than it may."""

    type: Literal["cost"]
    max_cost: float = Field(ge=0.0, description="US dollars.")
    prices: dict[str, TokenPrice] = Field(
        default_factory=dict, description="Prices by model, before those of the bundled table."
    )


class BudgetRule(CheckRule):
    """Fails where a run used more than it may."""

    type: Literal["budget"]
    max_steps: int | None = Field(None, ge=0, description="Messages of the model.")
    max_tool_calls: int | None = Field(None, ge=0, description="Calls of tools.")
    max_model_calls: int | None = Field(None, ge=0, description="Calls of models.")
    max_input_tokens: int | None = Field(None, ge=0, description="Tokens read.")
    max_output_tokens: int | None = Field(None, ge=0, description="Tokens written.")
    max_total_tokens: int | None = Field(None, ge=0, description="Tokens read and written.")
    max_cost: float | None = Field(None, ge=0.0, description="US dollars.")
    prices: dict[str, TokenPrice] = Field(
        default_factory=dict, description="Prices by model, before those of the bundled table."
    )


class LatencyRule(CheckRule):
    """Fails where a run or a tool took too long."""

    type: Literal["latency"]
    max: Duration | None = Field(None, description="How long a run may take, such as '30s'.")
    max_tool: Duration | None = Field(None, description="How long one call of a tool may take.")
    tools: list[str] | None = Field(None, description="The tools that count; * and ? match.")

    @field_validator("max", "max_tool")
    @classmethod
    def _check_duration(cls, value: Duration | None) -> float | None:
        return None if value is None else seconds(value)

    @model_validator(mode="after")
    def _one(self) -> LatencyRule:
        if self.max is None and self.max_tool is None:
            raise ValueError("give max or max_tool")
        return self


class RequiredTextRule(CheckRule):
    """Fails where what must be said is not, or what must not be said is."""

    type: Literal["required_text"]
    texts: Texts = Field(description="A text or a list of them.")
    match: Literal["all", "any", "none"] = Field(
        "all", description="Whether all must be said, any of them, or none may be."
    )
    said_by: Literal["assistant", "user", "tool", "system", "anyone"] = Field(
        "assistant", description="Whose messages are looked at."
    )
    regex: bool = Field(False, description="The texts are regular expressions.")
    ignore_case: bool = Field(False, description="Upper and lower case are the same.")
    last_only: bool = Field(False, description="Look only at the last message that has text.")


class FinalAnswerRule(BaseRule):
    """Fails where the final answer is not the one that was wanted."""

    type: Literal["final_answer"]
    mode: Literal["exact", "normalised", "numeric"] = Field(
        "exact", description="How the answers are compared."
    )
    expected: str | int | float | None = Field(None, description="The answer that is wanted.")
    tolerance: float = Field(0.0, ge=0.0, description="By how much a number may differ.")
    relative_tolerance: float = Field(
        0.0, ge=0.0, description="By which share of the wanted number it may differ."
    )
    reference: ReferenceSource | None = Field(
        None, description="A JSON file of messages, {trajectory: ID}, {name: NAME}, {dataset, key}."
    )

    @model_validator(mode="after")
    def _one(self) -> FinalAnswerRule:
        if (self.expected is None) == (self.reference is None):
            raise ValueError("give either expected or reference")
        return self


class ToolSchemaRule(CheckRule):
    """Fails where arguments are not what the tool's definition asks for."""

    type: Literal["tool_schema"]
    definitions: str | None = Field(
        None, description="A JSON file with a list of tool definitions; by default the trace's."
    )
    unknown_tools: Literal["fail", "ignore"] = Field(
        "fail", description="What a call of a tool without a definition is."
    )


class ForbiddenToolsRule(CheckRule):
    """Fails where a tool is called that must not be."""

    type: Literal["forbidden_tools"]
    forbidden: list[str] | None = Field(
        None, description="Tools that must not be called; * and ? match."
    )
    allowed: list[str] | None = Field(
        None, description="The only tools that may be called; * and ? match."
    )

    @model_validator(mode="after")
    def _one(self) -> ForbiddenToolsRule:
        if self.forbidden is None and self.allowed is None:
            raise ValueError("give forbidden or allowed")
        return self


class ToolOrderRule(CheckRule):
    """Fails where tools are not called in the order that they must be."""

    type: Literal["tool_order"]
    rules: Texts = Field(
        description="'A before B', 'A immediately before B', 'every A is followed by B', "
        "'every A is immediately followed by B', 'never B after A'."
    )


AnyCheck = (
    BudgetRule
    | CostRule
    | FinalAnswerRule
    | ForbiddenToolsRule
    | GraphMatchRule
    | LatencyRule
    | LoopsRule
    | RequiredTextRule
    | ToolErrorsRule
    | ToolOrderRule
    | ToolSchemaRule
)

# By the ``type`` they have in the file.
CHECKS: dict[str, type[BaseRule]] = {
    "budget": BudgetRule,
    "cost": CostRule,
    "final_answer": FinalAnswerRule,
    "forbidden_tools": ForbiddenToolsRule,
    "graph_match": GraphMatchRule,
    "latency": LatencyRule,
    "loops": LoopsRule,
    "required_text": RequiredTextRule,
    "tool_errors": ToolErrorsRule,
    "tool_order": ToolOrderRule,
    "tool_schema": ToolSchemaRule,
}
