"""Checks: evaluators that need no model, one module for each type; `base` has the base class.

The modules are imported when they are needed: `budget` takes longer than all the others.
"""

from __future__ import annotations

from .base import Check, EvaluationContext, EvaluationResult, NotEvaluated

__all__ = ["Check", "EvaluationContext", "EvaluationResult", "NotEvaluated"]
