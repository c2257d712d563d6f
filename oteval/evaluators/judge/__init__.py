"""Language models as judges: asked for a structured verdict, checked, cached, within a budget.

`create_llm_as_judge`, `create_trajectory_llm_as_judge` and their asynchronous twins are what users
call. How it goes: `rendering` makes the messages, with what is judged as data (`transcript`);
`ladder` asks in the strictest way the server takes; `schema` checks the answer; `asking` adds the
cache and the limits; `voting` makes one verdict of several.

Unlike the rest of `evaluate` this is not pure: it talks to models. ``openai`` and LangChain are
imported once a judge is asked, never before.
"""

from __future__ import annotations

from .budget import Budget
from .cache import AnswerCache, JudgeCall, MemoryCache
from .evaluator import AsyncJudgeEvaluator, JudgeEvaluator
from .factory import (
    create_async_llm_as_judge,
    create_async_trajectory_llm_as_judge,
    create_llm_as_judge,
    create_trajectory_llm_as_judge,
)
from .prices import Price, Prices
from .prompts import (
    ANSWER_RELEVANCE_PROMPT,
    CONCISENESS_PROMPT,
    CORRECTNESS_PROMPT,
    GRAPH_TRAJECTORY_ACCURACY_PROMPT,
    HALLUCINATION_PROMPT,
    PII_LEAKAGE_PROMPT,
    PLAN_ADHERENCE_PROMPT,
    PROMPT_INJECTION_PROMPT,
    PROMPTS,
    TASK_COMPLETION_PROMPT,
    TOOL_SELECTION_PROMPT,
    TOXICITY_PROMPT,
    TRAJECTORY_ACCURACY_PROMPT,
    TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE,
    USER_SATISFACTION_PROMPT,
)

__all__ = [
    "ANSWER_RELEVANCE_PROMPT",
    "CONCISENESS_PROMPT",
    "CORRECTNESS_PROMPT",
    "GRAPH_TRAJECTORY_ACCURACY_PROMPT",
    "HALLUCINATION_PROMPT",
    "PII_LEAKAGE_PROMPT",
    "PLAN_ADHERENCE_PROMPT",
    "PROMPTS",
    "PROMPT_INJECTION_PROMPT",
    "TASK_COMPLETION_PROMPT",
    "TOOL_SELECTION_PROMPT",
    "TOXICITY_PROMPT",
    "TRAJECTORY_ACCURACY_PROMPT",
    "TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE",
    "USER_SATISFACTION_PROMPT",
    "AnswerCache",
    "AsyncJudgeEvaluator",
    "Budget",
    "JudgeCall",
    "JudgeEvaluator",
    "MemoryCache",
    "Price",
    "Prices",
    "create_async_llm_as_judge",
    "create_async_trajectory_llm_as_judge",
    "create_llm_as_judge",
    "create_trajectory_llm_as_judge",
]
