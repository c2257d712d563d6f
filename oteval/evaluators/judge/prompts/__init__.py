"""The bundled prompts, each a text file in this folder.

Each prompt shows ``{inputs}``, ``{outputs}`` (graphs: ``{thread}``) and ``{rubric}``, and some show
``{reference_outputs}``. A variable is optional if the line before it says so ("if it is known");
``{rubric}`` always is. An optional variable without a value is empty.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib import resources

__all__ = [
    "ANSWER_RELEVANCE_PROMPT",
    "CONCISENESS_PROMPT",
    "CORRECTNESS_PROMPT",
    "FIELD_PROMPT",
    "GRAPH_TRAJECTORY_ACCURACY_PROMPT",
    "HALLUCINATION_PROMPT",
    "PII_LEAKAGE_PROMPT",
    "PLAN_ADHERENCE_PROMPT",
    "PROMPTS",
    "PROMPTS_ON_CALLS",
    "PROMPT_INJECTION_PROMPT",
    "TASK_COMPLETION_PROMPT",
    "TOOL_SELECTION_PROMPT",
    "TOXICITY_PROMPT",
    "TRAJECTORY_ACCURACY_PROMPT",
    "TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE",
    "USER_SATISFACTION_PROMPT",
    "optional_variables",
]


def _text(name: str) -> str:
    return resources.files(__name__).joinpath(f"{name}.txt").read_text("utf-8")


ANSWER_RELEVANCE_PROMPT = _text("answer_relevance")
CONCISENESS_PROMPT = _text("conciseness")
CORRECTNESS_PROMPT = _text("correctness")
FIELD_PROMPT = _text("field")
"""Compares one field; it shows ``{field}`` and ``{criterion}`` too."""
GRAPH_TRAJECTORY_ACCURACY_PROMPT = _text("graph_trajectory_accuracy")
HALLUCINATION_PROMPT = _text("hallucination")
PII_LEAKAGE_PROMPT = _text("pii_leakage")
PLAN_ADHERENCE_PROMPT = _text("plan_adherence")
PROMPT_INJECTION_PROMPT = _text("prompt_injection")
TASK_COMPLETION_PROMPT = _text("task_completion")
TOOL_SELECTION_PROMPT = _text("tool_selection")
TOXICITY_PROMPT = _text("toxicity")
TRAJECTORY_ACCURACY_PROMPT = _text("trajectory_accuracy")
TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE = _text("trajectory_accuracy_with_reference")
USER_SATISFACTION_PROMPT = _text("user_satisfaction")

PROMPTS = {
    "answer_relevance": ANSWER_RELEVANCE_PROMPT,
    "conciseness": CONCISENESS_PROMPT,
    "correctness": CORRECTNESS_PROMPT,
    "graph_trajectory_accuracy": GRAPH_TRAJECTORY_ACCURACY_PROMPT,
    "hallucination": HALLUCINATION_PROMPT,
    "pii_leakage": PII_LEAKAGE_PROMPT,
    "plan_adherence": PLAN_ADHERENCE_PROMPT,
    "prompt_injection": PROMPT_INJECTION_PROMPT,
    "task_completion": TASK_COMPLETION_PROMPT,
    "tool_selection": TOOL_SELECTION_PROMPT,
    "toxicity": TOXICITY_PROMPT,
    "trajectory_accuracy": TRAJECTORY_ACCURACY_PROMPT,
    "trajectory_accuracy_with_reference": TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE,
    "user_satisfaction": USER_SATISFACTION_PROMPT,
}
"""The prompts by their name in oteval.yaml (``prompt:``)."""
PROMPTS_ON_CALLS = frozenset(
    {
        "plan_adherence",
        "tool_selection",
        "trajectory_accuracy",
        "trajectory_accuracy_with_reference",
    }
)
"""The names of the prompts that ask about tool calls, and so need to show all of them."""


_OPTIONAL = re.compile(r"\bif (?:it|that|there) is\b[^\n]*:\n\n\{(\w+)\}")


@lru_cache
def optional_variables(prompt: str) -> frozenset[str]:
    """The variables of a prompt that need no value.

    Only bundled prompts, and prompts that contain one, have optional variables.
    """
    if not any(bundled in prompt for bundled in _bundled()):
        return frozenset()
    return frozenset({"rubric", *_OPTIONAL.findall(prompt)})


@cache
def _bundled() -> tuple[str, ...]:
    files = resources.files(__name__).iterdir()
    return tuple(f.read_text("utf-8").strip() for f in files if f.name.endswith(".txt"))
