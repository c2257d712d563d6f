"""Evaluators: a trajectory and a reference in, a score and its reason out.

`create_trajectory_match_evaluator` and its kin are what users call; `compare` with a `MatchSpec`
is the same without the result dict. Everything here is pure: no file, network, clock or
environment is looked at, and importing it is cheap.
"""

from __future__ import annotations

from .compare import Verdict, acompare, compare
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
from .spec import MatchSpec, make_spec

__all__ = [
    "MatchSpec",
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
