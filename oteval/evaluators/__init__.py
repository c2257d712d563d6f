"""Evaluators: a trajectory and a reference in, a score and its reason out.

Users call `create_trajectory_match_evaluator` and the other ``create_*`` functions; `compare` with
a `MatchSpec` gives the same verdict without the result dict. An evaluator of your own is a
subclass of `Evaluator`. Importing this package is cheap. All of it is pure, except for `judge`
and `answers.embeddings`, which call models.
"""

from __future__ import annotations

from ..model import EvaluationResult
from .accepted import AnyOf
from .compare import Verdict, acompare, compare
from .evaluator import EvaluationContext, Evaluator, NotEvaluated, ReferenceOption
from .match import (
    TrajectoryMatch,
    create_async_trajectory_match_evaluator,
    create_trajectory_match_evaluator,
    trajectory_strict_match,
    trajectory_strict_match_async,
    trajectory_subset,
    trajectory_subset_async,
    trajectory_superset,
    trajectory_superset_async,
    trajectory_unordered_match,
    trajectory_unordered_match_async,
)
from .messages import to_messages
from .options import InConfig
from .resources import Resources
from .spec import MatchSpec, make_spec

__all__ = [
    "AnyOf",
    "EvaluationContext",
    "EvaluationResult",
    "Evaluator",
    "InConfig",
    "MatchSpec",
    "NotEvaluated",
    "ReferenceOption",
    "Resources",
    "TrajectoryMatch",
    "Verdict",
    "acompare",
    "compare",
    "create_async_trajectory_match_evaluator",
    "create_trajectory_match_evaluator",
    "make_spec",
    "to_messages",
    "trajectory_strict_match",
    "trajectory_strict_match_async",
    "trajectory_subset",
    "trajectory_subset_async",
    "trajectory_superset",
    "trajectory_superset_async",
    "trajectory_unordered_match",
    "trajectory_unordered_match_async",
]
