"""Checks: evaluators that need no model.

Most types have a separate module; `budget` also has `cost`. `base` has the base class, and
`definitions` reads the definitions of tools. Importing this package imports none of them:
`oteval.evaluators.registry` imports one by its type, or all to list the types.
"""

from __future__ import annotations

from .base import Check, EvaluationContext, EvaluationResult, NotEvaluated

__all__ = ["Check", "EvaluationContext", "EvaluationResult", "NotEvaluated"]
