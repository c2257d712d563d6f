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
    GRAPH_TRAJECTORY_ACCURACY_PROMPT,
    PROMPTS,
    TRAJECTORY_ACCURACY_PROMPT,
    TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE,
)

__all__ = [
    "GRAPH_TRAJECTORY_ACCURACY_PROMPT",
    "PROMPTS",
    "TRAJECTORY_ACCURACY_PROMPT",
    "TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE",
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
