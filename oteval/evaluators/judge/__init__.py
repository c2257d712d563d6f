"""Language models as judges: prompted for a structured verdict, checked, cached, within a budget.

Users call `create_llm_as_judge`, `create_trajectory_llm_as_judge` and their asynchronous forms. In
an evaluation, `prompt` renders the messages and shows the judged data as data (`data_blocks`);
`client` asks one judge, using the cache and the budget; `output_modes` asks in the strictest mode
that the server supports; `answer_schema` checks the answer; `evaluator` combines several answers.

Unlike the other evaluators, judges do I/O. ``openai`` and LangChain are imported with the first
request.
"""

from __future__ import annotations

from ...model import Price, Prices
from .cache import AnswerCache, JudgeCall, MemoryCache
from .costs import CostBudget
from .evaluator import AsyncJudgeEvaluator, JudgeEvaluator
from .factory import (
    create_async_llm_as_judge,
    create_async_trajectory_llm_as_judge,
    create_llm_as_judge,
    create_trajectory_llm_as_judge,
)
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
    "CostBudget",
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
