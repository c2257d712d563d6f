"""The prompts that come with oteval."""

from __future__ import annotations

from typing import Any

import pytest

import oteval
from oteval.evaluators.judge import PROMPTS

NAMES = (
    *("ANSWER_RELEVANCE_PROMPT", "CONCISENESS_PROMPT", "CORRECTNESS_PROMPT"),
    *("HALLUCINATION_PROMPT", "PII_LEAKAGE_PROMPT", "PLAN_ADHERENCE_PROMPT"),
    *("PROMPT_INJECTION_PROMPT", "TASK_COMPLETION_PROMPT", "TOOL_SELECTION_PROMPT"),
    *("TOXICITY_PROMPT", "USER_SATISFACTION_PROMPT"),
)
RUN = [
    {"role": "user", "content": "How warm is it in Paris?"},
    {"role": "assistant", "content": "It is 21 degrees."},
]


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_shows_the_run_and_nothing_is_left_open(name: str):
    """A judge is shown the question and the answer, and no variable stays in the text."""
    asked: list[str] = []

    def judge(messages: list[dict[str, Any]], schema: Any) -> dict[str, Any]:
        asked.append(messages[-1]["content"])
        return {"reasoning": "fine", "score": True}

    evaluate = oteval.create_trajectory_llm_as_judge(prompt=getattr(oteval, name), judge=judge)
    found = evaluate(outputs=RUN, inputs="the request")

    assert found["score"] is True, found
    assert "21 degrees" in asked[0]
    assert "the request" in asked[0]
    assert not any(f"{{{variable}}}" in asked[0] for variable in ("context", "plan", "rubric"))


def test_every_prompt_has_a_name_for_the_configuration():
    """``prompt: task_completion`` in oteval.yaml is `TASK_COMPLETION_PROMPT`."""
    for name in NAMES:
        assert PROMPTS[name.removesuffix("_PROMPT").lower()] == getattr(oteval, name)


def test_context_and_plan_are_shown_when_given():
    """`HALLUCINATION_PROMPT` takes a context and `PLAN_ADHERENCE_PROMPT` a plan."""
    asked: list[str] = []

    def judge(messages: list[dict[str, Any]], schema: Any) -> dict[str, Any]:
        asked.append(messages[-1]["content"])
        return {"reasoning": "fine", "score": True}

    for prompt, variable in (
        (oteval.HALLUCINATION_PROMPT, "context"),
        (oteval.PLAN_ADHERENCE_PROMPT, "plan"),
    ):
        evaluate = oteval.create_llm_as_judge(prompt=prompt, judge=judge)
        evaluate(inputs="q", outputs="a", **{variable: "first look, then answer"})

    assert all("first look, then answer" in text for text in asked)
    assert len(asked) == 2
