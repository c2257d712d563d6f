"""Evaluators: a trajectory and a reference in, a score and its reason out.

`create_trajectory_match_evaluator` and its kin are what users call; `compare` with a `MatchSpec`
is the same without the result dict. Everything here is pure: no file, network, clock or
environment is looked at, and importing it is cheap.

The package can also be called, and then runs an experiment: ``from oteval import evaluate`` gives
what users expect by that name, `oteval.experiments.evaluate`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from .compare import Verdict, acompare, compare
from .match import (
    AsyncMatchEvaluator,
    MatchEvaluator,
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
from .spec import MatchSpec, make_spec

__all__ = [
    "AsyncMatchEvaluator",
    "MatchEvaluator",
    "MatchSpec",
    "Verdict",
    "acompare",
    "compare",
    "create_async_trajectory_match_evaluator",
    "create_trajectory_match_evaluator",
    "evaluate",
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


class _Callable(ModuleType):
    """A package that runs an experiment when it is called."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Run an experiment: `oteval.experiments.evaluate`."""
        # By name, since this package knows nothing of what is built on it.
        return import_module("oteval.experiments").evaluate(*args, **options)


evaluate = sys.modules[__name__]
evaluate.__class__ = _Callable
