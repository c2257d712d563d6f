"""Checks: evaluators that need no model. `oteval.evaluators.checks.base` says what they share."""

from __future__ import annotations

from .base import Check
from .budget import create_budget_evaluator
from .final_answer import create_final_answer_evaluator
from .forbidden_tools import create_forbidden_tools_evaluator
from .latency import create_latency_evaluator
from .loops import create_loop_evaluator
from .required_text import create_required_text_evaluator
from .tool_errors import create_tool_error_evaluator
from .tool_order import create_tool_order_evaluator
from .tool_schema import create_tool_schema_evaluator

__all__ = [
    "Check",
    "create_budget_evaluator",
    "create_final_answer_evaluator",
    "create_forbidden_tools_evaluator",
    "create_latency_evaluator",
    "create_loop_evaluator",
    "create_required_text_evaluator",
    "create_tool_error_evaluator",
    "create_tool_order_evaluator",
    "create_tool_schema_evaluator",
]
