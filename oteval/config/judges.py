"""What a language model as a judge may be in oteval.yaml."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from .base import BaseRule, ReferenceSource, Strict, seconds
from .checks import TokenPrice

__all__ = ["JudgeRule", "JuryMember"]


class JuryMember(Strict):
    """A judge of a jury."""

    model: str = Field(description="openai:NAME.")
    base_url: str | None = Field(None, description="Its server, if it is another.")
    temperature: float | None = Field(None, ge=0.0, description="Its sampling temperature.")


def _kind(value: Any) -> str:
    return "JuryMember" if isinstance(value, (dict, JuryMember)) else "str"


# Told apart by its shape, so that an error is about what was meant.
Juror = Annotated[
    Annotated[str, Tag("str")] | Annotated[JuryMember, Tag("JuryMember")], Discriminator(_kind)
]


class JudgeRule(BaseRule):
    """Asks a language model."""

    type: Literal["judge"]
    model: str | None = Field(None, description="openai:NAME, for any OpenAI-compatible server.")
    jury: list[Juror] | None = Field(
        None, description="Several models in place of one; the majority's verdict counts."
    )
    prompt: str = Field(
        "trajectory_accuracy",
        description="trajectory_accuracy, graph_trajectory_accuracy, a file, or the text itself.",
    )
    system: str | None = Field(None, description="A system message to put first.")
    reference: ReferenceSource | None = Field(
        None, description="What the prompt shows as {reference_outputs}."
    )
    variables: dict[str, str] = Field(
        default_factory=dict, description="More variables of the prompt, such as rubric."
    )
    instruction_variables: list[str] = Field(
        default_factory=list,
        description="Variables that are instructions; all but rubric are data otherwise. "
        "few_shot_examples stands for few_shot.",
    )
    few_shot: list[dict[str, Any]] = Field(
        default_factory=list, description="Examples with inputs, outputs, reasoning and score."
    )
    continuous: bool = Field(False, description="Whether the score is a number from 0 to 1.")
    choices: list[float] | None = Field(None, description="The numbers that the score may be.")
    use_reasoning: bool = Field(True, description="Whether it gives its reasons first.")
    threshold: float | None = Field(
        None, description="From which score on it passes, with continuous or choices."
    )
    samples: int = Field(1, ge=1, description="How often it is asked; the majority counts.")
    harden: bool = Field(True, description="Whether runs are shown as data between delimiters.")
    base_url: str | None = Field(None, description="The server; else OPENAI_BASE_URL.")
    api_key_env: str = Field(
        "OPENAI_API_KEY", description="The environment variable that holds the key."
    )
    temperature: float | None = Field(None, ge=0.0, description="The sampling temperature.")
    seed: int | None = Field(None, description="The sampling seed.")
    stream: bool = Field(False, description="Whether answers are streamed.")
    request: dict[str, Any] = Field(
        default_factory=dict, description="More of the request, such as max_tokens."
    )
    timeout: str | float = Field(
        60.0, description="How long a request may take with its retries: seconds, or 90s, 2m."
    )
    max_retries: int = Field(2, ge=0, description="How often to try again.")
    max_concurrency: int = Field(8, ge=1, description="How many runs to ask about at once.")
    max_cost: float | None = Field(
        None, ge=0.0, description="US dollars a scoring may cost; in a server, a day."
    )
    max_cost_per_day: float | None = Field(
        None, ge=0.0, description="US dollars it may cost from midnight UTC on."
    )
    prices: dict[str, TokenPrice] = Field(
        default_factory=dict, description="Prices by model, before those of the bundled table."
    )

    @field_validator("timeout")
    @classmethod
    def _check_timeout(cls, value: str | float) -> float:
        return seconds(value)

    @model_validator(mode="after")
    def _one(self) -> JudgeRule:
        if (self.model is None) == (self.jury is None):
            raise ValueError("give either model or jury")
        if self.continuous and self.choices is not None:
            raise ValueError("continuous and choices exclude each other")
        if self.threshold is not None and not self.continuous and self.choices is None:
            raise ValueError("threshold goes with continuous or choices; a bool passes or not")
        return self
